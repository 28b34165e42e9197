package api_test

import (
	"net/http"
	"strings"
	"testing"
)

// AMB-030, AMB-071, API-018, API-027, API-028: what a path may name. Each answer is in the
// envelope; a malformed id is 404 for reads and writes alike.
func TestMalformedPathsAreNotFound(t *testing.T) {
	n := onSQLite(t)
	task := n.submit("k", n.body()).want(t, 201, "").taskOf(t)
	cancel := `{"expected_revision":"1","reason":"r"}`
	retry := cancel
	review := `{"expected_revision":"1","decision":"FAILED","note":"n"}`
	paused := `{"expected_revision":"1","paused":true}`
	ids := []string{
		strings.ToUpper(task.ID), task.ID[:31], task.ID + "0", "0" + task.ID, strings.Repeat("g", 32), "%20" + task.ID,
		task.ID[:31] + "%0a", "..", ".", "-", "0", strings.Repeat("0", 32), "%F0%9F%92%A9", strings.Repeat("a", 4000),
	}
	for _, id := range ids {
		for _, a := range []ask{
			{path: "/v1/tasks/" + id},
			{path: "/v1/tasks/" + id + "/source"},
			{path: "/v1/tasks/" + id + "/attempts"},
			{path: "/v1/tasks/" + task.ID + "/attempts/" + id},
			{path: "/v1/tasks/" + id + "/evidence"},
			{path: "/v1/tasks/" + task.ID + "/evidence/" + id},
			{path: "/v1/queues/" + id},
			{method: http.MethodPost, path: "/v1/tasks/" + id + ":cancel", key: "c", body: cancel},
			{method: http.MethodPost, path: "/v1/tasks/" + id + ":review", key: "c", body: review},
			{method: http.MethodPost, path: "/v1/tasks/" + id + ":retry", key: "c", body: retry},
			{method: http.MethodPatch, path: "/v1/queues/" + id, key: "c", body: paused, header: [][2]string{{"Content-Type", "application/json"}}},
		} {
			if got := n.do(a); got.status != 404 {
				t.Errorf("%s %.90s = %d %s (%s), want 404", a.method, a.path, got.status, got.code, got.message)
			}
		}
	}
	for _, path := range []string{
		"/v1/tasks/" + task.ID + ":stop", "/v1/tasks/" + task.ID + ":cancel:cancel", "/v1/tasks/" + task.ID + ":",
		"/v1/tasks/:cancel", "/v1/tasks/" + task.ID + "/", "/v1/tasks//" + task.ID, "//v1/tasks/" + task.ID, "/v1/tasks/",
		"/v1/tasks/" + task.ID + "/:cancel", "/v1/tasks/" + task.ID + "/attempts:cancel", "/v1/tasks%2F" + task.ID, "/v1/queues:x", "/v2/tasks",
	} {
		if got := n.do(ask{method: http.MethodPost, path: path, key: "c", body: cancel}); got.status != 404 {
			t.Errorf("POST %s = %d %s, want 404", path, got.status, got.code)
		}
	}
	// API-025: resource keys have no endpoint of their own.
	for _, path := range []string{"/v1/keys", "/v1/resource-keys", "/v1/resources", "/v1/concurrency-keys", "/v1/locks", "/v1/tokens"} {
		n.do(ask{path: path}).want(t, 404, "NOT_FOUND")
	}
	// API-027: the path is right and the method is not.
	for path, allow := range map[string]string{
		"/v1/tasks/" + task.ID + ":cancel": "POST",
		"/v1/tasks/" + task.ID:             "GET, HEAD",
		"/v1/tasks":                        "GET, HEAD, POST",
		"/v1/queues":                       "GET, HEAD, POST",
		"/v1/application":                  "GET, HEAD, PATCH",
	} {
		got := n.do(ask{method: http.MethodDelete, path: path}).want(t, 405, "INVALID_ARGUMENT")
		if got.header.Get("Allow") != allow {
			t.Errorf("DELETE %s: Allow = %q, want %q", path, got.header.Get("Allow"), allow)
		}
	}
	if now := n.get(task.ID); now.Revision != 1 {
		t.Errorf("the task is at revision %d: a malformed path changed it", now.Revision)
	}
}

package api_test

import (
	"net/http/httptest"
	"testing"

	"github.com/orbitkit/orbit/server/internal/api"
)

// Labels of metrics hold no id and nothing that a client made up.
func TestPatternHoldsNoID(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/tasks":                  "/v1/tasks",
		"/v1/tasks?limit=5":          "/v1/tasks",
		"/v1/tasks:batch":            "/v1/tasks:batch",
		"/v1/tasks/a1":               "/v1/tasks/{id}",
		"/v1/tasks/tasks":            "/v1/tasks/{id}",
		"/v1/tasks/a1:cancel":        "/v1/tasks/{id}:cancel",
		"/v1/tasks/a1/attempts":      "/v1/tasks/{id}/attempts",
		"/v1/tasks/a1/attempts/a1":   "/v1/tasks/{id}/attempts/{id}",
		"/v1/tasks/a1/evidence/b2":   "/v1/tasks/{id}/evidence/{id}",
		"/v1/queues/q1":              "/v1/queues/{id}",
		"/v1/queues/q1/more":         "other",
		"/v1/tasks/a1/attempts/b2/c": "other",
		"/v1/tasks/":                 "other",
		"/v1/tasks/a1%2fb":           "other",
		"/wp-login.php":              "other",
		"/healthz":                   "/healthz",
	} {
		if got := api.Pattern(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("Pattern(%s) = %s, want %s", path, got, want)
		}
	}
}

package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
)

// API-026, API-028: what no route has gets an envelope like everything else.
func TestUnknownPathsAndMethods(t *testing.T) {
	n := onSQLite(t)
	const id = "22222222222222222222222222222222"
	paths := []string{
		"/", "//", "/v1", "/v1/", "/v1/tasks/", "/v1//tasks", "//v1/tasks", "/v1/tasks/" + id + "/", "/v1/tasks//attempts",
		"/v1/tasks/" + id + ":pause", "/v1/tasks/" + id + "/attempts/", "/v1/tasks%2f" + id, "/V1/tasks", "/v1/tasks:Batch",
		"/v1/./tasks", "/v1/../v1/tasks", "/debug/pprof", "/v1/tasks/" + id + "/nothing",
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST"} {
			n.do(ask{method: method, path: path}).want(t, http.StatusNotFound, orbit.CodeNotFound)
		}
	}
	methods := []struct{ method, path, allow string }{
		{"PUT", "/v1/tasks", "GET, HEAD, POST"},
		{"OPTIONS", "/v1/tasks", "GET, HEAD, POST"},
		{"GET", "/v1/tasks:batch", "POST"},
		{"POST", "/v1/tasks/" + id, "GET, HEAD"},
		{"DELETE", "/v1/tasks/" + id, "GET, HEAD"},
		{"POST", "/v1/tasks/" + id + "/attempts", "GET, HEAD"},
		{"POST", "/v1/capabilities", "GET, HEAD"},
		{"POST", "/healthz", "GET, HEAD"},
		{"POST", "/v1/worker/connect", "GET, HEAD"},
		{"BREW", "/readyz", "GET, HEAD"},
	}
	for _, m := range methods {
		got := n.do(ask{method: m.method, path: m.path}).want(t, http.StatusMethodNotAllowed, orbit.CodeInvalidArgument)
		if allow := got.header.Get("Allow"); allow != m.allow {
			t.Errorf("%s %s: Allow %q, want %q", m.method, m.path, allow, m.allow)
		}
	}
}

// An empty variable in front of :cancel leaves a path without an id, and the answer says so.
func TestAMissingIDIsNamed(t *testing.T) {
	n := onSQLite(t)
	const id = "22222222222222222222222222222222"
	const missing, other = "no such path: the id is missing?", "no such path"
	for path, want := range map[string]string{
		"/v1/tasks/": missing, "/v1/tasks/:cancel": missing, "/v1/tasks/:review": missing, "/v1/tasks//attempts": missing,
		"/v1/tasks//attempts/" + id: missing, "/v1/tasks/" + id + "/attempts/": missing, "/v1/tasks/" + id + "/evidence/": missing,
		"/v1/tasks//evidence/": missing, "/v1/queues/": missing,
		"/": other, "/v1/": other, "/v1/tasks/:pause": other, "/v1/tasks/" + id + "/": other, "/v1/tasks/" + id + "/source/": other,
		"/v1/tasks/" + id + ":pause": other, "/v1/queues/" + id + "/": other, "/v1/tasks/%2f": other, "/v1/application/": other,
	} {
		for _, method := range []string{"GET", "POST", "PATCH"} {
			if got := n.do(ask{method: method, path: path}).want(t, 404, orbit.CodeNotFound); got.message != want {
				t.Errorf("%s %s: message %q, want %q", method, path, got.message, want)
			}
		}
	}
}

// API-022: HEAD has the status and the headers that GET has, also where nothing is found.
func TestHeadIsGetWithoutItsBody(t *testing.T) {
	n := onSQLite(t)
	for _, a := range []ask{
		{path: "/nothing"}, {path: "/v1/tasks/"}, {path: "/v1/tasks:batch"}, {path: "/v1/capabilities", token: "-"}, {path: "/v1/tasks"},
		{path: "/v1/tasks/" + n.creds.QueueID}, {path: "/v1/queues/" + n.creds.QueueID},
	} {
		full := n.do(a)
		a.method = "HEAD"
		head := n.do(a)
		if head.status != full.status || len(head.body) != 0 {
			t.Errorf("HEAD %s = %d with %d bytes, want %d", a.path, head.status, len(head.body), full.status)
		}
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Allow", "WWW-Authenticate"} {
			if head.header.Get(name) != full.header.Get(name) {
				t.Errorf("HEAD %s: %s %q, want %q", a.path, name, head.header.Get(name), full.header.Get(name))
			}
		}
	}
}

// The colon of a custom method may be sent encoded.
func TestEncodedColonIsTheSamePath(t *testing.T) {
	n := onSQLite(t)
	n.do(ask{method: "POST", path: "/v1/tasks%3Abatch", body: `{"items":[]}`}).want(t, 400, orbit.CodeInvalidArgument)
}

// API-014: the server makes the request id.
func TestRequestIDIsNotTakenOver(t *testing.T) {
	n := onSQLite(t)
	const sent = "99999999999999999999999999999999"
	if got := n.do(ask{path: "/healthz", header: [][2]string{{"X-Request-ID", sent}}}); got.requestID == sent {
		t.Error("the client's X-Request-ID was adopted")
	}
}

// API-002, API-021, API-026, API-034, ERR-001, ERR-008.
func TestHeadersOfASubmit(t *testing.T) {
	n := onSQLite(t)
	cases := []struct {
		name   string
		header [][2]string
		key    string
		status int
		code   string
	}{
		{"no key", nil, "", 400, orbit.CodeInvalidArgument},
		{"two keys", [][2]string{{"+Idempotency-Key", "b"}}, "a", 400, orbit.CodeInvalidArgument},
		{"two equal keys", [][2]string{{"+Idempotency-Key", "a"}}, "a", 400, orbit.CodeInvalidArgument},
		{"blank inside the key", nil, "a b", 400, orbit.CodeInvalidArgument},
		{"key of 129", nil, strings.Repeat("k", 129), 400, orbit.CodeInvalidArgument},
		{"key not ASCII", nil, "schl\u00fcssel", 400, orbit.CodeInvalidArgument},
		{"key of 128", nil, strings.Repeat("k", 128), 201, ""},
		{"blanks around the key", nil, "  outer  ", 201, ""},
		{"all printable characters", nil, "!\"#$%&'()*+,-./0129:;<=>?@AZ[\\]^_`az{|}~", 201, ""},
		{"no content type", [][2]string{{"Content-Type", ""}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"text", [][2]string{{"Content-Type", "text/plain"}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"json suffix", [][2]string{{"Content-Type", "application/vnd.api+json"}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"charset utf-8", [][2]string{{"Content-Type", "Application/JSON; Charset=\"UTF-8\""}}, "k2", 201, ""}, // AMB-057
		{"charset latin", [][2]string{{"Content-Type", "application/json; charset=latin1"}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"charset twice", [][2]string{{"Content-Type", "application/json; charset=utf-8; Charset=utf-8"}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"other parameter", [][2]string{{"Content-Type", "application/json; profile=x"}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"broken content type", [][2]string{{"Content-Type", "application/json; ="}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"two content types", [][2]string{{"+Content-Type", "application/json"}}, "k1", 400, orbit.CodeInvalidArgument},
		{"gzip", [][2]string{{"Content-Encoding", "gzip"}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"identity", [][2]string{{"Content-Encoding", "Identity"}}, "k3", 201, ""},
		{"identity and gzip", [][2]string{{"Content-Encoding", "identity"}, {"+Content-Encoding", "gzip"}}, "k1", 415, orbit.CodeUnsupportedMediaType},
		{"two traceparents", [][2]string{{"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, {"+Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}, "k1", 400, orbit.CodeInvalidArgument},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n.do(ask{method: "POST", path: "/v1/tasks", key: c.key, header: c.header, body: n.body()}).want(t, c.status, c.code)
		})
	}
}

// API-001, ERR-002, API-026, API-034: what counts as a credential.
func TestAuthorizationHeader(t *testing.T) {
	n := onSQLite(t)
	token := n.creds.Token
	cases := []struct {
		name   string
		header [][2]string
		status int
	}{
		{"none", nil, 401},
		{"empty", [][2]string{{"Authorization", " "}}, 401},
		{"basic", [][2]string{{"Authorization", "Basic " + token}}, 401},
		{"token alone", [][2]string{{"Authorization", token}}, 401},
		{"two", [][2]string{{"Authorization", "Bearer " + token}, {"+Authorization", "Bearer " + token}}, 401},
		{"upper-case token", [][2]string{{"Authorization", "Bearer " + strings.ToUpper(token)}}, 401},
		{"cut token", [][2]string{{"Authorization", "Bearer " + token[:len(token)-1]}}, 401},
		{"other secret", [][2]string{{"Authorization", "Bearer " + token[:len(token)-64] + strings.Repeat("0", 64)}}, 401},
		{"unknown id", [][2]string{{"Authorization", "Bearer orbit_" + strings.Repeat("0", 32) + token[38:]}}, 401},
		{"scheme without case", [][2]string{{"Authorization", "bEARER " + token}}, 200},
		{"good", [][2]string{{"Authorization", "Bearer " + token}}, 200},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := n.do(ask{path: "/v1/capabilities", token: "-", header: c.header})
			if got.status != c.status {
				t.Fatalf("status %d (%s), want %d", got.status, got.message, c.status)
			}
			if got.status == 401 && got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Error("401 without WWW-Authenticate")
			}
		})
	}
}

// API-005, ERR-007, AMB-018: 524288 bytes pass the limit and 524289 do not, told or not told.
func TestBodyLimit(t *testing.T) {
	n := onSQLite(t)
	padded := func(size int) string {
		body := n.body()
		return body + strings.Repeat(" ", size-len(body))
	}
	n.submit("fits", padded(524288)).want(t, 201, "")
	n.submit("over", padded(524289)).want(t, 413, orbit.CodeBodyTooLarge)
	unknown := func(key string, size int) answer {
		return n.do(ask{method: "POST", path: "/v1/tasks", key: key, reader: io.MultiReader(strings.NewReader(padded(size)))})
	}
	unknown("fits-chunked", 524288).want(t, 201, "")
	unknown("over-chunked", 524289).want(t, 413, orbit.CodeBodyTooLarge)
	payload := `"payload":"` + strings.Repeat("p", 262142) + `"`
	n.submit("payload-fits", n.body(payload)).want(t, 201, "")
	n.submit("payload-over", n.body(strings.Replace(payload, "p\"", "pp\"", 1))).want(t, 400, orbit.CodeInvalidArgument)
}

// API-006 … API-013, API-034: the body is read strictly, and the message names the field.
func TestStrictBodies(t *testing.T) {
	n := onSQLite(t)
	cases := []struct{ name, body, field string }{
		{"empty", "", "body"},
		{"array", "[]", "body"},
		{"byte order mark", "\ufeff" + n.body(), "body"},
		{"trailing data", n.body() + "{}", "body"},
		{"invalid UTF-8", n.body("\"business_key\":\"\xff\""), ""},
		{"unknown field", n.body(`"namespace_id":"x"`), "namespace_id"},
		{"alias by case", n.body(`"RETRY":{}`), "RETRY"},
		{"unknown in retry", n.body(`"retry":{"max":1}`), "retry.max"},
		{"null", n.body(`"business_key":null`), "business_key"},
		{"duplicate in payload", n.body(`"payload":{"a":1,"\u0061":2}`), "payload.a"},
		{"lone surrogate", n.body(`"payload":"\ud800"`), "payload"},
		{"queue upper case", strings.Replace(n.body(), n.creds.QueueID, strings.ToUpper(n.creds.QueueID), 1), "queue_id"},
		{"no handler", `{"queue_id":"` + n.creds.QueueID + `"}`, "handler"},
		{"priority", n.body(`"priority":10`), "priority"},
		{"attempts", n.body(`"retry":{"max_attempts":101}`), "retry.max_attempts"},
		{"key with blank at its end", n.body(`"concurrency_key":"a "`), "concurrency_key"},
		{"number out of range", n.body(`"payload":[1,1.8e308]`), "payload[1]"},
		{"time", n.body(`"available_at":"2026-09-17 00:00:00Z"`), "available_at"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := n.submit("key", c.body).want(t, 400, orbit.CodeInvalidArgument)
			if !strings.HasPrefix(got.message, c.field) {
				t.Errorf("message %q does not name %q", got.message, c.field)
			}
		})
	}
	if rows := n.count("idempotency"); rows != 0 {
		t.Errorf("refused submits left %d identities", rows)
	}
}

// IDEM-019: of several faults the first in the order of checks is answered.
func TestOrderOfChecks(t *testing.T) {
	n := onSQLite(t)
	reader := n.credential([]string{"tasks:read"})
	large := strings.Repeat(" ", 524289)
	missing := bodyFor(strings.Repeat("0", 32))
	n.submit("used", n.body()).want(t, 201, "")
	steps := []struct {
		name   string
		ask    ask
		status int
	}{
		{"credential before size", ask{token: "-", body: large}, 401},
		{"size before content type", ask{body: large, header: [][2]string{{"Content-Type", "text/plain"}}}, 413},
		{"content type before form", ask{body: "no json", header: [][2]string{{"Content-Type", "text/plain"}}}, 415},
		{"form before permission", ask{token: reader.Token, key: "k", body: "no json"}, 400},
		{"permission before queue", ask{token: reader.Token, key: "k", body: missing}, 403},
		{"queue before identity", ask{key: "used", body: missing}, 404},
		{"identity before time", ask{key: "used", body: n.body(`"available_at":"2001-01-01T00:00:00Z"`)}, 409},
		{"time last", ask{key: "k", body: n.body(`"available_at":"2001-01-01T00:00:00Z"`)}, 400},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			s.ask.method, s.ask.path = "POST", "/v1/tasks"
			if got := n.do(s.ask); got.status != s.status {
				t.Fatalf("status %d %s (%s), want %d", got.status, got.code, got.message, s.status)
			}
		})
	}
}

// Writes take no query.
func TestQueryOfASubmitIsRefused(t *testing.T) {
	n := onSQLite(t)
	n.do(ask{method: "POST", path: "/v1/tasks?dry_run=1", key: "k", body: n.body()}).want(t, 400, orbit.CodeInvalidArgument)
}

// HEAD is GET without a body, for balancers.
func TestHeadOfHealth(t *testing.T) {
	n := onSQLite(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := n.do(ask{method: "HEAD", path: path, token: "-"}); got.status != 200 || len(got.body) != 0 {
			t.Errorf("HEAD %s = %d with %d bytes", path, got.status, len(got.body))
		}
	}
}

// API-032.
func TestCapabilities(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		worker := n.credential([]string{"workers:connect", "tasks:read", "tasks:read"})
		got := n.do(ask{path: "/v1/capabilities", token: worker.Token}).want(t, 200, "")
		want := fmt.Sprintf(`{"contract":"orbit.task.v1","digests":["orbit-json-v1"],"idempotency_retention_ms":7776000000,`+
			`"batch":{"max_items":100,"max_bytes":524288},"worker_protocols":["orbit.worker.v1"],`+
			`"application_id":"%s","namespace_id":"%s","permissions":["tasks:read","workers:connect"]}`,
			n.creds.ApplicationID, n.creds.NamespaceID)
		if string(got.data) != want {
			t.Errorf("capabilities = %s\nwant %s", got.data, want)
		}
	})
}

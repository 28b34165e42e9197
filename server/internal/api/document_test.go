package api_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/orbitkit/orbit/internal/wire"
)

// WRK-010: the description of the interface, and the schema for who writes a worker in
// another language, are there for everyone, byte for byte, and may be kept.
func TestDocumentsAreServed(t *testing.T) {
	n := onSQLite(t)
	description, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"/openapi.yaml": description, "/worker-protocol.schema.json": wire.Schema} {
		t.Run(path, func(t *testing.T) { n.servesDocument(t, path, want) })
	}
}

func (n *node) servesDocument(t *testing.T, path string, want []byte) {
	tag := n.document(t, http.MethodGet, path, "").Header.Get("ETag")
	for _, c := range []struct {
		method, match string
		status        int
		body          []byte
	}{
		{"GET", "", 200, want}, {"HEAD", "", 200, nil}, {"GET", `"other"`, 200, want}, {"GET", "W/" + tag + "x", 200, want},
		{"GET", tag, 304, nil}, {"GET", `"other", W/` + tag, 304, nil}, {"GET", "*", 304, nil}, {"HEAD", tag, 304, nil},
	} {
		resp := n.document(t, c.method, path, c.match)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != c.status || !bytes.Equal(body, c.body) {
			t.Errorf("%s with If-None-Match %q = %d, %d bytes (%v); want %d, %d bytes", c.method, c.match, resp.StatusCode, len(body), err, c.status, len(c.body))
		}
		if err := openapi(t).check(exchange{resp.Request, nil, resp.StatusCode, resp.Header, body}); err != nil {
			t.Error(err)
		}
	}
}

func (n *node) document(t *testing.T, method, path, match string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, n.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if match != "" {
		req.Header.Set("If-None-Match", match)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

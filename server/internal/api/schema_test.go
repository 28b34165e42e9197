package api_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/orbitkit/orbit/internal/wire"
)

// WRK-010: whoever writes a worker in another language gets the schema of its messages
// from the server that it is to talk to, without a credential.
func TestSchemaOfTheWorkerProtocolIsServed(t *testing.T) {
	n := onSQLite(t)
	tag := n.workerSchema(t, http.MethodGet, "").Header.Get("ETag")
	for _, c := range []struct {
		method, match string
		status        int
		body          []byte
	}{
		{"GET", "", 200, wire.Schema}, {"HEAD", "", 200, nil}, {"GET", `"other"`, 200, wire.Schema},
		{"GET", tag, 304, nil}, {"HEAD", "W/" + tag, 304, nil},
	} {
		resp := n.workerSchema(t, c.method, c.match)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != c.status || !bytes.Equal(body, c.body) {
			t.Errorf("%s with If-None-Match %q = %d, %d bytes (%v); want %d, %d bytes", c.method, c.match, resp.StatusCode, len(body), err, c.status, len(c.body))
		}
		if err := openapi(t).check(exchange{resp.Request, nil, resp.StatusCode, resp.Header, body}); err != nil {
			t.Error(err)
		}
	}
}

func (n *node) workerSchema(t *testing.T, method, match string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, n.url+"/worker-protocol.schema.json", nil)
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

package examples_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
)

// EX-005, LIMIT-015, TEST-031: the two lines of the keyed example are given word by word, and
// README.md, which TestExamplesRunToTheirExactOutput compares with, has them.
func TestKeyedExamplePrintsTheTwoLines(t *testing.T) {
	const want = "queues=2 completed=2 tokens_increasing=true\n" +
		"resource_writes=2 stale_write_rejected=true worker_drained=true\n"
	if got := printed(t)["keyed-concurrency"]; got != want {
		t.Errorf("README.md has\n%s\nwant\n%s", got, want)
	}
	programs := build(t)
	i := install(t, programs, dbtest.Engines()[0])
	if r := programs.run(t, i.env(), "keyed-concurrency"); r.code != 0 || r.out != want || r.err != "" {
		t.Errorf("exit %d\n%s\nwant\n%s\nstderr: %s", r.code, r.out, want, r.err)
	}
	// EX-008: without the permission to take tasks it ends at once and says what is missing.
	i.admin("bootstrap", "--application", "examples", "--namespace", "default", "--environment", "test",
		"--queue", "initial", "--new-credential", "--output", i.credentials("few"))
	few := []string{"ORBIT_URL=" + i.url, "ORBIT_CREDENTIALS_FILE=" + i.credentials("few")}
	if r := programs.run(t, few, "keyed-concurrency"); r.code != 1 || r.out != "" || !strings.Contains(r.err, "workers:connect") {
		t.Errorf("exit %d %q, stderr %q; want 1 and the missing permission", r.code, r.out, r.err)
	}
}

// EX-008, EX-014: a server that shows equal tokens is found out. The example ends with a
// message and exit code 1, and its workers are drained all the same.
func TestKeyedExampleComparesTheTokens(t *testing.T) {
	programs := build(t)
	i := install(t, programs, dbtest.Engines()[0])
	target, err := url.Parse(i.url)
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`"concurrency_token":"[0-9]+"`)
	liar := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusSwitchingProtocols {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			body = token.ReplaceAll(body, []byte(`"concurrency_token":"1"`))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Del("Content-Length")
			return err
		},
	})
	defer liar.Close()
	r := programs.run(t, []string{"ORBIT_URL=" + liar.URL, "ORBIT_CREDENTIALS_FILE=" + i.credentials("full")}, "keyed-concurrency")
	if r.code != 1 || r.out != "queues=2 completed=2 tokens_increasing=false\n" || r.err != "keyed-concurrency: tokens increase is false, want true\n" {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
}

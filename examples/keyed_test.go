package examples_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
)

// EX-002, EX-004, EX-005, EX-007, LIMIT-015, TEST-031: the two lines of the keyed example are given word by word, and
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
	// EX-002, EX-004: the command that stands in its source, from this folder, is a second run
	// on the same server.
	const command = "ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit-keyed.credentials.json go run ./keyed-concurrency"
	if text, err := os.ReadFile("keyed-concurrency/main.go"); err != nil || !strings.Contains(string(text), "\n//\t"+command+"\n") {
		t.Errorf("the source does not give the command %q: %v", command, err)
	}
	here := strings.NewReplacer("http://127.0.0.1:8080", i.url, "/tmp/orbit-keyed.credentials.json", i.credentials("full")).Replace(command)
	again := exec.CommandContext(t.Context(), "sh", "-c", here)
	again.Env = programs.command(t.Context(), nil, "none").Env
	if out, err := again.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	checkKeyedHistory(t, i)
	// EX-008: without the permission to take tasks it ends at once and says what is missing.
	i.admin("bootstrap", "--application", "examples", "--namespace", "default", "--environment", "test",
		"--queue", "initial", "--new-credential", "--output", i.credentials("few"))
	few := []string{"ORBIT_URL=" + i.url, "ORBIT_CREDENTIALS_FILE=" + i.credentials("few")}
	if r := programs.run(t, few, "keyed-concurrency"); r.code != 1 || r.out != "" || !strings.Contains(r.err, "workers:connect") {
		t.Errorf("exit %d %q, stderr %q; want 1 and the missing permission", r.code, r.out, r.err)
	}
}

// EX-007: each of two runs has made queues, tasks and a resource key of its own, the history
// of both is kept, and nothing of their workers is left at work.
func checkKeyedHistory(t *testing.T, i *installation) {
	t.Helper()
	creds, err := orbit.LoadCredentials(i.credentials("full"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := orbit.NewClient(i.url, creds.Token, orbit.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	queues, keys := 0, map[string][]uint64{}
	for queue, err := range client.Queues(t.Context(), orbit.PageRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		if queue.ID == creds.QueueID {
			continue
		}
		queues++
		page, err := client.ListTasks(t.Context(), orbit.ListTasksRequest{QueueID: queue.ID})
		if err != nil || len(page.Items) != 1 || page.Items[0].State != orbit.StateSucceeded {
			t.Fatalf("tasks of queue %s are %+v, %v; want one that is done", queue.Name, page.Items, err)
		}
		task := page.Items[0]
		attempts, err := client.ListAttempts(t.Context(), task.ID, orbit.PageRequest{})
		if err != nil || len(attempts.Items) != 1 || attempts.Items[0].State != orbit.AttemptEnded {
			t.Fatalf("attempts = %+v, %v; want one that has ended", attempts.Items, err)
		}
		keys[task.ConcurrencyKey] = append(keys[task.ConcurrencyKey], attempts.Items[0].ConcurrencyToken)
	}
	if queues != 4 || len(keys) != 2 {
		t.Errorf("two runs made %d queues and %d keys, want 4 and 2", queues, len(keys))
	}
	for key, tokens := range keys {
		if slices.Sort(tokens); !slices.Equal(tokens, []uint64{1, 3}) {
			t.Errorf("tokens of key %q = %v, want 1 and 3: it is its run's alone", key, tokens)
		}
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

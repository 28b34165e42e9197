package examples_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/freeport"
)

// lonely is the example that changes what all others share.
const lonely = "application-resources"

// printed reads the outputs that README.md promises, by example.
func printed(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	outputs := make(map[string]string)
	for _, m := range regexp.MustCompile("(?s)\n## (\\S+)\n[^#]*?```text\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		outputs[m[1]] = m[2]
	}
	return outputs
}

func names(t *testing.T) []string {
	t.Helper()
	names, err := exampleNames()
	if err != nil || len(names) == 0 {
		t.Fatalf("examples: %q, %v", names, err)
	}
	return names
}

// EX-001, EX-011, EX-012, EX-013, EX-014, TEST-029, LIST-018, CLI-006, REF-HEALTH-001, RG-003: each example that is
// here runs to the output that README.md prints, again and again and beside the others.
func TestExamplesRunToTheirExactOutput(t *testing.T) {
	outputs, examples := printed(t), names(t)
	for name := range outputs {
		if !slices.Contains(examples, name) && !slices.Contains(alone, name) {
			t.Errorf("README.md tells of %s, which there is not", name)
		}
	}
	programs := build(t)
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			i := install(t, programs, engine)
			check := func(t *testing.T, name string, env ...string) {
				r := programs.run(t, append(i.env(), env...), name)
				if want := outputs[name]; r.code != 0 || r.out != want || r.err != "" || want == "" {
					t.Errorf("exit %d\n%s\nREADME.md has\n%s\nstderr: %s", r.code, r.out, want, r.err)
				}
			}
			for _, name := range examples {
				t.Run(name, func(t *testing.T) { check(t, name, guardedDatabase(t, name, engine)...) })
			}
			t.Run("together", func(t *testing.T) {
				for _, name := range slices.DeleteFunc(slices.Clone(examples), func(n string) bool { return n == lonely }) {
					t.Run(name, func(t *testing.T) { t.Parallel(); check(t, name) })
				}
			})
			t.Run(lonely+"-again", func(t *testing.T) { check(t, lonely) })
			t.Run("AfterAnInterrupt", func(t *testing.T) { interrupt(t, programs, i) })
			t.Run("WrongAnswers", func(t *testing.T) { wrongAnswers(t, programs, i) })
			t.Run("TooFewPermissions", func(t *testing.T) { tooFewPermissions(t, programs, i) })
			t.Run("Shell", func(t *testing.T) { shell(t, i) })
		})
	}
}

// guardedDatabase gives the example that has a database of its own one on this engine. In
// the other runs it makes a SQLite file.
func guardedDatabase(t *testing.T, name, engine string) []string {
	t.Helper()
	if name != "guarded-resource" {
		return nil
	}
	return []string{"GUARDED_DATABASE=" + dbtest.Open(t, engine).Address}
}

// interrupt stops the example that changes the application in the middle: it puts back what
// it has changed, and does not end as if all were well.
func interrupt(t *testing.T, programs binaries, i *installation) {
	creds, err := orbit.LoadCredentials(i.credentials("full"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := orbit.NewClient(i.url, creds.Token, orbit.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	before, err := client.GetApplication(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmd := programs.command(t.Context(), i.env(), lonely)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	interrupted := false
	var out []string
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		out = append(out, lines.Text())
		if strings.HasPrefix(lines.Text(), "full:") { // limit and stop are in force
			now, err := client.GetApplication(t.Context())
			interrupted = err == nil && now.DispatchStopped && now.MaxUnfinished == 1
			cmd.Process.Signal(syscall.SIGINT)
		}
	}
	err = cmd.Wait()
	after, getErr := client.GetApplication(t.Context())
	if !interrupted || err == nil || getErr != nil {
		t.Fatalf("interrupted while stopped: %t, end: %v, %v\n%q", interrupted, err, getErr, out)
	}
	if after.DispatchStopped != before.DispatchStopped || after.MaxUnfinished != before.MaxUnfinished || after.Revision == before.Revision {
		t.Errorf("application was %+v and is %+v", before, after)
	}
}

// wrongAnswers puts a server between that reports every repeat as new. An example that
// printed constants would not notice (EX-012, EX-014).
func wrongAnswers(t *testing.T, programs binaries, i *installation) {
	target, err := url.Parse(i.url)
	if err != nil {
		t.Fatal(err)
	}
	liar := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			body = bytes.Replace(body, []byte(`"deduplicated":true`), []byte(`"deduplicated":false`), 1)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Del("Content-Length")
			return nil
		},
	})
	defer liar.Close()
	for _, name := range []string{"tasks", "cancellation"} {
		r := programs.run(t, []string{"ORBIT_URL=" + liar.URL, "ORBIT_CREDENTIALS_FILE=" + i.credentials("full")}, name)
		if r.code != 1 || !strings.Contains(r.out, "deduplicated=false") || r.err != name+": repeat is deduplicated is false, want true\n" {
			t.Errorf("%s: exit %d\n%s%s", name, r.code, r.out, r.err)
		}
	}
}

// tooFewPermissions runs an example with a worker under a credential that may have none.
func tooFewPermissions(t *testing.T, programs binaries, i *installation) {
	i.admin("bootstrap", "--application", "examples", "--namespace", "default", "--environment", "test",
		"--queue", "initial", "--new-credential", "--output", i.credentials("few"))
	r := programs.run(t, []string{"ORBIT_URL=" + i.url, "ORBIT_CREDENTIALS_FILE=" + i.credentials("few")}, "history")
	if r.code != 1 || r.out != "" || !strings.Contains(r.err, "workers:connect") {
		t.Errorf("exit %d %q, stderr %q; want 1 and the missing permission", r.code, r.out, r.err)
	}
}

// shell runs the commands of README.md as they stand there, in each shell that is here, with
// no more than what README.md exports (CLI-007).
func shell(t *testing.T, i *installation) {
	if _, err := exec.LookPath("curl"); err != nil {
		dbtest.Missing(t, "curl is not installed: the shell commands of README.md cannot be run")
	}
	exports, commands := shellBlocks(t)
	exports = strings.NewReplacer("http://127.0.0.1:8080", i.url, "/tmp/orbit.json", i.credentials("full")).Replace(exports)
	for _, name := range []string{"sh", "bash", "zsh"} {
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		cmd := exec.CommandContext(t.Context(), name, "-euc", exports+commands)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + i.dir}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		id, answers, _ := strings.Cut(string(out), "\n")
		answered := strings.Count(answers, `"id":"`+id+`"`)
		repeat := name != "sh" // the task of the first shell is cancelled and no more in the list
		if !orbit.ValidID(id) || answered != 3 && !repeat || answered != 2 && repeat || strings.Contains(answers, `"error"`) ||
			!strings.Contains(answers, `"state":"CANCELLED"`) || !strings.Contains(answers, "9007199254740993") {
			t.Errorf("%s answered %s", name, out)
		}
	}
}

// shellBlocks returns what README.md exports and what it lets the reader type after that.
func shellBlocks(t *testing.T) (exports, commands string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```sh\ncd examples\n(export [^\n]*\n)go run ./tasks\n```.*```sh\n(ORBIT_TOKEN=.*?)```").FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("README.md has no commands for a shell")
	}
	return m[1], m[2]
}

// The commands of README.md can be typed on the server on which those of docs/api.md were
// typed: they have keys of their own.
func TestTheShellCommandsHaveTheirOwnKeys(t *testing.T) {
	_, commands := shellBlocks(t)
	other, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`Idempotency-Key: ([^']+)'`).FindAllStringSubmatch(commands, -1)
	if len(keys) != 2 {
		t.Fatalf("keys %q, want 2", keys)
	}
	for _, key := range keys {
		if strings.Contains(string(other), key[1]) {
			t.Errorf("docs/api.md uses the key %s too", key[1])
		}
	}
}

// EX-012, CLI-006: without a server or an environment an example ends at once, says why in
// one line and prints nothing else.
func TestExamplesSayWhatIsMissing(t *testing.T) {
	examples := names(t)
	programs := build(t)
	file := filepath.Join(t.TempDir(), "credentials.json")
	creds := orbit.Credentials{
		Token: "orbit_canary", ApplicationID: strings.Repeat("1", 32), NamespaceID: strings.Repeat("2", 32), QueueID: strings.Repeat("3", 32),
		Permissions: []string{"tasks:submit"}, Environment: "test",
	}
	if err := orbit.SaveCredentials(file, creds); err != nil {
		t.Fatal(err)
	}
	nowhere := "http://" + freeport.Address(t)
	for _, name := range examples {
		for says, env := range map[string][]string{
			nowhere:                  {"ORBIT_URL=" + nowhere, "ORBIT_CREDENTIALS_FILE=" + file},
			"ORBIT_URL":              {"ORBIT_CREDENTIALS_FILE=" + file},
			"ORBIT_CREDENTIALS_FILE": {"ORBIT_URL=" + nowhere},
			"none.json":              {"ORBIT_URL=" + nowhere, "ORBIT_CREDENTIALS_FILE=none.json"},
		} {
			r := programs.run(t, env, name)
			if r.code != 1 || r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, name+": ") || !strings.Contains(r.err, says) || strings.Contains(r.err, creds.Token) {
				t.Errorf("%s: exit %d, stdout %q, stderr %q; want 1 and %s", name, r.code, r.out, r.err, says)
			}
		}
	}
}

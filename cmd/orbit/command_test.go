package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// invoke runs the program in this process and returns what it wrote.
func invoke(ctx context.Context, env map[string]string, args ...string) (code int, out, errs string) {
	var stdout, stderr output
	code = program.Run(ctx, args, cli.Environment{Get: func(name string) string { return env[name] }, Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// output is a buffer that may be read while the program writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// CLI-004, CLI-017: what is wrong with flags, environment or database is one clear line
// and exit code 2, and shows no password.
func TestMistakesAreOneLineAndExit2(t *testing.T) {
	const password = "s3cret-77"
	empty := dbtest.Open(t, dbtest.SQLite).Address
	missing := "sqlite:" + filepath.Join(t.TempDir(), "orbit.db")
	ready := dbtest.Open(t, dbtest.SQLite, migrations.Server).Address
	unmade := filepath.Join(t.TempDir(), "data")
	cases := []struct {
		name string
		env  map[string]string
		args []string
		says string
	}{
		{"no database", nil, nil, "ORBIT_MYSQL_DSN"},
		{"two databases", map[string]string{"ORBIT_DATABASE": ready, "ORBIT_MYSQL_DSN": "u:" + password + "@tcp(h)/d"}, nil, "both set"},
		{"malformed DSN", map[string]string{"ORBIT_MYSQL_DSN": "u:" + password + "@tcp(127.0.0.1:1/orbit"}, nil, "DSN"},
		{"unreachable database", map[string]string{"ORBIT_MYSQL_DSN": "u:" + password + "@tcp(127.0.0.1:1)/orbit"}, nil, "127.0.0.1:1"},
		{"unknown kind", map[string]string{"ORBIT_DATABASE": "oracle:" + password}, nil, "must begin with"},
		{"no file", map[string]string{"ORBIT_DATABASE": missing}, nil, "there is no " + strings.TrimPrefix(missing, "sqlite:")},
		{"no schema", map[string]string{"ORBIT_DATABASE": empty}, nil, "orbit-migrate up"},
		{"unknown flag", nil, []string{"--nothing"}, "--nothing"},
		{"unknown command", nil, []string{"serve"}, "serve"},
		{"bad duration", nil, []string{"--lease", "x"}, "lease"},
		{"bad lease", map[string]string{"ORBIT_DATABASE": ready}, []string{"--lease", "1s"}, "orbit: --lease 1s: must be at least 5s and at most 5m0s"},
		{"negative stop timeout", map[string]string{"ORBIT_DATABASE": ready}, []string{"--stop-timeout", "-1s"}, "--stop-timeout -1s: must not be negative"},
		{"negative room", map[string]string{"ORBIT_DATABASE": ready}, []string{"--max-kinds", "-1"}, "max kinds must not be negative"},
		{"a part above the whole", map[string]string{"ORBIT_DATABASE": ready}, []string{"--max-connections", "10", "--max-connections-per-credential", "11"}, "max connections per credential 11 must be at most max connections 10"},
		{"bad level", map[string]string{"ORBIT_DATABASE": ready}, []string{"--log-level", "loud"}, "--log-level"},
		{"bad format", map[string]string{"ORBIT_DATABASE": ready}, []string{"--log-format", "xml"}, "--log-format"},
		{"long node id", map[string]string{"ORBIT_DATABASE": ready, "ORBIT_NODE_ID": strings.Repeat("n", 65)}, nil, "node id"},
		{"half a certificate", map[string]string{"ORBIT_DATABASE": ready}, []string{"--tls-cert", "c.pem"}, "--tls-key"},
		{"missing certificate", map[string]string{"ORBIT_DATABASE": ready}, []string{"--tls-cert", "none.pem", "--tls-key", "none.pem"}, "none.pem"},
		{"bad address", map[string]string{"ORBIT_DATABASE": ready, "ORBIT_HTTP_ADDR": "nowhere"}, nil, "nowhere"},
		{"dev: folder is a file", nil, []string{"dev", "--addr", "127.0.0.1:0", "--data", os.Args[0]}, "--data"},
		{"dev: bad address", nil, []string{"dev", "--data", unmade, "--addr", "nowhere"}, "nowhere"},
		{"dev: argument", nil, []string{"dev", "more"}, "more"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := invoke(t.Context(), c.env, c.args...)
			if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "orbit: ") {
				t.Errorf("exit %d, stdout %q, stderr %q; want 2 and one line", code, out, errs)
			}
			if !strings.Contains(errs, c.says) || strings.Contains(errs, password) || strings.Contains(errs, "goroutine") {
				t.Errorf("stderr %q; want %q and no password", errs, c.says)
			}
		})
	}
	if _, err := os.Stat(unmade); err == nil {
		t.Error("orbit dev made its folder before it refused the address")
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, out, _ := invoke(t.Context(), nil, "--version")
	if code != 0 || !regexp.MustCompile(`^orbit \S+\n$`).MatchString(out) {
		t.Errorf("--version = %d %q", code, out)
	}
	_, out, _ = invoke(t.Context(), nil, "--help")
	for _, word := range []string{"ORBIT_MYSQL_DSN", "ORBIT_DATABASE", "ORBIT_HTTP_ADDR", "127.0.0.1:8080", "ORBIT_NODE_ID", "--tls-cert", "dev"} {
		if !strings.Contains(out, word) {
			t.Errorf("--help does not mention %s", word)
		}
	}
}

// A devNode is "orbit dev" running in this process.
type devNode struct {
	url  string
	out  *output
	errs *output
	stop func() int
}

func startDev(t *testing.T, data string) *devNode {
	t.Helper()
	n := &devNode{out: &output{}, errs: &output{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- program.Run(ctx, []string{"dev", "--data", data, "--addr", "127.0.0.1:0"}, cli.Environment{Get: func(string) string { return "" }, Out: n.out, Err: n.errs})
	}()
	n.stop = sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { n.stop() })
	serves := regexp.MustCompile(`Orbit serves on (\S+)`)
	for range 1000 {
		if m := serves.FindStringSubmatch(n.out.String()); m != nil {
			n.url = m[1]
			return n
		}
		if len(ended) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("orbit dev did not start: %s%s", n.out, n.errs)
	return nil
}

// orbit dev: nothing to set up, nothing lost between runs, no token shown (CLI-016).
func TestDev(t *testing.T) {
	data := filepath.Join(t.TempDir(), "it's here")
	file := filepath.Join(data, "credentials.json")
	first := startDev(t, data)
	creds, err := orbit.LoadCredentials(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 || creds.URL != first.url {
		t.Errorf("mode %v, url %q; want 0600 and %q", info.Mode(), creds.URL, first.url)
	}
	id := submitOne(t, first.url, creds)
	if code := first.stop(); code != 0 {
		t.Errorf("exit %d, want 0: %s", code, first.errs)
	}
	for _, text := range []string{first.out.String(), first.errs.String()} {
		if strings.Contains(text, creds.Token) || strings.Contains(text, creds.Token[len(creds.Token)-64:]) {
			t.Error("the token is shown")
		}
	}
	if want := `'` + strings.ReplaceAll(file, "'", `'\''`) + `'`; !strings.Contains(first.out.String(), want) || !strings.Contains(first.out.String(), creds.QueueID) {
		t.Errorf("usage does not name %s and the queue:\n%s", want, first.out)
	}

	second := startDev(t, data)
	if moved, err := orbit.LoadCredentials(file); err != nil || moved.URL != second.url || moved.Token != creds.Token || second.url == first.url {
		t.Errorf("on another address: %v, %v; want the same token and url %s", moved.URL, err, second.url)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if again := submitOne(t, second.url, creds); again != id {
		t.Errorf("after a restart the same key gave task %s, want %s", again, id)
	}
	second.stop()

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	third := startDev(t, data)
	renewed, err := orbit.LoadCredentials(file)
	if err != nil || renewed.NamespaceID != creds.NamespaceID || renewed.Token == creds.Token {
		t.Errorf("renewed credentials: %v, %v", renewed, err)
	}
	if again := submitOne(t, third.url, renewed); again != id {
		t.Errorf("renewed credentials see task %s, want %s", again, id)
	}
}

// A second orbit dev on one folder serves, and says that it is not alone; what it prints for
// orbit-admin can be pasted.
func TestDevSaysThatItIsNotAlone(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	first := startDev(t, data)
	if strings.Contains(first.errs.String(), "another orbit dev") {
		t.Errorf("alone: %s", first.errs)
	}
	paste := "ORBIT_DATABASE=sqlite:" + filepath.Join(data, "orbit.db") + " orbit-admin tasks list --application dev --namespace default --queue default\n"
	if !strings.Contains(first.out.String(), paste) {
		t.Errorf("usage does not say %s:\n%s", paste, first.out)
	}
	second := startDev(t, data)
	if strings.Count(second.errs.String(), "another orbit dev serves this folder") != 1 {
		t.Errorf("beside another: %s", second.errs)
	}
	second.stop()
	first.stop()
	if third := startDev(t, data); strings.Contains(third.errs.String(), "another orbit dev") {
		t.Errorf("after both have ended: %s", third.errs)
	}
	if left, err := filepath.Glob(filepath.Join(data, "credentials.json.*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func submitOne(t *testing.T, url string, creds orbit.Credentials) string {
	t.Helper()
	client, err := orbit.NewClient(url, creds.Token, orbit.ClientConfig{Transport: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.SubmitTask(t.Context(), "key", orbit.SubmitTaskRequest{
		QueueID: creds.QueueID, Handler: "hello", HandlerVersion: "v1", PayloadVersion: "v1", Payload: []byte(`1`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.Task.ID
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{"/a/b.json": "/a/b.json", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'"} {
		if got := shellQuote(word); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", word, got, want)
		}
	}
}

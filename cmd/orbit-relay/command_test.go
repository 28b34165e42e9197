package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/freeport"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/server"
)

// asProgram makes the test binary behave as orbit-relay.
const asProgram = "ORBIT_RELAY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// output takes what a program writes, from any goroutine.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// call runs the program inside the test.
func call(ctx context.Context, env map[string]string, args ...string) (code int, out, err string) {
	var o, e output
	code = program.Run(ctx, args, cliEnvironment(env, &o, &e))
	return code, o.String(), e.String()
}

func cliEnvironment(env map[string]string, out, err io.Writer) cli.Environment {
	return cli.Environment{Get: func(name string) string { return env[name] }, Out: out, Err: err}
}

// A site is a business database and a real task server.
type site struct {
	t           *testing.T
	db          *dbtest.DB // of the business
	serverDB    *dbtest.DB
	store       *outbox.Store
	url         string
	credentials orbit.Credentials
	file        string // credentials file
	target      string // of what is enqueued; empty means shop
}

func newSite(t *testing.T, engine string) *site {
	t.Helper()
	s := &site{t: t, db: dbtest.Open(t, engine, migrations.Outbox), serverDB: dbtest.Open(t, engine, migrations.Server)}
	var err error
	if s.credentials, err = server.Bootstrap(t.Context(), s.serverDB.DB, server.BootstrapRequest{
		Application: "shop", Namespace: "default", Environment: "test", Queue: "orders", Actor: "test",
	}); err != nil {
		t.Fatal(err)
	}
	s.file = filepath.Join(t.TempDir(), "credentials.json")
	if err := orbit.SaveCredentials(s.file, s.credentials); err != nil {
		t.Fatal(err)
	}
	if s.store, err = outbox.Open(s.db.Dialect(), s.db.Write(), s.db.Read()); err != nil {
		t.Fatal(err)
	}
	s.serve()
	return s
}

func (s *site) serve() {
	s.t.Helper()
	node, err := server.New(s.serverDB.DB, server.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx, l) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) { // which a node that was still starting says
			s.t.Errorf("server: %v", err)
		}
	})
}

func (s *site) env() map[string]string {
	return map[string]string{envDatabase: s.db.Address, envURL: s.url, envCredentials: s.file}
}

func (s *site) enqueue(keys ...string) (seqs []int64) {
	s.t.Helper()
	box, err := outbox.New(s.db.Dialect(), outbox.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	err = s.db.Tx(s.t.Context(), func(tx *sqldb.Tx) error {
		seqs = nil
		for _, key := range keys {
			r, err := box.Enqueue(s.t.Context(), tx.Tx, outbox.Message{Key: key, Target: cmp.Or(s.target, "shop"), Request: orbit.SubmitTaskRequest{
				QueueID: s.credentials.QueueID, Handler: "orders.ship", HandlerVersion: "v1", PayloadVersion: "v1",
				Payload: json.RawMessage(`{"exact": 9007199254740993}`),
			}})
			if err != nil {
				return err
			}
			seqs = append(seqs, r.Seq)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return seqs
}

func (s *site) row(seq int64) outbox.Row {
	s.t.Helper()
	r, err := s.store.Get(s.t.Context(), seq)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *site) tasks() (n int) {
	s.t.Helper()
	if err := s.serverDB.Read().QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM task").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second) // a bound for hanging, not a measure
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// CLI-017: one clear line, exit 2, never a password or a token.
func TestAMistakeGivesOneClearLineAndExitCode2(t *testing.T) {
	empty := dbtest.Open(t, dbtest.SQLite).Address
	missing := "sqlite:" + filepath.Join(t.TempDir(), "missing.db")
	good := dbtest.Open(t, dbtest.SQLite, migrations.Outbox).Address
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()
	full := map[string]string{envDatabase: good, envURL: "http://127.0.0.1:1", envToken: "sesame"}
	with := func(name, value string) map[string]string {
		env := map[string]string{}
		for k, v := range full {
			env[k] = v
		}
		env[name] = value
		return env
	}
	tests := []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{"no command", full, nil, "requeue"},
		{"unknown command", full, []string{"go"}, `"go"`},
		{"unknown flag", full, []string{"run", "--fast"}, "--fast"},
		{"malformed flag", full, []string{"run", "--lease", "soon"}, "--lease"},
		{"malformed number", full, []string{"run", "--senders", "x"}, `--senders "x": must be a whole number`},
		{"malformed age", full, []string{"run", "--retain", "x"}, "--retain: "},
		{"poll too long", full, []string{"run", "--poll", "100h"}, "--poll 100h0m0s must be 20ms to 1h0m0s"},
		{"lease too short", full, []string{"once", "--lease", "1ms"}, "--lease 1ms must be"},
		{"stray queue", full, []string{"requeue", "1", "--queue", "q", "--operator", "me", "--reason", "r"}, "--queue goes with --all"},
		{"stray queue of a hold", full, []string{"hold", "--all", "--queue", "q", "--operator", "me", "--reason", "r"}, "--queue goes with --target"},
		{"malformed queue", full, []string{"hold", "--target", "t", "--queue", "q", "--operator", "me", "--reason", "r"}, "--queue: must be 32"},
		{"queue without target", full, []string{"list", "--queue", "q"}, "--target: is required with a queue"},
		{"argument", full, []string{"once", "now"}, `"now"`},
		{"no database", with(envDatabase, ""), []string{"run"}, envDSN},
		{"both databases", with(envDSN, "root:sesame@tcp(127.0.0.1:1)/x"), []string{"status"}, "both set"},
		{"malformed DSN", map[string]string{envDSN: "root:sesame@127.0.0.1/x"}, []string{"status"}, "DSN"},
		{"malformed collector", with("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318"), []string{"run"}, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{"no schema", with(envDatabase, empty), []string{"run"}, "orbit-migrate up --set outbox"},
		{"no file", with(envDatabase, empty+".typo"), []string{"run"}, "there is no "},
		{"no such database file", with(envDatabase, missing), []string{"status"}, "missing.db"},
		{"no URL", with(envURL, ""), []string{"run"}, envURL},
		{"malformed URL", with(envURL, "http://user:sesame@127.0.0.1"), []string{"run"}, "URL"},
		{"plain http to another host", with(envURL, "http://orbit.example"), []string{"run"}, "https"},
		{"no token", with(envToken, ""), []string{"once"}, envCredentials},
		{"token and file", with(envCredentials, "/x"), []string{"once"}, "both set"},
		{"no such file", map[string]string{envDatabase: good, envCredentials: "/none/such.json"}, []string{"once"}, "/none/such.json"},
		{"timeout beyond the lease", full, []string{"run", "--lease", "1s", "--send-timeout", "2s"}, "--send-timeout 2s must be more than zero and at most 0.6 of --lease 1s"},
		{"negative retain", full, []string{"run", "--retain", "-2s"}, "--retain must be"},
		{"bad target", full, []string{"run", "--target", "a b"}, `--target "a b": `},
		{"bad namespace", full, []string{"run", "--namespace", "x"}, "--namespace must be 32"},
		{"several mistakes", full, []string{"run", "--senders", "99", "--batch-rows", "101"}, "--senders 99 must be 1 to 64; --batch-rows 101"},
		{"address others can reach", full, []string{"run", "--nudge-address", "0.0.0.0:0"}, "loopback"},
		{"address without port", full, []string{"run", "--nudge-address", "127.0.0.1"}, "host:port"},
		{"address in use", full, []string{"run", "--nudge-address", occupied.Addr().String()}, "in use"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, out, text := call(t.Context(), test.env, test.args...)
			if code != cli.ExitUsage || out != "" {
				t.Errorf("exit code %d, output %q, want 2 and none", code, out)
			}
			if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "orbit-relay: ") || !strings.Contains(text, test.want) {
				t.Errorf("error is %q, want one line with %q", text, test.want)
			}
			for _, word := range []string{"strconv", "relay: ", "SendTimeout", "NamespaceID"} {
				if strings.Contains(strings.TrimPrefix(text, "orbit-relay: "), word) {
					t.Errorf("error has the word %q of the program: %q", word, text)
				}
			}
			if strings.Contains(text, "sesame") {
				t.Errorf("error shows a secret: %q", text)
			}
		})
	}
}

func TestVersionAndHelpNeedNothing(t *testing.T) {
	if code, out, _ := call(t.Context(), nil, "--version"); code != 0 || !strings.HasPrefix(out, "orbit-relay ") {
		t.Errorf("--version = %d %q", code, out)
	}
	for _, command := range []string{"", "run", "once", "status"} {
		args := append(strings.Fields(command), "--help")
		if code, out, _ := call(t.Context(), nil, args...); code != 0 || !strings.Contains(out, "Usage:") {
			t.Errorf("%v = %d %q", args, code, out)
		}
	}
}

// REL-023.
func TestOnceDrainsAndSums(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			seqs := s.enqueue("a", "b", "c")
			code, out, text := call(t.Context(), s.env(), "once", "--target", "shop")
			if code != 0 || !strings.Contains(out, "accepted 3 (0 of them known from an earlier send)") {
				t.Fatalf("once = %d %q %q", code, out, text)
			}
			for _, seq := range seqs {
				if r := s.row(seq); r.State != outbox.Delivered || r.TaskID == "" {
					t.Errorf("row %d is %v", seq, r.State)
				}
			}
			if n := s.tasks(); n != 3 {
				t.Errorf("%d tasks, want 3", n)
			}
			if code, out, _ := call(t.Context(), s.env(), "once", "--target", "shop"); code != 0 || !strings.Contains(out, "accepted 0") {
				t.Errorf("second once = %d %q", code, out)
			}
		})
	}
}

func TestOnceSaysWhatItLeaves(t *testing.T) {
	s := newSite(t, dbtest.SQLite)
	s.enqueue("a")
	code, out, text := call(t.Context(), s.env(), "once", "--target", "another")
	if code != cli.ExitFailure || !strings.Contains(out, "no credential for this target") || !strings.Contains(text, "rows are left") {
		t.Errorf("once = %d %q %q", code, out, text)
	}
	env := s.env()
	env[envCredentials], env[envToken] = "", "orbit_not_a_token"
	code, out, text = call(t.Context(), env, "once", "--target", "shop")
	if code != cli.ExitFailure || !strings.Contains(out, "UNAUTHENTICATED") || strings.Contains(out+text, "orbit_not_a_token") {
		t.Errorf("once = %d %q %q", code, out, text)
	}
}

func TestStatusShowsHowTheOutboxStands(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			seqs := s.enqueue("a", "b", "c")
			lease, err := s.store.Lead(t.Context(), 0, "somebody", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			answer := outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true, Status: 503, Code: "UNAVAILABLE", Message: "try later"}
			if _, err := s.store.Postpone(t.Context(), lease, seqs[:1], 0, answer); err != nil {
				t.Fatal(err)
			}
			if _, err := s.store.Block(t.Context(), lease, seqs[1:2], outbox.Answer{Outcome: outbox.OutcomeNeedsPerson, Status: 404}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.store.Postpone(t.Context(), lease, seqs[2:], time.Hour, answer); err != nil {
				t.Fatal(err)
			}
			if err := s.store.Hold(t.Context(), "shop", "", outbox.Act{Operator: "me", Reason: "deploy"}); err != nil {
				t.Fatal(err)
			}
			code, out, text := call(t.Context(), s.env(), "status")
			if code != 0 {
				t.Fatalf("status = %d %q", code, text)
			}
			for _, want := range []string{"PENDING", "BLOCKED", "somebody", "epoch 1", "target shop", "try later", "oldest due row", "by me: deploy"} {
				if !strings.Contains(out, want) {
					t.Errorf("status lacks %q:\n%s", want, out)
				}
			}
			code, out, _ = call(t.Context(), s.env(), "status", "--json")
			var r report
			if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil {
				t.Fatalf("status --json = %d, %v\n%s", code, err, out)
			}
			if r.Rows["PENDING"] != 2 || r.Rows["BLOCKED"] != 1 || r.Rows["DELIVERED"] != 0 || r.OldestDueSeconds <= 0 || r.OldestOpenSeconds <= 0 ||
				len(r.Shards) != 1 || r.Shards[0].Leader != "somebody" || len(r.Lanes) != 1 || r.Lanes[0].LastError == "" || len(r.Holds) != 1 {
				t.Errorf("status --json = %+v", r)
			}
		})
	}
}

func TestRunServesNudgesAndStopsCleanly(t *testing.T) {
	s := newSite(t, dbtest.SQLite)
	address := freeport.Address(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		code, _, _ := call(ctx, s.env(), "run", "--target", "shop", "--poll", "1h", "--nudge-address", address)
		ended <- code
	}()
	eventually(t, "the target is proved", func() bool {
		resp, err := http.Get("http://" + address + "/status")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var st struct {
			Targets []struct{ State string }
			Shards  []struct{}
		}
		return json.NewDecoder(resp.Body).Decode(&st) == nil && len(st.Shards) == 1 && st.Targets[0].State != "paused"
	})
	seq := s.enqueue("a")[0]
	eventually(t, "the nudged row is delivered", func() bool {
		resp, err := http.Post("http://"+address+"/nudge", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return s.row(seq).State == outbox.Delivered
	})
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

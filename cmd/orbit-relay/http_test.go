package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/freeport"
	"github.com/orbitkit/orbit/outbox"
)

const operatorToken = "a-token-of-operators"

// A caller speaks to the operators' interface of a relay.
type caller struct {
	t     *testing.T
	url   string
	token string
}

// do returns status and body.
func (c caller) do(method, path, body string) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	want := "application/json"
	if resp.StatusCode >= 400 {
		want = "application/problem+json"
	}
	if got := resp.Header.Get("Content-Type"); got != want {
		c.t.Errorf("%s %s = %d of type %q, want %q", method, path, resp.StatusCode, got, want)
	}
	return resp.StatusCode, string(text)
}

// act runs an act as anna and returns what was done.
func (c caller) act(path, members string) (d did) {
	c.t.Helper()
	status, text := c.do("POST", path, `{"operator":"anna","reason":"ticket 7",`+members+`}`)
	if err := json.Unmarshal([]byte(text), &d); status != 200 || err != nil {
		c.t.Fatalf("%s = %d %s", path, status, text)
	}
	return d
}

// operators starts a relay whose rows are all held, with the interface of operators.
func (s *site) operators(token string) (c caller, stop func()) {
	s.t.Helper()
	if err := s.store.Hold(s.t.Context(), "", "", outbox.Act{Operator: "test", Reason: "look"}); err != nil {
		s.t.Fatal(err)
	}
	address := freeport.Address(s.t)
	env := s.env()
	env[envOperatorToken] = token
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan int, 1)
	var log output
	go func() {
		ended <- program.Run(ctx, []string{"run", "--target", "shop", "--nudge-address", address}, cliEnvironment(env, &log, &log))
	}()
	c = caller{t: s.t, url: "http://" + address, token: token}
	eventually(s.t, "the relay serves", func() bool {
		resp, err := http.Get(c.url + "/status")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(text), `"epoch"`)
	})
	return c, func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if code := <-ended; code != 0 {
			s.t.Errorf("exit code %d: %s", code, &log)
		}
		if strings.Contains(log.String(), operatorToken) {
			s.t.Errorf("the log shows the token: %s", &log)
		}
	}
}

// What operators do by command they do over HTTP by the same rules: the same JSON, the same
// states, the same audit row, dry runs, and refusals that name field and rule (OUT-012,
// OUT-013, OUT-014, REL-021).
func TestOperatorsDoTheSameOverHTTP(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			rejected, blocked, unknown, delivered := s.settled()
			c, stop := s.operators(operatorToken)
			defer stop()
			const at = "/v1/sources/default/"
			for path, args := range map[string][]string{
				"rows": {"list"}, "rows?state=blocked,rejected&limit=2": {"list", "--state", "blocked,rejected", "--limit", "2"},
				"rows?key=delivered&target=shop": {"list", "--key", "delivered", "--target", "shop"}, "rows?unknown=true": {"list", "--unknown"},
				fmt.Sprintf("rows/%d?request=true", unknown): {"show", fmt.Sprint(unknown), "--request"}, "verify": {"verify"},
			} {
				status, text := c.do("GET", at+path, "")
				if out, _ := s.operate(0, append(args, "--json")...); status != 200 || !sameJSON(t, text, out) {
					t.Errorf("GET %s = %d %s, the command prints %s", path, status, text, out)
				}
			}
			var st report
			if status, text := c.do("GET", at+"status", ""); status != 200 || json.Unmarshal([]byte(text), &st) != nil || st.Rows["BLOCKED"] != 2 || len(st.Holds) != 1 {
				t.Errorf("status = %d %s", status, text)
			}
			if status, text := c.do("GET", at+"doctor", ""); status != 200 || !strings.Contains(text, `"indexes"`) {
				t.Errorf("doctor = %d %s", status, text)
			}
			if status, text := c.do("GET", "/v1/sources", ""); status != 200 || !strings.Contains(text, `"running"`) {
				t.Errorf("sources = %d %s", status, text)
			}

			if d := c.act(at+"discard", fmt.Sprintf(`"rows":[%d],"dry_run":true`, rejected)); !d.DryRun || d.Count != 1 || s.row(rejected).State != outbox.Rejected {
				t.Errorf("dry discard = %+v, and the row is %v", d, s.row(rejected).State)
			}
			if status, text := c.do("POST", at+"discard", fmt.Sprintf(`{"operator":"anna","reason":"ticket 7","rows":[%d,%d]}`, rejected, rejected)); status != 400 || !strings.Contains(text, `"field":"rows"`) || s.row(rejected).State != outbox.Rejected {
				t.Errorf("discard of a doubled row = %d %s, and the row is %v", status, text, s.row(rejected).State)
			}
			if d := c.act(at+"discard", fmt.Sprintf(`"rows":[%d]`, rejected)); d.DryRun || d.Count != 1 || s.row(rejected).State != outbox.Discarded {
				t.Errorf("discard = %+v, and the row is %v", d, s.row(rejected).State)
			}
			if d := c.act(at+"requeue", `"all":true,"target":"shop"`); d.Count != 2 || s.row(blocked).State != outbox.Pending || s.row(unknown).State != outbox.Pending {
				t.Errorf("requeue of all = %+v", d)
			}
			c.act(at+"hold", `"target":"shop"`)
			c.act(at+"release", `"target":"shop"`)
			if _, err := s.db.Write().ExecContext(t.Context(), "UPDATE orbit_outbox SET settled_at = settled_at - 172800000000 WHERE seq = ?", delivered); err != nil {
				t.Fatal(err)
			}
			if d := c.act(at+"purge", `"older_than":"1d","dry_run":true`); d.Count != 1 {
				t.Errorf("dry purge = %+v", d)
			}
			if d := c.act(at+"purge", `"older_than":"1d"`); d.Count != 1 {
				t.Errorf("purge = %+v", d)
			}
			var h history
			s.operateJSON(&h, "show", fmt.Sprint(rejected))
			if len(h.Entries) != 1 || h.Entries[0].Operator != "anna" || h.Entries[0].Reason != "ticket 7" || h.Entries[0].Action != "discard" {
				t.Errorf("the audit is %+v", h.Entries)
			}
			acts, err := s.store.Journal(t.Context(), 0, 0, 10)
			if err != nil || len(acts) != 4 || acts[1].Action != "hold" || acts[2].Action != "unhold" || acts[3].Action != "purge" || acts[3].Act.Operator != "anna" {
				t.Errorf("the journal of other acts is %+v, %v", acts, err)
			}
			c.act(at+"release", `"all":true`)
			eventually(t, "both requeued rows are delivered", func() bool {
				return s.delivered([]int64{blocked, unknown}) && s.tasks() == 2
			})
		})
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	first, _ := json.Marshal(x)
	second, _ := json.Marshal(y)
	return bytes.Equal(first, second)
}

// A refusal names field and rule, and changes nothing. Without the token nobody is let in,
// and without one in the configuration nothing is there to be let in to.
func TestTheInterfaceOfOperatorsRefuses(t *testing.T) {
	s := newSite(t, dbtest.SQLite)
	_, blocked, unknown, delivered := s.settled()
	c, stop := s.operators(operatorToken)
	defer stop()
	const at, act = "/v1/sources/default/", `"operator":"anna","reason":"x"`
	tests := []struct {
		call, body string
		status     int
		want       string // in the body
	}{
		{"POST requeue", `{"operator":"anna","rows":[1]}`, 400, `"field":"reason"`},
		{"POST requeue", `{"reason":"x","operator":"an\nna","rows":[1]}`, 400, `"field":"operator","rule":"must be UTF-8 without control characters"`},
		{"POST requeue", `{"reason":"x","operator":"","rows":[1]}`, 400, `"field":"operator","rule":"must have 1 to 128 bytes"`},
		{"POST requeue", `{` + act + `,"rows":[1],"force":true}`, 400, `"field":"force"`},
		{"POST requeue", `{` + act + `,"rows":[1],"rows":[2]}`, 400, `"field":"rows"`},
		{"POST requeue", `{` + act + `}`, 400, `"field":"rows"`},
		{"POST requeue", `{` + act + `,"rows":[1],"target":"shop"}`, 400, `"field":"target"`},
		{"POST requeue", `{` + act + `,"rows":[18446744073709551615]}`, 400, `"field":"rows"`},
		{"POST requeue", `{` + act + `,"rows":[999999]}`, 404, "no such row"},
		{"POST requeue", fmt.Sprintf(`{%s,"rows":[%d,%d]}`, act, blocked, delivered), 409, "only BLOCKED can be requeued"},
		{"POST discard", fmt.Sprintf(`{%s,"rows":[%d]}`, act, unknown), 409, "unknown outcome"},
		{"POST discard", fmt.Sprintf(`{%s,"rows":[%d],"accept_late":true}`, act, blocked), 400, `"field":"accept_late"`},
		{"POST hold", `{` + act + `}`, 400, `"field":"target"`},
		{"POST hold", `{` + act + `,"target":"a b"}`, 400, `"field":"target"`},
		{"POST hold", `{` + act + `,"target":"shop","queue_id":"x"}`, 400, `"field":"queue_id"`},
		{"POST release", `{` + act + `,"target":"shop"}`, 404, "no such hold"},
		{"POST purge", `{` + act + `,"older_than":"soon"}`, 400, `"field":"older_than"`},
		{"POST purge", "no JSON", 400, `"field":"body"`},
		{"POST purge", `{"reason":"` + strings.Repeat("x", maxBody) + `"}`, 413, "65536"},
		{"GET rows?limit=0", "", 400, `"field":"limit"`},
		{"GET rows?limit=x", "", 400, `"field":"limit"`},
		{"GET rows?state=lost", "", 400, `"field":"state"`},
		{"GET rows?key=k", "", 400, `"field":"target"`},
		{"GET rows?color=red", "", 400, `"field":"color","rule":"is unknown"`},
		{"GET rows?after=1&after=2", "", 400, `"field":"after"`},
		{"GET rows/first", "", 400, `"field":"row"`},
		{"GET rows/999999", "", 404, "no such row"},
	}
	for _, test := range tests {
		method, path, _ := strings.Cut(test.call, " ")
		if status, text := c.do(method, at+path, test.body); status != test.status || !strings.Contains(text, test.want) {
			t.Errorf("%s %.80s = %d %s, want %d with %q", test.call, test.body, status, text, test.status, test.want)
		}
	}
	if status, text := c.do("GET", "/v1/sources/other/rows", ""); status != 404 || !strings.Contains(text, "no such source") {
		t.Errorf("rows of a source that is not there = %d %s", status, text)
	}
	for _, token := range []string{"", "a-token-of-operator", operatorToken + "s"} {
		for _, call := range []string{"GET /v1/sources", "GET " + at + "rows", "POST " + at + "requeue"} {
			method, path, _ := strings.Cut(call, " ")
			if status, text := (caller{t, c.url, token}).do(method, path, ""); status != 401 {
				t.Errorf("%s with the token %q = %d %s, want 401", call, token, status, text)
			}
		}
	}
	for seq, want := range map[int64]outbox.State{blocked: outbox.Blocked, unknown: outbox.Blocked, delivered: outbox.Delivered} {
		if got := s.row(seq).State; got != want {
			t.Errorf("row %d is %v after what was refused, want %v", seq, got, want)
		}
	}
	other := newSite(t, dbtest.SQLite)
	off, stopOther := other.operators("")
	defer stopOther()
	off.token = operatorToken
	if status, text := off.do("GET", "/v1/sources", ""); status != 404 || !strings.Contains(text, "is off") {
		t.Errorf("without a token in the configuration: %d %s", status, text)
	}
}

// An act that the database may have carried out is never called a failure, and its words
// stay in the log.
func TestAFailureOfTheDatabaseTellsNothingOfIt(t *testing.T) {
	s := newSite(t, dbtest.SQLite)
	c, stop := s.operators(operatorToken)
	defer stop()
	for _, table := range []string{"orbit_outbox_journal", "orbit_outbox_answer"} {
		if _, err := s.db.Write().ExecContext(t.Context(), "ALTER TABLE "+table+" RENAME TO hidden_"+table); err != nil {
			t.Fatal(err)
		}
	}
	status, text := c.do("POST", "/v1/sources/default/hold", `{"operator":"anna","reason":"x","target":"shop"}`)
	if status != 500 || !strings.Contains(text, "may or may not have been carried out") || strings.Contains(text, "journal") {
		t.Errorf("hold = %d %s", status, text)
	}
}

// Other machines may reach the address only if it is said so, and then all but health wants
// the token.
func TestAnAddressForOtherMachinesWantsTheTokenForAll(t *testing.T) {
	s := newSite(t, dbtest.SQLite)
	p := newPlan(t)
	p.add("shop", s, s.db.Address, "")
	address := freeport.Address(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(operatorToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The test itself stays on this machine: what is asked is who is let in.
	p.listen = fmt.Sprintf("listen: {address: %q, allow_remote: true, token_file: %q}\n", address, token)
	p.write()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log output
	ended := make(chan int, 1)
	go func() { ended <- callTo(ctx, &log, "run", "--config", p.path) }()
	url := "http://" + address
	eventually(t, "the relay is well", func() bool {
		resp, err := http.Get(url + "/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	for _, call := range []string{"GET /status", "POST /nudge", "POST /nudge/shop", "GET /v1/sources"} {
		method, path, _ := strings.Cut(call, " ")
		if status, _ := (caller{t, url, ""}).do(method, path, ""); status != 401 {
			t.Errorf("%s without the token = %d, want 401", call, status)
		}
	}
	if status, text := (caller{t, url, operatorToken}).do("GET", "/status", ""); status != 200 || !strings.Contains(text, `"source": "shop"`) {
		t.Errorf("status with the token = %d %s", status, text)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d: %s", code, &log)
	}
}

// A nudge over a Unix socket is as good as one over the port. A socket that a killed process
// has left is replaced, one that is served is not.
func TestANudgeOverAUnixSocketSendsAtOnce(t *testing.T) {
	s := newSite(t, dbtest.SQLite)
	socket := filepath.Join(t.TempDir(), "relay.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		code, _, _ := call(ctx, s.env(), "run", "--target", "shop", "--poll", "1h", "--nudge-socket", socket)
		ended <- code
	}()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	eventually(t, "the relay leads", func() bool { return len(s.shards()) == 1 })
	time.Sleep(100 * time.Millisecond) // the polls grow to an hour
	seq := s.enqueue("a")[0]
	eventually(t, "the nudged row is delivered", func() bool {
		resp, err := client.Post("http://relay/nudge", "", nil)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return s.row(seq).State == outbox.Delivered
	})
	if code, _, text := call(t.Context(), s.env(), "run", "--nudge-socket", socket); code != 2 || !strings.Contains(text, "in use") {
		t.Errorf("a second relay on the socket = %d %q", code, text)
	}
	client.CloseIdleConnections()
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left behind")
	}
}

func (s *site) shards() []outbox.LeaderOfShard {
	s.t.Helper()
	st, err := s.store.Status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return st.Leaders
}

// Failures to authenticate are held back, one address at a time; who has the token never is.
func TestGuessersOfTheOperatorsTokenAreHeldBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSupervisor(slog.New(slog.DiscardHandler), true, nil)
		s.token.set(operatorToken)
		handler := s.handler(true)
		ask := func(address, token string) (status int, retryAfter string, took time.Duration) {
			r := httptest.NewRequest(http.MethodGet, "/v1/sources", nil)
			r.RemoteAddr = address
			r.Header.Set("Authorization", "Bearer "+token)
			w, began := httptest.NewRecorder(), time.Now()
			handler.ServeHTTP(w, r)
			return w.Code, w.Header().Get("Retry-After"), time.Since(began)
		}
		for i := range 25 {
			status, retryAfter, took := ask(fmt.Sprintf("192.0.2.1:%d", 1000+i), "guess")
			if held := i >= 20; status != 401 || held != (retryAfter == "1") || held != (took == time.Second) {
				t.Errorf("guess %d: %d, Retry-After %q after %v", i, status, retryAfter, took)
			}
		}
		for address, token := range map[string]string{"192.0.2.1:1": operatorToken, "192.0.2.2:1": "guess"} {
			if status, _, took := ask(address, token); (status == 200) != (token == operatorToken) || took != 0 {
				t.Errorf("%s with %s: %d after %v, want it not to be held back", address, token, status, took)
			}
		}
	})
}

// A query that nobody reads is refused by the name of its parameter.
func TestUnknownParametersAreRefused(t *testing.T) {
	s := newSupervisor(slog.New(slog.DiscardHandler), true, nil)
	s.token.set(operatorToken)
	for _, call := range []string{"GET /v1/sources?x=1", "GET /status?x=1", "POST /nudge?x=1"} {
		method, path, _ := strings.Cut(call, " ")
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Authorization", "Bearer "+operatorToken)
		w := httptest.NewRecorder()
		s.handler(false).ServeHTTP(w, r)
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 400 || p.Field != "x" || p.Rule != "is unknown" {
			t.Errorf("%s = %d %s, want 400 that names x", call, w.Code, w.Body)
		}
	}
}

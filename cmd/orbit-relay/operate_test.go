package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/outbox"
)

// settled makes rows that are rejected, blocked, blocked with the mark of an unknown
// send, and delivered, and releases the shard.
func (s *site) settled() (rejected, blocked, unknown, delivered int64) {
	s.t.Helper()
	q := s.enqueue("rejected", "blocked", "unknown", "delivered")
	lease, err := s.store.Lead(s.t.Context(), 0, "first", time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	settle := func(n int, err error) {
		s.t.Helper()
		if n != 1 || err != nil {
			s.t.Fatalf("settled %d rows, %v", n, err)
		}
	}
	ctx := s.t.Context()
	settle(s.store.Reject(ctx, lease, q[:1], outbox.Answer{Outcome: outbox.OutcomeRefused, Status: 400, Code: "INVALID_ARGUMENT", Message: "payload: \x1b[31mbad"}))
	settle(s.store.Block(ctx, lease, q[1:2], outbox.Answer{Outcome: outbox.OutcomeNeedsPerson, Status: 403, Code: "PERMISSION_DENIED"}))
	settle(s.store.Postpone(ctx, lease, q[2:3], 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true, Message: "timeout"}))
	settle(s.store.Block(ctx, lease, q[2:3], outbox.Answer{Outcome: outbox.OutcomeNeedsPerson, Status: 404}))
	settle(s.store.Deliver(ctx, lease, []outbox.Delivery{{Seq: q[3], TaskID: strings.Repeat("1", 32), RequestID: strings.Repeat("2", 32), Status: 201, AcceptedAt: time.Now()}}))
	if err := s.store.Release(ctx, lease); err != nil {
		s.t.Fatal(err)
	}
	return q[0], q[1], q[2], q[3]
}

// operate runs a command as anna and returns what it printed.
func (s *site) operate(want int, args ...string) (out, text string) {
	s.t.Helper()
	env := map[string]string{envDatabase: s.db.Address, "USER": "anna"}
	code, out, text := call(s.t.Context(), env, args...)
	if code != want {
		s.t.Fatalf("%v = %d %q %q, want %d", args, code, out, text, want)
	}
	if want != 0 && (strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "orbit-relay: ")) {
		s.t.Errorf("%v: error is %q, want one line", args, text)
	}
	if strings.ContainsRune(out+text, '\x1b') {
		s.t.Errorf("%v prints what a terminal acts on: %q", args, out+text)
	}
	return out, text
}

func (s *site) operateJSON(into any, args ...string) {
	s.t.Helper()
	out, _ := s.operate(0, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// An operator sees, requeues and discards what needs a person; each change is audited,
// and a dry run makes none (OUT-012, OUT-013, OUT-014, CLI-017).
func TestOperatorsMendWhatNeedsAPerson(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			rejected, blocked, unknown, delivered := s.settled()
			n := func(seq int64) string { return fmt.Sprint(seq) }

			var list listed
			s.operateJSON(&list, "list")
			if len(list.Rows) != 3 || list.Rows[0].State != "REJECTED" || !list.Rows[2].Unknown || list.Rows[2].Sends != 2 {
				t.Errorf("list = %+v", list)
			}
			s.operateJSON(&list, "list", "--state", "blocked", "--limit", "1")
			if len(list.Rows) != 1 || list.Rows[0].Row != blocked || list.Next != blocked {
				t.Errorf("list of one blocked row = %+v", list)
			}
			if out, _ := s.operate(0, "list", "--target", "shop", "--key", "delivered"); !strings.Contains(out, "DELIVERED") {
				t.Errorf("list by key = %q", out)
			}
			var h history
			s.operateJSON(&h, "show", n(unknown))
			if len(h.Attempts) != 2 || h.Attempts[0].Outcome != "unknown" || h.Attempts[1].Status != 404 || h.Request != "" {
				t.Errorf("show = %+v", h)
			}
			if out, _ := s.operate(0, "show", n(unknown), "--request"); !strings.Contains(out, "9007199254740993") || !strings.Contains(out, "timeout") {
				t.Errorf("show --request = %q", out)
			}

			reason := []string{"--reason", "ticket 7"}
			act := func(args ...string) []string { return append(args, reason...) }
			_, text := s.operate(2, act("discard", n(unknown))...)
			if !strings.Contains(text, "unknown outcome") {
				t.Errorf("discard of an unknown row: %q", text)
			}
			s.operate(2, act("discard", n(rejected), n(unknown))...)  // all or none
			s.operate(2, act("discard", n(rejected), n(rejected))...) // doubled
			s.operate(2, act("requeue", n(blocked), n(blocked))...)
			s.operate(0, act("discard", n(rejected), "--dry-run")...)
			s.operate(2, act("requeue", n(delivered))...)
			s.operate(2, act("requeue", "999999")...)
			for seq, want := range map[int64]outbox.State{rejected: outbox.Rejected, blocked: outbox.Blocked, unknown: outbox.Blocked, delivered: outbox.Delivered} {
				if got := s.row(seq).State; got != want {
					t.Errorf("row %d is %v after what was refused or tried, want %v", seq, got, want)
				}
			}
			s.operate(0, act("discard", n(rejected))...)
			var d did
			s.operateJSON(&d, act("requeue", "--all", "--target", "shop")...)
			if d.Count != 2 {
				t.Errorf("requeue of all = %+v, want 2 rows", d)
			}
			h = history{}
			s.operateJSON(&h, "show", n(rejected))
			if h.State != "DISCARDED" || len(h.Entries) != 1 || h.Entries[0].Operator != "anna" || h.Entries[0].Reason != "ticket 7" {
				t.Errorf("audit of the discard is %+v", h.Entries)
			}
			if out, _ := s.operate(0, "verify"); !strings.Contains(out, "4 rows, 0 faults") {
				t.Errorf("verify = %q", out)
			}
			if code, out, text := call(t.Context(), s.env(), "once", "--target", "shop"); code != 0 || s.tasks() != 2 {
				t.Errorf("once after the requeue = %d %q %q and %d tasks, want 2", code, out, text, s.tasks())
			}
		})
	}
}

func TestHoldsPurgesAndExaminations(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			_, _, _, delivered := s.settled()
			reason := []string{"--reason", "ticket 7", "--operator", "bob"}
			act := func(args ...string) []string { return append(args, reason...) }

			s.operate(2, act("release", "--target", "shop")...)
			s.operate(0, act("hold", "--target", "shop", "--dry-run")...)
			var st report
			s.operateJSON(&st, "status")
			if len(st.Holds) != 0 || !strings.HasPrefix(st.Verdict, "poison: 2 rows") {
				t.Errorf("status = %+v", st)
			}
			s.operate(0, act("hold", "--target", "shop", "--queue", s.credentials.QueueID)...)
			if out, _ := s.operate(0, "status"); !strings.HasPrefix(out, "poison: 2 rows are BLOCKED") || !strings.Contains(out, "by bob: ticket 7") {
				t.Errorf("status = %q", out)
			}
			s.operate(2, act("release", "--target", "shop")...) // another scope
			s.operate(0, act("release", "--target", "shop", "--queue", s.credentials.QueueID)...)
			s.operate(0, act("hold", "--all")...)
			s.operate(0, act("release", "--all")...)

			var d did
			s.operateJSON(&d, act("purge", "--older-than", "1d")...)
			if d.Count != 0 {
				t.Errorf("purge of young rows = %+v", d)
			}
			if _, err := s.db.Write().ExecContext(t.Context(), "UPDATE orbit_outbox SET settled_at = settled_at - 172800000000 WHERE seq = ?", delivered); err != nil {
				t.Fatal(err)
			}
			s.operateJSON(&d, act("purge", "--older-than", "1d", "--dry-run")...)
			if d.Count != 1 || s.row(delivered).State != outbox.Delivered {
				t.Errorf("dry purge = %+v", d)
			}
			s.operateJSON(&d, act("purge", "--older-than", "1d")...)
			if d.Count != 1 || d.DryRun {
				t.Errorf("purge = %+v", d)
			}

			code, out, text := call(t.Context(), s.env(), "doctor")
			if code != 0 && !strings.Contains(out, "fail  durability") || !strings.Contains(out, "indexes") {
				t.Errorf("doctor = %d %q %q", code, out, text)
			}
			if code, out, text := call(t.Context(), s.env(), "check", "--target", "shop"); code != 0 || !strings.Contains(out, "the server is Orbit") {
				t.Errorf("check = %d %q %q", code, out, text)
			}
			if _, err := s.db.Write().ExecContext(t.Context(), "UPDATE orbit_outbox SET lane = lane + 1 WHERE state = 3"); err != nil {
				t.Fatal(err)
			}
			if out, _ := s.operate(1, "verify"); !strings.Contains(out, "lane is not that of target and queue") {
				t.Errorf("verify of a damaged row = %q", out)
			}
		})
	}
}

// Every mistake at once, and nothing is asked of the server before.
func TestCheckTellsEveryMistakeAtOnce(t *testing.T) {
	code, out, text := call(t.Context(), map[string]string{envURL: "http://orbit.example", envToken: "sesame"},
		"check", "--senders", "99", "--batch-rows", "0", "--batch-rows", "101", "--nudge-address", "0.0.0.0:0")
	if code != cli.ExitUsage || out != "" || strings.Contains(text, "sesame") || strings.Count(text, "\n") != 1 {
		t.Errorf("check = %d %q %q", code, out, text)
	}
	for _, want := range []string{envDSN, "https", "--senders", "--batch-rows", "loopback"} {
		if !strings.Contains(text, want) {
			t.Errorf("check lacks %q: %q", want, text)
		}
	}
	s := newSite(t, dbtest.SQLite)
	env := s.env()
	if code, out, text := call(t.Context(), env, "check"); code != 0 {
		t.Errorf("check = %d %q %q", code, out, text)
	}
	env[envURL] = "http://127.0.0.1:1"
	if code, out, text := call(t.Context(), env, "check"); code != cli.ExitFailure || !strings.Contains(out, "fail") || !strings.Contains(text, "127.0.0.1:1") {
		t.Errorf("check of a server that is not there = %d %q %q", code, out, text)
	}
}

// CLI-017: missing rights are one line and exit 2, and change nothing.
func TestMissingRightsAreOneLineAndExitCode2(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			_, blocked, _, _ := s.settled()
			reader := s.reader()
			code, out, text := call(t.Context(), map[string]string{envDatabase: reader, "USER": "anna"}, "requeue", fmt.Sprint(blocked), "--reason", "x")
			if code != cli.ExitUsage || out != "" || strings.Count(text, "\n") != 1 || !strings.Contains(text, "denied") || strings.Contains(text, "sesame") {
				t.Errorf("requeue without the right = %d %q %q", code, out, text)
			}
			if r := s.row(blocked); r.State != outbox.Blocked {
				t.Errorf("row is %v", r.State)
			}
			code, out, _ = call(t.Context(), map[string]string{envDatabase: reader}, "doctor")
			if code != cli.ExitFailure || !strings.Contains(out, "denied") {
				t.Errorf("doctor without rights = %d %q", code, out)
			}
			if code, out, text := call(t.Context(), map[string]string{envDatabase: reader}, "status"); code != 0 {
				t.Errorf("status of a reader = %d %q %q", code, out, text)
			}
		})
	}
}

// reader returns the address of the database for a user who may read it only.
func (s *site) reader() string {
	s.t.Helper()
	address, _ := s.user([]string{"GRANT SELECT ON shop.* TO relay@'%'"})
	return address
}

// user makes a user with the given rights, which are written for the user relay and the
// database shop, and returns the address for it and a function that runs more such
// statements.
func (s *site) user(grants []string) (address string, run func(statement string)) {
	s.t.Helper()
	_, database, _ := strings.Cut(s.db.Address, ")/")
	database, _, _ = strings.Cut(database, "?")
	name := "relay" + database[max(0, len(database)-20):]
	exec := func(statement string) {
		s.t.Helper()
		_, err := s.db.Write().ExecContext(context.WithoutCancel(s.t.Context()), statement)
		if err != nil && isDenied(err) {
			dbtest.Missing(s.t, "the user of the test database may not make users and grant rights: %v", err)
		}
		if err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
	hosts := []string{"%", "localhost"} // an anonymous user of localhost would go first
	run = func(statement string) {
		s.t.Helper()
		for _, host := range hosts {
			exec(strings.NewReplacer("relay@'%'", "'"+name+"'@'"+host+"'", "shop.", "`"+database+"`.").Replace(statement))
		}
	}
	run("CREATE USER relay@'%' IDENTIFIED BY 'sesame'")
	s.t.Cleanup(func() { run("DROP USER relay@'%'") })
	for _, grant := range grants {
		run(grant)
	}
	return "mysql:" + name + ":sesame" + s.db.Address[strings.LastIndex(s.db.Address, "@"):], run
}

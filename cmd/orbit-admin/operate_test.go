package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// CLI-008, REF-AUTH-001: credentials are listed without a trace of their secrets, rotated
// with and without an overlap, and revoked.
func TestCredentialsAreListedAndRotated(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		dir := t.TempDir()
		w.must("credential create --application a --namespace n --name relay --permission tasks:submit --queue q --expires-in 720h --output " + filepath.Join(dir, "relay"))
		var first page[server.CredentialView]
		w.read(&first, "credential list --application a --namespace n")
		if len(first.Items) != 2 || first.Next != "" {
			t.Fatalf("%d credentials, next %q; want 2 and no more", len(first.Items), first.Next)
		}
		relay := first.Items[1]
		if relay.Name != "relay" || relay.State != "active" || relay.AllQueues || !slices.Equal(relay.Queues, []string{"q"}) || relay.ExpiresAt == nil {
			t.Errorf("credential = %+v", relay)
		}

		w.must("credential", "rotate", relay.ID, "--overlap", "1h", "--reason", "yearly", "--output", filepath.Join(dir, "relay2"))
		var after page[server.CredentialView]
		w.read(&after, "credential list --application a --after "+first.Items[0].ID)
		if len(after.Items) != 2 || after.Items[0].ID != relay.ID {
			t.Fatalf("after the rotation: %+v", after.Items)
		}
		old, young := after.Items[0], after.Items[1]
		if left := old.ExpiresAt.Sub(young.CreatedAt); old.State != "active" || left != time.Hour {
			t.Errorf("the old credential is %s and goes on for %v, want active and 1h", old.State, left)
		}
		life := young.ExpiresAt.Sub(young.CreatedAt)
		if young.Name != "relay" || !slices.Equal(young.Permissions, old.Permissions) || !slices.Equal(young.Queues, old.Queues) || life != 720*time.Hour {
			t.Errorf("the new credential = %+v, lives for %v; want the old one's name, permissions, queues and life", young, life)
		}

		w.must("credential", "rotate", young.ID, "--overlap", "0", "--output", filepath.Join(dir, "relay3"))
		w.must("credential revoke " + old.ID)
		w.read(&after, "credential list --limit 3")
		if after.Items[1].State != "revoked" || after.Items[2].State != "revoked" || after.Next != young.ID {
			t.Errorf("after the end of both: %+v", after)
		}
		if n := w.count("audit WHERE action = ? AND CAST(note AS CHAR) LIKE ? AND CAST(actor AS CHAR) LIKE ?", []byte("credential.rotate"), "replaced by %; yearly", "orbit-admin %"); n != 1 {
			t.Errorf("%d audit rows of the first rotation with its reason, want 1", n)
		}
		table := w.must("credential list")
		if !strings.HasPrefix(table, "ID ") || !strings.Contains(table, relay.ID) {
			t.Errorf("table = %q", table)
		}
		for _, file := range []string{"relay", "relay2", "relay3"} {
			if token := w.load(filepath.Join(dir, file)).Token; strings.Contains(w.said.String(), token[len(token)-64:]) {
				t.Errorf("the token of %s was printed", file)
			}
		}
	}, migrations.Server)
}

// What has ended is not given new life, and a refused rotation changes nothing.
func TestRotateRefusesWhatHasEnded(t *testing.T) {
	w := newWorld(t, dbtest.Open(t, dbtest.SQLite, migrations.Server))
	id, err := server.CredentialID(w.creds.Token)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "new")
	rotate := []string{"credential", "rotate", id.String(), "--output", file}
	w.refuse(2, "overlap", append(rotate, "--overlap", "2161h")...)
	w.refuse(2, "overlap", append(rotate, "--overlap", "-1s")...)
	w.refuse(2, "--output", rotate[:3]...)
	w.refuse(2, "exist", "credential", "rotate", strings.Repeat("0", 32), "--output", file)
	w.must("credential revoke " + id.String())
	w.refuse(1, "revoked", rotate...)
	if _, err := w.db.Write().ExecContext(t.Context(), "UPDATE credential SET revoked_at = NULL, expires_at = 1"); err != nil {
		t.Fatal(err)
	}
	w.refuse(1, "expired", rotate...)
	if n := w.count("credential"); n != 1 {
		t.Errorf("%d credentials, want 1", n)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a refused rotation left a file")
	}
}

// AMB-061, REF-QUOTA-001: queues are made, paused, resumed and limited, each time with an
// audit row that has the reason; what changes nothing leaves none.
func TestQueuesArePausedAndLimited(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		place := " --application a --namespace n --queue q"
		var q orbit.Queue
		w.read(&q, "queue pause --reason flood"+place)
		if !q.Paused || q.Revision != 2 {
			t.Errorf("paused queue = %+v", q)
		}
		w.read(&q, "queue pause"+place)
		if q.Revision != 2 || w.count("audit WHERE action = ?", []byte("queue.update")) != 1 {
			t.Errorf("a second pause changed the queue: %+v", q)
		}
		w.read(&q, "queue resume"+place)
		w.read(&q, "queue limit --max-backlog 5 --max-concurrency 2"+place)
		if q.Paused || q.Revision != 4 || q.MaxBacklog != 5 || q.MaxConcurrency != 2 || q.Unfinished == nil {
			t.Errorf("limited queue = %+v", q)
		}
		w.read(&q, "queue limit --max-backlog 0"+place)
		if q.MaxBacklog != 0 || q.MaxConcurrency != 2 || q.Unfinished != nil {
			t.Errorf("queue with one limit = %+v", q)
		}
		if n := w.count("audit WHERE note = ?", []byte("paused false -> true; flood")); n != 1 {
			t.Errorf("%d audit rows of the pause, want 1", n)
		}
		w.must("queue create --reason growth --application a --namespace n --queue b")
		var list page[orbit.Queue]
		w.read(&list, "queue list --application a --namespace n --limit 1")
		if len(list.Items) != 1 || list.Items[0].Name != "b" || list.Next != "b" {
			t.Errorf("first page = %+v", list)
		}
		w.read(&list, "queue list --application a --namespace n --after b")
		if len(list.Items) != 1 || list.Items[0].Name != "q" || list.Next != "" {
			t.Errorf("second page = %+v", list)
		}
		if n := w.count("audit WHERE action = ? AND note = ?", []byte("queue.create"), []byte("growth")); n != 1 {
			t.Errorf("%d audit rows of the new queue, want 1", n)
		}
	}, migrations.Server)
}

// AMB-061: a disabled application gets 401 at once, a paused one submits and is not served.
func TestApplicationsAreDisabledAndPaused(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		client := w.serve()
		var a orbit.Application
		w.read(&a, "application disable --application a --reason unpaid")
		if _, err := client.Capabilities(t.Context()); a.State != "DISABLED" || err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("disabled: %s, %v; want DISABLED and 401", a.State, err)
		}
		w.read(&a, "application enable --application a")
		if _, err := client.Capabilities(t.Context()); a.State != "ACTIVE" || err != nil {
			t.Errorf("enabled: %s, %v", a.State, err)
		}
		w.read(&a, "application pause --application a")
		w.submit(client, "k", "work", "")
		w.read(&a, "application limit --application a --max-unfinished 3 --max-active-attempts 4")
		if !a.DispatchStopped || a.MaxUnfinished != 3 || a.MaxActiveAttempts != 4 || a.Unfinished == nil || *a.Unfinished != 1 {
			t.Errorf("paused and limited: %+v", a)
		}
		w.read(&a, "application resume --application a")
		var list page[orbit.Application]
		w.read(&list, "application list")
		if a.DispatchStopped || len(list.Items) != 1 || list.Items[0].Revision != a.Revision || a.Revision != 6 {
			t.Errorf("list = %+v, want one application at revision 6", list.Items)
		}
		if n := w.count("audit WHERE action = ? AND note = ?", []byte("application.update"), []byte("disabled false -> true; unpaid")); n != 1 {
			t.Errorf("%d audit rows of the end, want 1", n)
		}
		table := w.must("application show --application a")
		if !strings.Contains(table, "max unfinished") || !strings.Contains(table, a.ID) {
			t.Errorf("table = %q", table)
		}
	}, migrations.Server)
}

// CAN-004, REF-REV-002, AMB-072: a person cancels, decides and repeats tasks, by the rules
// of the interface, and the history tells who and why; payloads are shown on demand only.
func TestTasksAreSettledByHand(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		client := w.serve()
		waits := w.submit(client, "1", "nobody", "")
		doubtful := w.submit(client, "2", "unsure", "")
		w.work()

		var done settled
		w.read(&done, "tasks", "cancel", waits.ID, "--reason", "not wanted")
		if done.Before.State != orbit.StateWaiting || done.After.State != orbit.StateCancelled {
			t.Errorf("cancel = %s -> %s", done.Before.State, done.After.State)
		}
		w.refuse(1, "CANCELLED", "tasks", "cancel", waits.ID, "--reason", "again")

		await(w, doubtful.ID, orbit.StateNeedsReview)
		w.read(&done, "tasks", "review", doubtful.ID, "--decision", "SUCCEEDED", "--note", "found in the ledger", "--result", `{"ok":true}`, "--evidence", `{"row":7}`)
		if done.After.State != orbit.StateSucceeded || done.After.EffectUncertain || done.After.Result != nil {
			t.Errorf("review = %+v", done.After)
		}

		w.refuse(1, "revision", "tasks", "retry", waits.ID, "--reason", "x", "--revision", "99")
		w.read(&done, "tasks", "retry", waits.ID, "--reason", "wanted after all")
		var shown shownTask
		w.read(&shown, "tasks show "+done.NewTaskID)
		if shown.Task.RetryOf != waits.ID || shown.Task.State != orbit.StateWaiting || len(shown.Events) != 1 {
			t.Fatalf("retry = %+v", shown)
		}
		if e := shown.Events[0]; e.Note != "wanted after all" || !strings.HasPrefix(e.Actor, "orbit-admin") || e.Credential != "" {
			t.Errorf("retry = %+v", shown)
		}

		w.read(&shown, "tasks show "+doubtful.ID)
		last := shown.Events[len(shown.Events)-1]
		if last.Kind != "review_decided" || !strings.HasPrefix(last.Actor, "orbit-admin") || last.Note != "found in the ledger" || len(shown.Attempts) != 1 {
			t.Errorf("history = %+v", shown)
		}
		if table := w.must("tasks show " + waits.ID); !strings.Contains(table, "not wanted") || !strings.Contains(table, "order/1") {
			t.Errorf("table = %s", table)
		}
		var evidence page[orbit.Evidence]
		w.read(&evidence, "evidence "+doubtful.ID)
		if len(evidence.Items) == 0 || evidence.Items[0].Kind != "review" {
			t.Errorf("evidence = %+v", evidence.Items)
		}
		var attempts page[orbit.Attempt]
		w.read(&attempts, "attempts "+doubtful.ID)
		if len(attempts.Items) != 1 || attempts.Items[0].Outcome != orbit.OutcomeUnknown {
			t.Errorf("attempts = %+v", attempts.Items)
		}
		w.must("attempts " + doubtful.ID)
		w.must("evidence " + doubtful.ID)
		if strings.Contains(w.said.String(), "canary-7") {
			t.Error("a payload was printed without --payload")
		}
		if out := w.must("tasks", "show", waits.ID, "--payload"); !strings.Contains(out, "canary-7") {
			t.Error("--payload does not show the payload")
		}
		if out := w.must("evidence", doubtful.ID, "--payload"); !strings.Contains(out, "found in the ledger") {
			t.Errorf("--payload does not show the evidence: %s", out)
		}
	}, migrations.Server)
}

// await waits for what a worker does.
func await(w *world, id, state string) {
	w.Helper()
	for range 6000 {
		var shown shownTask
		if w.read(&shown, "tasks show "+id); shown.Task.State == state {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.Fatalf("task %s does not get to %s", id, state)
}

// LIST-009: pages of tasks in one state.
func TestTasksAreListedInPages(t *testing.T) {
	w := newWorld(t, dbtest.Open(t, dbtest.SQLite, migrations.Server))
	client := w.serve()
	var want []string
	for _, key := range []string{"1", "2", "3", "4", "5"} {
		want = append(want, w.submit(client, key, "work", "").ID)
	}
	slices.Reverse(want)
	w.must("tasks", "cancel", want[1], "--reason", "x")
	want = slices.Delete(want, 1, 2)
	var got []string
	for after := ""; ; {
		args := []string{"tasks", "list", "--application", "a", "--namespace", "n", "--queue", "q", "--state", "WAITING", "--limit", "3"}
		if after != "" {
			args = append(args, "--after", after)
		}
		var p page[orbit.Task]
		w.read(&p, args...)
		for _, task := range p.Items {
			got = append(got, task.ID)
		}
		if after = p.Next; after == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	var p page[orbit.Task]
	w.read(&p, "tasks list --application a --namespace n --queue q --business-key order/3")
	if len(p.Items) != 1 || p.Items[0].BusinessKey != "order/3" {
		t.Errorf("by business key: %+v", p.Items)
	}
}

// KEY-016, KEY-018: keys are shown with their holders and last tokens; there is no command
// that frees or resets one.
func TestKeysAreShownWithTheirHolders(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		client := w.serve()
		held := w.submit(client, "1", "hold", "account/1")
		w.submit(client, "2", "nobody", "account/2")
		w.submit(client, "3", "nobody", "other/3")
		w.work()
		await(w, held.ID, orbit.StateRunning)
		var keys page[server.KeyView]
		w.read(&keys, "keys list --application a --namespace n --held")
		if len(keys.Items) != 1 {
			t.Fatalf("held keys = %+v", keys.Items)
		}
		k := keys.Items[0]
		var attempts page[orbit.Attempt]
		w.read(&attempts, "attempts "+held.ID)
		a := attempts.Items[0]
		if k.Key != "account/1" || k.TaskID != held.ID || k.AttemptID != a.ID || k.LastToken != a.ConcurrencyToken || !k.Since.Equal(a.ClaimedAt) {
			t.Errorf("held key = %+v, want that of %+v", k, a)
		}
		var names []string
		for after := ""; ; after = keys.Next {
			args := []string{"keys", "list", "--application", "a", "--namespace", "n", "--prefix", "account/", "--limit", "1"}
			if after != "" {
				args = append(args, "--after", after)
			}
			keys = page[server.KeyView]{}
			w.read(&keys, args...)
			for _, k := range keys.Items {
				names = append(names, k.Key)
			}
			if keys.Next == "" {
				break
			}
		}
		if slices.Sort(names); !slices.Equal(names, []string{"account/1", "account/2"}) {
			t.Errorf("keys by prefix = %v", names)
		}
		for _, c := range newKeys(w.environment()).Commands() {
			if c.Name() != "list" {
				t.Errorf("there is a command keys %s", c.Name())
			}
		}
	}, migrations.Server)
}

// CLI-017: bad input is one clear line and exit code 2; what the state of things refuses is
// exit code 1.
func TestBadInputOfOperators(t *testing.T) {
	w := newWorld(t, dbtest.Open(t, dbtest.SQLite, migrations.Server))
	client := w.serve()
	id := w.submit(client, "1", "work", "").ID
	place := " --application a --namespace n --queue q"
	cases := []struct{ args, says string }{
		{"credential list --application x", `"x"`},
		{"credential list --namespace n", "application"},
		{"credential list --application a --namespace x", `"x"`},
		{"credential list --limit 0", "--limit"},
		{"credential list --after x", "--after"},
		{"credential rotate", "one credential"},
		{"credential rotate x --output /tmp/x", "credential id"},
		{"queue", "create, limit, list, pause, resume or show"},
		{"queue show --application a --namespace n", "queue: is required"},
		{"queue show --application a --namespace n --queue x", `queue "x" does not exist`},
		{"queue pause --application a --namespace x --queue q", `"x"`},
		{"queue limit" + place, "--max-backlog"},
		{"queue limit --max-backlog -1" + place, "max-backlog: must be between 0 and 1000000000"},
		{"queue limit --max-concurrency 1000000001" + place, "max-concurrency: must be between"},
		{"queue list --limit 1001 --application a --namespace n", "--limit 1001"},
		{"queue pause x" + place, `"x"`},
		{"application show", "application: is required"},
		{"application pause --application x", `"x" does not exist`},
		{"application limit --application a", "--max-unfinished"},
		{"application limit --application a --max-unfinished -1", "max-unfinished: must be between"},
		{"tasks list --application a --namespace n --queue x", `"x"`},
		{"tasks list --state RUNING" + place, "WAITING"},
		{"tasks list --after 1" + place, "--after"},
		{"tasks list --after " + strings.Repeat("f", 32) + place, "does not exist"},
		{"tasks show " + strings.Repeat("0", 32), "does not exist"},
		{"tasks show X", "task id"},
		{"tasks show", "one task"},
		{"tasks cancel " + id, "reason"},
		{"tasks cancel " + strings.Repeat("0", 32) + " --reason x", "does not exist"},
		{"tasks review " + id + " --note x", "decision"},
		{"tasks review " + id + " --decision SUCCEEDED", "note"},
		{"tasks review " + id + " --decision DONE --note x", "SUCCEEDED, FAILED or CANCELLED"},
		{"tasks review " + id + " --decision FAILED --note x --result {}", "SUCCEEDED only"},
		{"tasks review " + id + " --decision SUCCEEDED --note x --result {", "must be JSON"},
		{"tasks retry " + id, "reason"},
		{"tasks show " + id + " --revision 1", "--revision"},
		{"tasks cancel " + id + " --reason x --revision 0", "must not be 0"},
		{"tasks retry " + id + " --reason x --revision 0", "must not be 0"},
		{"tasks review " + id + " --decision FAILED --note x --revision 0", "must not be 0"},
		{"tasks list --application a --namespace n --queue q --business-key=", "must not be empty"},
		{"attempts " + strings.Repeat("0", 32), "does not exist"},
		{"attempts " + id + " --after 0", "epoch"},
		{"evidence " + strings.Repeat("0", 32), "does not exist"},
		{"evidence " + id + " --after " + strings.Repeat("f", 32), "does not exist"},
		{"keys list --application a", "namespace"},
		{"keys list --application a --namespace n --after xyz", "after"},
	}
	for _, c := range cases {
		w.refuse(2, c.says, c.args)
	}
	w.refuse(2, "reason", "queue", "pause", "--application", "a", "--namespace", "n", "--queue", "q", "--reason", strings.Repeat("r", 1025))
	w.refuse(2, "reason", "tasks", "cancel", id, "--reason", " ")
	w.refuse(1, `queue "q" exists already`, "queue create"+place)
	w.refuse(1, "WAITING", "tasks", "retry", id, "--reason", "x")
	w.refuse(1, "WAITING", "tasks", "review", id, "--decision", "FAILED", "--note", "x")
	w.refuse(1, "revision", "tasks", "cancel", id, "--reason", "x", "--revision", "9")
	if n := w.count("audit WHERE action IN (?, ?)", []byte("task.cancel"), []byte("queue.update")); n != 0 {
		t.Errorf("%d audit rows of refused commands, want none", n)
	}
}

// What others put into names and notes cannot steer a terminal or break a table.
func TestTextsOfOthersAreQuoted(t *testing.T) {
	for text, want := range map[string]string{"": "-", "a b": "a b", "键": "键", "a\tb": `"a\tb"`, "\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "\u202e": `"\u202e"`} {
		if got := cli.Plain(text); got != want {
			t.Errorf("cli.Plain(%q) = %q, want %q", text, got, want)
		}
	}
}

// CLI-017, ERR-015: doctor tells what is wrong and what to do, and its exit code says
// whether anything fails.
func TestDoctor(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		_, out, _ := w.run("doctor --deep --json") // a server made for tests may be set up to lose data
		var found examined
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatal(err)
		}
		level := map[string]string{}
		for _, f := range found.Checks {
			level[f.Check] = string(f.Level)
			if f.Level == server.FindingSkipped || f.Level == server.FindingFailure && f.Check != "durability" {
				t.Errorf("finding = %+v", f)
			}
		}
		for _, check := range []string{"engine", "isolation", "schema", "indexes", "clock", "expired leases", "waiting tasks", "reviews", "keys exhausted", "contradictions"} {
			if level[check] != "ok" {
				t.Errorf("%s is %q, want ok", check, level[check])
			}
		}
		if _, err := db.Write().ExecContext(t.Context(), dropIndex(db)); err != nil {
			t.Fatal(err)
		}
		code, out, errs := w.run("doctor")
		if code != 1 || !strings.Contains(out, "task.task_expire (expire_at)") || !strings.Contains(errs, "checks fail") {
			t.Errorf("without an index: exit %d, %s, %s", code, out, errs)
		}
	}, migrations.Server)
}

func dropIndex(db *dbtest.DB) string {
	if strings.HasPrefix(db.Address, "sqlite:") {
		return "DROP INDEX task_expire"
	}
	return "DROP INDEX task_expire ON task"
}

// A database without a schema is examined too: that is a finding.
func TestDoctorOfAnEmptyDatabase(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite)
	code, out, errs := invoke(t.Context(), map[string]string{"ORBIT_DATABASE": db.Address}, "doctor")
	if code != 1 || strings.Count(out, "orbit-migrate up") != 1 || strings.Count(out, "not made: no schema") != 5 || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit %d, %s, %s", code, out, errs)
	}
}

package dispatch_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

// remembered claims one task of each kind for one process and starts them if asked to.
// What it returns carries what a session would remember.
func remembered(t *testing.T, w world, n node, started bool, kinds ...spec) []dispatch.Ref {
	t.Helper()
	taker := w.Taker(len(kinds))
	of := make(map[sqldb.ID]dispatch.Ref)
	var ids []sqldb.ID
	var lanes []dispatch.Lane
	for _, x := range kinds {
		ids = append(ids, w.Submit(x))
		if !slices.Contains(taker.Lanes, x.Lane().ID()) {
			taker.Lanes, lanes = append(taker.Lanes, x.Lane().ID()), append(lanes, x.Lane())
		}
	}
	for _, g := range claim(t, n, taker, lanes...) {
		of[g.Task] = refOf(taker, g)
	}
	var refs []dispatch.Ref
	for _, id := range ids {
		refs = append(refs, of[id])
	}
	if started {
		got, err := n.Start(t.Context(), refs)
		if err != nil {
			t.Fatalf("Start = %v", err)
		}
		for i := range got {
			refs[i].Hint = got[i].Hint
		}
	}
	return refs
}

// settleWith does something to a task as another part of the server does.
func settleWith(t *testing.T, w world, ref dispatch.Ref, do func(*settle.Settlement, *settle.Task) error) {
	t.Helper()
	err := w.DB.Tx(t.Context(), func(tx *sqldb.Tx) error {
		s, err := settle.OpenTasks(t.Context(), tx, &quota.Modes{}, []sqldb.ID{ref.Hint.Task})
		if err != nil {
			return err
		}
		if err := do(s, s.Task(ref.Hint.Task)); err != nil {
			return err
		}
		_, err = s.Flush(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What a node remembers of a row saves reading it, and decides about nothing: where one row
// of a batch has changed since, each row of the batch is settled as it is.
func TestABatchIsSettledByItsRowsWhereOneHasChangedSinceItWasRemembered(t *testing.T) { // LIC-006, LIC-014, LIC-015, STATE-020, CAN-021
	cancel := func(t *testing.T, w world, _ node, ref dispatch.Ref) {
		settleWith(t, w, ref, func(s *settle.Settlement, x *settle.Task) error {
			_, err := s.Cancel(t.Context(), x, "no longer needed", w.Credential)
			return err
		})
	}
	lose := func(t *testing.T, w world, _ node, ref dispatch.Ref) {
		settleWith(t, w, ref, func(s *settle.Settlement, x *settle.Task) error {
			a := s.Attempt(ref.Attempt)
			_, err := s.EndAttempt(a, settle.Lost(a, x))
			return err
		})
	}
	again := func(t *testing.T, w world, n node, ref dispatch.Ref) { // another attempt runs meanwhile
		lose(t, w, n, ref)
		w.Exec("UPDATE task SET available_at = created_at, dispatch_state = 1, dispatch_lane = lane WHERE dispatch_state = 2 AND id = ?", ref.Hint.Task)
		lane := dispatch.Lane{Queue: ref.Hint.Queue, Handler: "h", Version: dispatchtest.Version}
		taker := w.Taker(1, lane)
		mustStart(t, n, refOf(taker, claimOne(t, n, taker, lane)))
	}
	type change = func(*testing.T, world, node, dispatch.Ref)
	cases := []struct {
		name    string
		started bool // and then finished, else leased and then started
		change  change
		code    string // of the refusal of the changed one, or
		status  string // of its finish
		state   string // of its task then
	}{
		{"start, started already", false, func(t *testing.T, _ world, n node, ref dispatch.Ref) { mustStart(t, n, ref) }, "", "", "RUNNING"},
		{"start, cancelled", false, cancel, wire.CodeEnded, "", "CANCELLED"},
		{"start, handed back", false, func(t *testing.T, _ world, n node, ref dispatch.Ref) { giveBack(t, n, ref) }, wire.CodeLeaseExpired, "", "WAITING"},
		{"start, lease over", false, func(_ *testing.T, w world, _ node, ref dispatch.Ref) { expireLease(w, ref.Attempt) }, wire.CodeLeaseExpired, "", "LEASED"},
		{"start, superseded", false, again, wire.CodeSuperseded, "", "RUNNING"},
		{"finish, ended already by the same", true, func(t *testing.T, _ world, n node, ref dispatch.Ref) { finish(t, n, success(ref)) }, "", wire.FinishRecorded, "SUCCEEDED"},
		{"finish, ended already by another", true, func(t *testing.T, _ world, n node, ref dispatch.Ref) {
			finish(t, n, dispatch.Finish{Ref: ref, Receipt: []byte("x"), Outcome: task.OutcomeFailed})
		}, "", wire.FinishFinished, "FAILED"},
		{"finish, cancel wanted", true, cancel, "", wire.FinishRecorded, "SUCCEEDED"},
		{"finish, lost", true, lose, "", wire.FinishExpired, "WAITING"},
		{"finish, superseded", true, again, "", wire.FinishReplaced, "RUNNING"},
		{"finish, timeout over", true, func(_ *testing.T, w world, _ node, ref dispatch.Ref) { expireTimeout(w, ref.Attempt) }, "", wire.FinishExpired, "WAITING"},
	}
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				x := spec{Queue: w.NewQueue(c.name), Idempotent: true, MaxAttempts: 3, InitialDelay: time.Minute, MaxDelay: time.Hour}
				refs := remembered(t, w, n, c.started, x, x, x)
				c.change(t, w, n, refs[1])
				var list []dispatch.Finish
				for _, ref := range refs {
					list = append(list, success(ref))
				}
				for range 2 { // a repeat changes nothing
					if c.started {
						got, err := n.Finish(t.Context(), list)
						if err != nil || got[0].Status != wire.FinishRecorded || got[2].Status != wire.FinishRecorded || got[1].Status != c.status || got[1].Refusal != nil {
							t.Fatalf("Finish = %+v, %v; want %q for the changed one", got, err, c.status)
						}
						continue
					}
					got, err := n.Start(t.Context(), refs)
					if err != nil || got[0].Refusal != nil || got[2].Refusal != nil || codeOf(got[1].Refusal) != c.code {
						t.Fatalf("Start = %+v, %v; want %q for the changed one", got, err, c.code)
					}
				}
				for i, want := range []string{"RUNNING", c.state, "RUNNING"} {
					if c.started && i != 1 {
						want = "SUCCEEDED"
					}
					got := w.Task(refs[i].Hint.Task)
					if got.State != want {
						t.Errorf("task %d = %+v, want %s", i, got, want)
					}
					if n := w.Int("SELECT COUNT(*) FROM task_event WHERE task_id = ?", refs[i].Hint.Task); n != got.Revision {
						t.Errorf("task %d has %d events and revision %d", i, n, got.Revision)
					}
				}
			})
		}
		w.Verify()
	})
}

// A row may be waited for, for seconds behind a node that is stopped in its transaction. What
// was judged before is then judged by the time after.
func TestAStartThatWaitedForItsRowsIsJudgedByTheTimeAfterwards(t *testing.T) { // STATE-006, LIC-014
	dbtest.RunOn(t, []string{dbtest.MySQL, dbtest.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		n := newNode(t, db.DB, "node-a", dispatch.Config{})
		x := spec{Queue: w.NewQueue("q")}
		waiting := func(meanwhile func(*sql.Tx, dispatch.Ref)) (dispatch.Ref, dispatch.Started) {
			t.Helper()
			ref := remembered(t, w, n, false, x)[0]
			holder, err := db.Reopen(t).Write().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Rollback()
			if _, err := holder.ExecContext(t.Context(), "SELECT id FROM task WHERE id = ? FOR UPDATE", ref.Hint.Task); err != nil {
				t.Fatal(err)
			}
			done := make(chan dispatch.Started, 1)
			go func() {
				got, err := n.Start(t.Context(), []dispatch.Ref{ref})
				if err != nil {
					t.Errorf("Start = %v", err)
					got = []dispatch.Started{{}}
				}
				done <- got[0]
			}()
			db.AwaitStatement(t, "UPDATE task", "")
			meanwhile(holder, ref)
			if err := holder.Commit(); err != nil {
				t.Fatal(err)
			}
			return ref, <-done
		}
		ref, got := waiting(func(holder *sql.Tx, ref dispatch.Ref) {
			if _, err := holder.ExecContext(t.Context(), "UPDATE attempt SET lease_until = "+db.Dialect().Clock+" WHERE id = ?", ref.Attempt); err != nil {
				t.Fatal(err)
			}
		})
		if codeOf(got.Refusal) != wire.CodeLeaseExpired {
			t.Errorf("the lease ended while it waited: Start = %+v, want %s", got, wire.CodeLeaseExpired)
		}
		var released int64
		ref, got = waiting(func(*sql.Tx, dispatch.Ref) {
			time.Sleep(settle.Freshness + 100*time.Millisecond)
			released = w.Now()
		})
		if at := w.Int("SELECT started_at FROM attempt WHERE id = ?", ref.Attempt); got.Refusal != nil || at < released {
			t.Errorf("a start that waited long = %+v, at %d, want it at %d or later", got, at, released)
		}
	}, migrations.Server)
}

func codeOf(r *dispatch.Refusal) string {
	if r == nil {
		return ""
	}
	return r.Code
}

// What is written of remembered rows is what is written of locked ones: of attempts that
// end in different ways, of tasks with keys and without, and with different pasts.
func TestRememberedRowsAreWrittenLikeLockedOnes(t *testing.T) { // STATE-007, STATE-008, LIC-006, WRK-015
	rows := func(t *testing.T, w world, queue sqldb.ID) (list [][]any) {
		err := sqldb.EachRow(t.Context(), w.DB.Read(), `
SELECT t.state, t.revision, t.started_count, t.unstarted_count, t.effect_uncertain, t.dispatch_state, COALESCE(t.result, ''), t.completed_at IS NULL,
       a.state, COALESCE(a.live, 0), a.outcome, LENGTH(a.receipt), LENGTH(a.finish_digest), a.finish_answer, COALESCE(a.result, ''), a.error_text, a.retryable,
       a.timeout_at - a.started_at, t.available_at > t.updated_at
FROM task t JOIN attempt a ON a.task_id = t.id AND a.epoch = t.epoch
WHERE t.queue_id = ? ORDER BY t.payload_version, t.id`, []any{queue}, func(scan func(...any) error) error {
			row := make([]any, 19)
			to := make([]any, len(row))
			for i := range row {
				to[i] = &row[i]
			}
			err := scan(to...)
			for i := range row {
				if text, ok := row[i].([]byte); ok {
					row[i] = string(text)
				}
			}
			list = append(list, row)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		settled := func(name string, forget bool) [][]any {
			queue := w.NewQueue(name)
			safe := spec{Queue: queue, Idempotent: true, MaxAttempts: 3, InitialDelay: time.Minute, MaxDelay: time.Hour}
			brief := spec{Queue: queue, AttemptTimeout: 20 * time.Second}
			old := spec{Queue: queue, Unstarted: 3, MaxAttempts: 2}
			refs := remembered(t, w, n, false, safe, safe, safe, brief, old, spec{Queue: queue, Key: name}, spec{Queue: queue})
			forgotten := func() {
				for i := range refs {
					refs[i].Hint = dispatch.Hint{}
				}
			}
			if forget {
				forgotten()
			}
			got, err := n.Start(t.Context(), refs)
			if err != nil {
				t.Fatalf("Start = %v", err)
			}
			for i := range got {
				refs[i].Hint = got[i].Hint
			}
			if forget {
				forgotten()
			}
			var list []dispatch.Finish
			for i, f := range []dispatch.Finish{
				{Outcome: task.OutcomeSucceeded, Result: []byte(`{"n":1}`)},
				{Outcome: task.OutcomeFailed, Retryable: true, Error: []byte("busy")},
				{Outcome: task.OutcomeUnknown, Error: []byte("gone")},
				{Outcome: task.OutcomeFailed, Error: []byte("no")},
				{Outcome: task.OutcomeSucceeded, Result: []byte(`{"n":2}`)},
				{Outcome: task.OutcomeSucceeded},
				{Outcome: task.OutcomeSucceeded},
			} {
				f.Ref, f.Receipt = refs[i], []byte{'r', byte('0' + i)}
				list = append(list, f)
			}
			finished, err := n.Finish(t.Context(), list)
			if err != nil {
				t.Fatalf("Finish = %v", err)
			}
			for i, f := range finished {
				if f.Status != wire.FinishRecorded {
					t.Errorf("%s: finish %d = %+v", name, i, f)
				}
			}
			if version, holder := w.Key(w.Namespace, name); version != 2 || !holder.IsZero() {
				t.Errorf("%s: key has version %d and holder %v, want it released", name, version, holder)
			}
			return rows(t, w, queue)
		}
		want, got := settled("locked", true), settled("remembered", false)
		if len(want) != 7 || len(got) != len(want) {
			t.Fatalf("%d and %d rows, want 7", len(want), len(got))
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("row %d\n= %v, want\n  %v", i, got[i], want[i])
			}
		}
		w.Verify()
	})
}

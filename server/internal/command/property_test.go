package command_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/task"
)

// cases is how many random histories each engine is put through. The shared database of an
// engine grows with them, and each step looks at all of it.
var cases = map[string]int{dbtest.SQLite: 40, dbtest.MySQL: 5, dbtest.MariaDB: 5}

// TestTasksFollowTheModel drives tasks through random histories of submits, claims, starts,
// results, expiries, cancels, reviews and retries, by the code that serves them, and holds
// each to a model after every step: STATE-003, STATE-004, STATE-005, STATE-006, STATE-007,
// STATE-008, STATE-009, STATE-010, STATE-011, STATE-012, STATE-013, STATE-014, STATE-015,
// STATE-018, STATE-019, STATE-020, STATE-023, STATE-025, CAN-002, CAN-004, CAN-012, CAN-013,
// CAN-014, CAN-015, CAN-019, CAN-020, CAN-021, CAN-022, LIC-006, REF-REV-001.
func TestTasksFollowTheModel(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		e := newEngine(t, db)
		ran := 0
		rapid.Check(t, func(rt *rapid.T) {
			if ran++; ran > cases[db.Engine] && !e.failed { // once failed, it is being shrunk
				return
			}
			defer func() { e.failed = e.failed || rt.Failed() }()
			h := &history{engine: e, rt: rt, queue: e.w.NewQueue(fmt.Sprint("q", ran, sqldb.NewID()))}
			rt.Repeat(map[string]func(*rapid.T){
				"submit": h.submit, "claim": h.claim, "start": h.start, "return": h.giveBack, "finish": h.finish,
				"late finish": h.finishLate, "expire lease": h.expireLease, "expire waiting": h.expireWaiting,
				"promote": h.promote, "cancel": h.cancel, "stale cancel": h.cancelStale, "repeat cancel": h.repeatCancel,
				"review": h.review, "retry": h.retry, "": h.check,
			})
		})
	}, migrations.Server)
}

// An engine is a node's parts on one database, without sockets.
type engine struct {
	w         *dispatchtest.World
	db        *sqldb.DB
	d         *dispatch.Dispatcher
	r         *recovery.Recovery
	committer *accept.Committer
	commands  *command.Commands
	process   sqldb.ID
	told      map[sqldb.ID]int // cancel intents that workers were told of
	failed    bool             // a history has broken the database: only models can be compared
}

func newEngine(t *testing.T, db *dbtest.DB) *engine {
	e := &engine{w: dispatchtest.New(t, db.DB), db: db.DB, process: sqldb.NewID(), told: map[sqldb.ID]int{}}
	var err error
	if e.d, err = dispatch.New(db.DB, "node", dispatch.Config{Lease: dispatch.MaxLease}); err != nil {
		t.Fatal(err)
	}
	e.r = recovery.New(db.DB, recovery.Config{})
	e.committer = accept.New(db.DB, accept.Config{})
	e.commands = command.New(db.DB, command.Config{Cancelled: func(attempt sqldb.ID, _ int64, _ string) { e.told[attempt]++ }})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.committer.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return e
}

// A history is one random run over a few tasks of a queue of its own.
type history struct {
	*engine
	rt      *rapid.T
	queue   sqldb.ID
	tasks   []*model
	cancels []cancelled
}

// A cancelled is a cancel that was taken, to be repeated.
type cancelled struct {
	task    *model
	key     string
	body    string
	receipt command.Receipt
}

var ctx = context.Background()

func (h *history) must(err error) {
	h.rt.Helper()
	if err != nil {
		h.rt.Fatal(err)
	}
}

// pick draws a task that fits, or skips the step.
func (h *history) pick(t *rapid.T, fits func(*model) bool) *model {
	var list []*model
	for _, m := range h.tasks {
		if fits(m) {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		t.Skip("no task fits")
	}
	return rapid.SampledFrom(list).Draw(t, "task")
}

func inState(states ...string) func(*model) bool {
	return func(m *model) bool { return slices.Contains(states, m.state) }
}

func anyTask(*model) bool { return true }

const maxTasks = 4

func (h *history) submit(t *rapid.T) {
	if len(h.tasks) == maxTasks {
		t.Skip("enough tasks")
	}
	m := &model{
		key: rapid.SampledFrom([]string{"", "a", "a", "b"}).Draw(t, "key"), safe: rapid.Bool().Draw(t, "safe"),
		most: rapid.IntRange(1, 3).Draw(t, "most"), state: orbit.StateWaiting, events: []string{task.EventAccepted},
	}
	if m.key != "" {
		m.key += h.queue.String()
	}
	safety := orbit.RecoveryReconcileOnly
	if m.safe {
		safety = orbit.RecoveryIdempotent
	}
	s, err := orbit.ParseSubmission(fmt.Appendf(nil, `{"queue_id":%q,"handler":"h","handler_version":%q,"payload_version":"p1","payload":{"n":1},
"concurrency_key":%q,"priority":%d,"recovery_safety":%q,
"retry":{"max_attempts":%d,"initial_delay_ms":3600000,"max_delay_ms":3600000,"attempt_timeout_ms":3600000}}`,
		h.queue, dispatchtest.Version, m.key, rapid.IntRange(0, 9).Draw(t, "priority"), safety, m.most))
	h.must(err)
	h.accept(m, accept.Item{Submission: s})
}

func (h *history) accept(m *model, item accept.Item) {
	item.Namespace, item.Queue, item.Credential, item.Request, item.Key = h.w.Namespace, h.queue, h.w.Credential, sqldb.NewID(), sqldb.NewID().String()
	o := h.committer.Submit(ctx, []accept.Item{item})[0]
	h.must(o.Err)
	var got orbit.Task
	h.must(got.UnmarshalJSON(o.Receipt.AppendTask(nil)))
	id, err := sqldb.ParseID(got.ID)
	h.must(err)
	if m.id = id; m.root.IsZero() {
		m.root = id
	}
	h.tasks = append(h.tasks, m)
}

// claim asks for one task of a lane and checks that one is given exactly if one can be.
func (h *history) claim(t *rapid.T) {
	keyed := rapid.Bool().Draw(t, "keyed")
	lane := dispatch.Lane{Queue: h.queue, Handler: "h", Version: dispatchtest.Version, Keyed: keyed}
	taker := h.w.Taker(1, lane)
	taker.Process = h.process
	got, err := h.d.Claim(ctx, []dispatch.Lane{lane}, []dispatch.Taker{taker})
	h.must(err)
	var can []*model
	for _, m := range h.tasks {
		if m.state == orbit.StateWaiting && !m.delayed && (m.key != "") == keyed && h.holder(m.key) == nil {
			can = append(can, m)
		}
	}
	if len(got.Grants) == 0 {
		if len(can) > 0 {
			t.Fatalf("%d tasks can be claimed, none was given", len(can))
		}
		return
	}
	g := &got.Grants[0]
	at := slices.IndexFunc(can, func(m *model) bool { return m.id == g.Task })
	if at < 0 {
		t.Fatalf("task %v was given, and cannot be claimed", g.Task)
	}
	if m := can[at]; g.OperationRoot != m.root || g.RetryOf != m.retryOf || g.EffectUncertain != m.uncertain {
		t.Fatalf("grant %+v does not fit %+v", g, m)
	}
	can[at].claimed(g)
}

// holder is the task whose live attempt has a key.
func (h *history) holder(key string) *model {
	for _, m := range h.tasks {
		if key != "" && m.key == key && m.grant != nil {
			return m
		}
	}
	return nil
}

func (h *history) ref(g *dispatch.Grant) dispatch.Ref {
	return dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: h.process, Namespace: h.w.Namespace}
}

// start starts any newest attempt: one that has ended is refused (CAN-021).
func (h *history) start(t *rapid.T) {
	m := h.pick(t, func(m *model) bool { return m.last != nil && m.state != orbit.StateRunning })
	got, err := h.d.Start(ctx, []dispatch.Ref{h.ref(m.last)})
	h.must(err)
	if started := got[0].Refusal == nil; started != (m.state == orbit.StateLeased) {
		t.Fatalf("start of a task that is %s: %+v", m.state, got[0].Refusal)
	} else if started {
		m.start()
	}
}

func (h *history) giveBack(t *rapid.T) {
	m := h.pick(t, inState(orbit.StateLeased))
	got, err := h.d.Return(ctx, []dispatch.Ref{h.ref(m.grant)})
	h.must(err)
	if got[0].Refusal != nil {
		t.Fatalf("return refused: %+v", got[0].Refusal)
	}
	m.giveBack()
}

func (h *history) report(t *rapid.T, g *dispatch.Grant) (dispatch.Finish, dispatch.Finished) {
	f := dispatch.Finish{
		Ref: h.ref(g), Receipt: []byte(sqldb.NewID().String()), Retryable: rapid.Bool().Draw(t, "retryable"),
		Outcome: rapid.SampledFrom([]task.Outcome{task.OutcomeSucceeded, task.OutcomeFailed, task.OutcomeUnknown, task.OutcomeCancelled}).Draw(t, "outcome"),
	}
	got, err := h.d.Finish(ctx, []dispatch.Finish{f})
	h.must(err)
	return f, got[0]
}

func (h *history) finish(t *rapid.T) {
	m := h.pick(t, inState(orbit.StateRunning))
	f, got := h.report(t, m.grant)
	if taken := got.Refusal == nil; taken != m.finish(f.Outcome, f.Retryable) {
		t.Fatalf("finish %v: %+v", f.Outcome, got.Refusal)
	}
}

// finishLate reports for an attempt that has ended: evidence at most (STATE-020).
func (h *history) finishLate(t *rapid.T) {
	m := h.pick(t, func(m *model) bool { return m.last != nil && m.grant == nil })
	if _, got := h.report(t, m.last); got.Refusal != nil || got.TaskState != m.state {
		t.Fatalf("late finish: %+v", got)
	}
}

func (h *history) expireLease(t *rapid.T) {
	m := h.pick(t, inState(orbit.StateLeased, orbit.StateRunning))
	h.w.Exec("UPDATE attempt SET lease_until = ? WHERE id = ?", h.w.Now()-1, m.grant.Attempt)
	_, err := h.r.ExpireLeases(ctx)
	h.must(err)
	if m.state == orbit.StateLeased {
		m.giveBack()
	} else {
		m.lose()
	}
}

func (h *history) expireWaiting(t *rapid.T) {
	m := h.pick(t, inState(orbit.StateWaiting))
	past := h.w.Now() - 1
	h.w.Exec("UPDATE task SET start_deadline_at = ?, expire_at = ? WHERE id = ?", past, past, m.id)
	_, err := h.r.ExpireWaiting(ctx)
	h.must(err)
	m.delayed = false
	m.end(orbit.StateFailed, task.EventFailed)
}

func (h *history) promote(t *rapid.T) {
	m := h.pick(t, func(m *model) bool { return m.delayed })
	past := h.w.Now() - time.Second.Microseconds()
	h.w.Exec("UPDATE task SET available_at = ?, order_value = ? WHERE id = ?", past, past, m.id)
	_, err := h.r.PromoteDelayed(ctx)
	h.must(err)
	m.delayed = false
}

func (h *history) callerWith(key string) command.Caller {
	c := h.caller()
	c.Key = key
	return c
}

func (h *history) sendCancel(m *model, key, body string) (command.Receipt, error) {
	r, content, err := orbit.ParseCancel([]byte(body))
	h.must(err)
	return h.commands.Cancel(ctx, h.callerWith(key), m.id, r, content)
}

// expect holds the error of a command to whether it should have been taken.
func expect(t *rapid.T, what string, m *model, taken bool, err error) {
	var conflict *command.StateConflictError
	if taken != (err == nil) || err != nil && !errors.As(err, &conflict) {
		t.Fatalf("%s of a task that is %s = %v, want taken %v", what, m.state, err, taken)
	}
}

func (h *history) cancel(t *rapid.T) {
	m := h.pick(t, anyTask)
	body := fmt.Sprintf(`{"expected_revision":"%d","reason":"why"}`, m.revision())
	c := cancelled{task: m, key: rapid.SampledFrom([]string{"", sqldb.NewID().String()}).Draw(t, "idempotency key"), body: body}
	var err error
	c.receipt, err = h.sendCancel(m, c.key, body)
	attempt := m.grant
	taken := m.cancel()
	expect(t, "cancel", m, taken, err)
	if !taken {
		return
	}
	want := 200
	if m.state == orbit.StateRunning {
		want = 202
	}
	if c.receipt.Status != want || c.receipt.Replayed {
		t.Fatalf("receipt %+v of a cancel that leaves the task %s", c.receipt, m.state)
	}
	if attempt != nil && (h.told[attempt.Attempt] == 1) != (m.state == orbit.StateRunning) {
		t.Fatalf("worker told %d times, task %s", h.told[attempt.Attempt], m.state)
	}
	if c.key != "" {
		h.cancels = append(h.cancels, c)
	}
}

func (h *history) cancelStale(t *rapid.T) {
	m := h.pick(t, anyTask)
	_, err := h.sendCancel(m, "stale", fmt.Sprintf(`{"expected_revision":"%d","reason":"why"}`, m.revision()+1))
	expect(t, "stale cancel", m, false, err)
}

func (h *history) repeatCancel(t *rapid.T) {
	if len(h.cancels) == 0 {
		t.Skip("nothing to repeat")
	}
	c := rapid.SampledFrom(h.cancels).Draw(t, "cancel")
	got, err := h.sendCancel(c.task, c.key, c.body)
	h.must(err)
	const fresh, repeat = `{"deduplicated":false`, `{"deduplicated":true`
	if got.Status != c.receipt.Status || !got.Replayed || string(got.Data[len(repeat):]) != string(c.receipt.Data[len(fresh):]) {
		t.Fatalf("repeat = %d %s, want %d %s", got.Status, got.Data, c.receipt.Status, c.receipt.Data)
	}
}

func (h *history) review(t *rapid.T) {
	m := h.pick(t, anyTask)
	decision := rapid.SampledFrom([]string{orbit.StateSucceeded, orbit.StateFailed, orbit.StateCancelled}).Draw(t, "decision")
	r, content, err := orbit.ParseReview(fmt.Appendf(nil, `{"expected_revision":"%d","decision":%q,"note":"seen"}`, m.revision(), decision))
	h.must(err)
	_, err = h.commands.Review(ctx, h.caller(), m.id, r, content)
	expect(t, "review", m, m.review(decision), err)
}

func (h *history) retry(t *rapid.T) {
	if len(h.tasks) == maxTasks {
		t.Skip("enough tasks")
	}
	old := h.pick(t, anyTask)
	r, content, err := orbit.ParseRetry(fmt.Appendf(nil, `{"expected_revision":"%d","reason":"why"}`, old.revision()))
	h.must(err)
	item, err := h.commands.Retry(ctx, h.caller(), old.id, r, content)
	h.must(err)
	expect(t, "retry", old, old.mayRetry(), item.Retry.Refused)
	if item.Retry.Refused != nil {
		return
	}
	h.accept(&model{
		key: old.key, safe: old.safe, most: old.most, state: orbit.StateWaiting, events: []string{task.EventAccepted}, retryOf: old.id, root: old.root,
	}, item)
}

// check compares every task with its model, and the database with itself.
func (h *history) check(t *rapid.T) {
	for _, m := range h.tasks {
		h.checkTask(t, m)
	}
	if h.failed {
		return
	}
	found, err := dispatch.Verify(ctx, h.db)
	h.must(err)
	if len(found) > 0 {
		t.Fatalf("verify: %q", found)
	}
}

func (h *history) checkTask(t *rapid.T, m *model) {
	var (
		state     task.State
		revision  uint64
		uncertain bool
		ended     bool
		intent    bool
		live      int
		held      int
	)
	digest := task.KeyDigest(h.w.Namespace, m.key)
	err := h.db.Read().QueryRowContext(ctx, `
SELECT state, revision, effect_uncertain, completed_at IS NOT NULL, cancel_requested_at IS NOT NULL,
       (SELECT COUNT(*) FROM attempt a WHERE a.task_id = task.id AND a.live = 1),
       (SELECT COUNT(*) FROM resource r WHERE r.digest = ? AND r.holder_task_id = task.id)
FROM task WHERE id = ?`, digest[:], m.id).Scan(&state, &revision, &uncertain, &ended, &intent, &live, &held)
	h.must(err)
	permits := 0
	if m.grant != nil {
		permits = 1
	}
	keys := 0
	if m.grant != nil && m.key != "" {
		keys = 1
	}
	if state.String() != m.state || revision != m.revision() || uncertain != m.uncertain || ended != m.terminal() || intent != m.intent || live != permits || held != keys {
		t.Fatalf("task is %v at %d, uncertain %v, ended %v, intent %v, %d live attempts, %d keys; the model: %+v", state, revision, uncertain, ended, intent, live, held, m)
	}
	if got := h.events(m.id); !slices.Equal(got, m.events) {
		t.Fatalf("events %q, want %q", got, m.events)
	}
}

func (h *history) events(id sqldb.ID) (kinds []string) {
	rows, err := h.db.Read().QueryContext(ctx, "SELECT kind FROM task_event WHERE task_id = ? ORDER BY seq", id)
	h.must(err)
	defer rows.Close()
	for rows.Next() {
		var kind string
		h.must(rows.Scan(&kind))
		kinds = append(kinds, kind)
	}
	h.must(rows.Err())
	return kinds
}

package settle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Reasons in events of attempts and tasks that end without a word from a worker.
const (
	ReasonLeaseExpired   = "lease_expired"
	ReasonAttemptTimeout = "attempt_timeout"
	ReasonDeadline       = "deadline"
	ReasonStartDeadline  = "start_deadline"
	ReasonReturned       = "returned"
)

// A Settlement is a transaction's hold on tasks, their attempts and their resource
// keys. It serves one goroutine.
type Settlement struct {
	Now int64 // the database's time, read under the locks, or before remembered rows are written

	tx         *sqldb.Tx
	quota      *quota.Ledger // nil if it was opened for nothing that ends a task
	keyless    bool          // keys are not locked: nothing may end
	keys       Keys
	tasks      map[sqldb.ID]*Task
	attempts   map[sqldb.ID]*Attempt
	remembered map[sqldb.ID]memory // by task, if tasks and attempts are not locked; else nil
	recalled   time.Time           // with remembered: Now was read after it

	started []*Attempt
	ended   []*Attempt
	moves   moves
	results map[sqldb.ID][]byte // of tasks
	events  []task.Event
	freed   []Digest // keys that may let a parked task go
}

// owners are the rows that stand above tasks in the order of locks.
type owners struct {
	tasks  []sqldb.ID
	queues []sqldb.ID // of each task
	keys   []Digest   // of those that have one
}

const selectOwners = `
SELECT a.task_id, t.queue_id, t.concurrency_key_digest
FROM attempt a
JOIN task t ON t.id = a.task_id
WHERE a.id IN `

// OpenAttempts locks attempts with their tasks, resource keys and quotas. Attempts that do
// not exist are left out. Where all rows are remembered it locks resource keys and quotas
// only, and what is decided is verified when it is written. An error that wraps
// [sqldb.ErrAgain] has the transaction run anew, see [quota.Open]; a wrong hint does so
// too, here or in Flush.
func OpenAttempts(ctx context.Context, tx *sqldb.Tx, modes *quota.Modes, ids []sqldb.ID, hints Hints) (*Settlement, error) {
	if tx.Again() == 0 && hints.whole(ids) {
		return recallToEnd(ctx, tx, modes, ids, hints)
	}
	above, hints, err := ownersOf(ctx, tx, ids, hints)
	if err != nil {
		return nil, err
	}
	s, err := openToEnd(ctx, tx, modes, above, ids)
	if err == nil {
		err = hints.verify(s)
	}
	return s, err
}

// recallToEnd is OpenAttempts with what is remembered.
func recallToEnd(ctx context.Context, tx *sqldb.Tx, modes *quota.Modes, ids []sqldb.ID, hints Hints) (*Settlement, error) {
	s := recall(tx, hints, ids)
	above, _ := hints.split(ids)
	ledger, err := quota.OpenNow(ctx, tx, modes, above.queues)
	if err != nil {
		return nil, err
	}
	s.quota, s.Now = ledger, ledger.Now
	s.keys, err = LockKeys(ctx, tx, above.keys, tx.Dialect().ForUpdate)
	return s, err
}

// OpenToStart locks attempts with their tasks, but no resource key and no quota: attempts
// can only be started in it. Where all rows are remembered it locks nothing. Clock reads the
// database's clock, and with it what else the caller reads under the locks. Its errors are
// those of OpenAttempts.
func OpenToStart(ctx context.Context, tx *sqldb.Tx, ids []sqldb.ID, hints Hints, clock func() (int64, error)) (s *Settlement, err error) {
	if tx.Again() == 0 && hints.whole(ids) {
		s = recall(tx, hints, ids)
	} else if s, err = lockToStart(ctx, tx, ids, hints); err != nil {
		return nil, err
	}
	s.keyless = true
	s.Now, err = clock()
	return s, err
}

func lockToStart(ctx context.Context, tx *sqldb.Tx, ids []sqldb.ID, hints Hints) (*Settlement, error) {
	above, hints, err := ownersOf(ctx, tx, ids, hints)
	if err != nil {
		return nil, err
	}
	s, err := lock(ctx, tx, above.tasks, nil, ids)
	if err == nil {
		err = hints.verify(s)
	}
	return s, err
}

// ownersOf returns what stands above attempts, as hints say or else as is read, and the
// hints that were used. A transaction that runs anew may do so because of one: it uses none.
func ownersOf(ctx context.Context, tx *sqldb.Tx, ids []sqldb.ID, hints Hints) (owners, Hints, error) {
	if tx.Again() > 0 {
		hints = nil
	}
	above, unknown := hints.split(ids)
	read, err := readOwners(ctx, tx, selectOwners, unknown)
	above.tasks = append(above.tasks, read.tasks...)
	above.queues = append(above.queues, read.queues...)
	above.keys = append(above.keys, read.keys...)
	return above, hints, err
}

const selectKeysOfTasks = `
SELECT id, queue_id, concurrency_key_digest
FROM task
WHERE id IN `

// OpenTasks locks tasks with their resource keys, their quotas and, if they have one,
// their live attempt. Its errors are those of OpenAttempts.
func OpenTasks(ctx context.Context, tx *sqldb.Tx, modes *quota.Modes, ids []sqldb.ID) (*Settlement, error) {
	above, err := readOwners(ctx, tx, selectKeysOfTasks, ids)
	if err != nil {
		return nil, err
	}
	return openToEnd(ctx, tx, modes, above, nil)
}

// OpenKeys locks resource keys alone.
func OpenKeys(ctx context.Context, tx *sqldb.Tx, digests []Digest) (*Settlement, error) {
	return open(ctx, tx, nil, digests, nil)
}

// readOwners reads, without a lock, what never changes of a task: its queue and its key.
func readOwners(ctx context.Context, tx *sqldb.Tx, query string, ids []sqldb.ID) (above owners, err error) {
	ids = SortedIDs(ids)
	if len(ids) == 0 {
		return owners{}, nil
	}
	rows, err := tx.QueryContext(ctx, query+sqldb.Placeholders(len(ids)), IDArgs(ids)...)
	if err != nil {
		return owners{}, fmt.Errorf("read keys of tasks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			id, queue sqldb.ID
			column    []byte
		)
		if err := rows.Scan(&id, &queue, &column); err != nil {
			return owners{}, fmt.Errorf("read keys of tasks: %w", err)
		}
		above.tasks, above.queues = append(above.tasks, id), append(above.queues, queue)
		switch digest, keyed, err := ParseDigest(column); {
		case err != nil:
			return owners{}, fmt.Errorf("task %v: %w", id, err)
		case keyed:
			above.keys = append(above.keys, digest)
		}
	}
	if err := rows.Err(); err != nil {
		return owners{}, fmt.Errorf("read keys of tasks: %w", err)
	}
	return above, nil
}

// openToEnd is open for what may end tasks.
func openToEnd(ctx context.Context, tx *sqldb.Tx, modes *quota.Modes, above owners, attempts []sqldb.ID) (*Settlement, error) {
	ledger, err := quota.Open(ctx, tx, modes, above.queues)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, tx, above.tasks, above.keys, attempts)
	if s != nil {
		s.quota = ledger
	}
	return s, err
}

func open(ctx context.Context, tx *sqldb.Tx, tasks []sqldb.ID, digests []Digest, attempts []sqldb.ID) (*Settlement, error) {
	s, err := lock(ctx, tx, tasks, digests, attempts)
	if err != nil {
		return nil, err
	}
	// Only now: locks may have been waited for, and leases have passed meanwhile.
	s.Now, err = tx.Now(ctx)
	return s, err
}

// lock is open without the time.
func lock(ctx context.Context, tx *sqldb.Tx, tasks []sqldb.ID, digests []Digest, attempts []sqldb.ID) (*Settlement, error) {
	s := &Settlement{tx: tx}
	var err error
	if s.keys, err = LockKeys(ctx, tx, digests, tx.Dialect().ForUpdate); err != nil {
		return nil, err
	}
	if s.tasks, err = lockTasks(ctx, tx, tasks); err != nil {
		return nil, err
	}
	for _, t := range s.tasks {
		if !t.AttemptID.IsZero() {
			attempts = append(attempts, t.AttemptID)
		}
	}
	if s.attempts, err = LockAttempts(ctx, tx, attempts); err != nil {
		return nil, err
	}
	return s, nil
}

// Attempt returns a locked attempt, or nil.
func (s *Settlement) Attempt(id sqldb.ID) *Attempt { return s.attempts[id] }

// Task returns a locked task, or nil.
func (s *Settlement) Task(id sqldb.ID) *Task { return s.tasks[id] }

// Key returns a locked key, or nil.
func (s *Settlement) Key(digest Digest) *Key { return s.keys[digest] }

// An Ending says how an attempt ends.
type Ending struct {
	Act        task.Act
	Outcome    task.Outcome
	Reason     string   // of the event; the state machine may have a better one
	Credential sqldb.ID // who ended it, or zero

	// What a worker reported, if one did.
	Receipt   []byte
	Digest    []byte
	Answer    func(task.State) []byte // stored answer to a repeat, by the state of the task
	Result    []byte
	Error     []byte
	Retryable bool
}

// EndAttempt ends a live attempt: its permits are released, its task goes where the
// state machine sends it. It changes nothing if the machine forbids the act
// ([*task.ForbiddenError]) or the rows do not fit each other.
func (s *Settlement) EndAttempt(a *Attempt, e Ending) (task.Change, error) {
	t, err := s.taskOf(a)
	if err != nil {
		return task.Change{}, err
	}
	if s.keyless {
		return task.Change{}, fmt.Errorf("attempt %v cannot end without the lock of its key", a.ID)
	}
	c, err := task.Apply(t.State, e.Act, t.facts(s.Now))
	if err != nil {
		return c, err
	}
	a.State, a.Outcome, a.EndedAt = task.AttemptEnded, e.Outcome, micros(s.Now)
	a.Receipt, a.FinishDigest, a.ending = e.Receipt, e.Digest, &e
	if e.Answer != nil {
		a.FinishAnswer = e.Answer(c.To)
	}
	s.ended = append(s.ended, a)
	s.release(t, a)
	s.change(t, c, e, a.ID)
	return c, nil
}

// ErrInconsistent reports rows that contradict each other. Nothing is written; a verify
// run tells more.
var ErrInconsistent = errors.New("attempt and task do not fit each other")

// taskOf returns the task of a live attempt.
func (s *Settlement) taskOf(a *Attempt) (*Task, error) {
	t := s.tasks[a.Task]
	if t == nil || !a.Live() || t.AttemptID != a.ID || t.Epoch != a.Epoch {
		return nil, fmt.Errorf("%w: attempt %v, task %v", ErrInconsistent, a.ID, a.Task)
	}
	return t, nil
}

// StartAttempt confirms the start of a leased attempt: from now on its effect counts.
// The lease never outlives the attempt's timeout, nor that the task's deadline.
func (s *Settlement) StartAttempt(a *Attempt, lease int64) error {
	t, err := s.taskOf(a)
	if err != nil {
		return err
	}
	c, err := task.Apply(t.State, task.ActStart, t.facts(s.Now))
	if err != nil {
		return err
	}
	timeout := min(s.Now+int64(t.Retry.AttemptTimeoutMS)*1000, t.DeadlineAt)
	a.State, a.LeaseUntil = task.AttemptRunning, min(s.Now+lease, timeout)
	a.StartedAt, a.TimeoutAt = micros(s.Now), micros(timeout)
	t.State, t.Started, t.Unstarted = c.To, t.Started+1, 0
	t.Revision++
	s.started = append(s.started, a)
	s.note(t, c.Event, a.ID, sqldb.ID{}, "")
	return nil
}

func micros(at int64) sql.NullInt64 { return sql.NullInt64{Int64: at, Valid: true} }

// release gives back the resource key of an attempt, if it is the attempt's.
func (s *Settlement) release(t *Task, a *Attempt) {
	if k := s.keys[t.Key]; t.Keyed && k != nil && k.Release(a.Task, a.Epoch) {
		s.freed = append(s.freed, t.Key)
	}
}

// LeaveLine takes a WAITING task out of line by an act that ends it or has it reviewed.
func (s *Settlement) LeaveLine(t *Task, act task.Act, reason string, credential sqldb.ID) (task.Change, error) {
	if t.State != task.Waiting {
		return task.Change{}, &task.ForbiddenError{State: t.State, Act: act}
	}
	if s.keyless {
		return task.Change{}, fmt.Errorf("task %v cannot leave its line without the lock of its key", t.ID)
	}
	c, err := task.Apply(t.State, act, t.facts(s.Now))
	if err != nil {
		return c, err
	}
	// If it was the READY task of its key's lane, the next one takes its place.
	if k := s.keys[t.Key]; t.Keyed && k != nil && k.Free() {
		s.freed = append(s.freed, t.Key)
	}
	s.change(t, c, Ending{Act: act, Reason: reason, Credential: credential}, sqldb.ID{})
	return c, nil
}

// Recheck has a key looked at as if it had just become free.
func (s *Settlement) Recheck(k *Key) {
	if k.Free() {
		s.freed = append(s.freed, k.Digest)
	}
}

// change moves a task in memory and notes what to write.
func (s *Settlement) change(t *Task, c task.Change, e Ending, attempt sqldb.ID) {
	m := s.moveOf(t, c, e)
	s.moves.add(m, t.ID)
	if m.result {
		if s.results == nil {
			s.results = make(map[sqldb.ID][]byte)
		}
		s.results[t.ID] = e.Result
	}
	if c.To.Terminal() && !t.State.Terminal() {
		s.quota.Leave(t.Queue)
	}
	t.State, t.Uncertain, t.AttemptID = c.To, c.Uncertain, sqldb.ID{}
	t.Revision++
	reason := e.Reason
	if c.Reason != "" {
		reason = c.Reason
	}
	s.note(t, c.Event, attempt, e.Credential, reason)
}

func (s *Settlement) note(t *Task, kind string, attempt, credential sqldb.ID, reason string) {
	s.events = append(s.events, task.Event{
		Task: t.ID, Revision: t.Revision, Kind: kind, Attempt: attempt, Credential: credential, Reason: reason, At: s.Now,
	})
}

// moveOf tells how the task's row changes.
func (s *Settlement) moveOf(t *Task, c task.Change, e Ending) move {
	m := move{to: c.To, uncertain: c.Uncertain, unstarted: e.Act == task.ActGiveBack}
	switch {
	case c.To != task.Waiting:
		m.result = e.Result != nil
	case e.Act != task.ActGiveBack:
		m.wait, m.availableAt = task.DispatchDelayed, t.retryAt(s.Now)
	case !t.knownLane():
		m.wait = task.DispatchDelayed
	case t.Keyed && s.keys[t.Key] != nil:
		m.wait = task.DispatchKeyBlocked // the release lets the best of its lane go
	default:
		m.wait = task.DispatchReady
	}
	return m
}

// Flush writes everything, in the order of locks, and returns the lanes that have a READY
// task more, the timer's among them if a task waits there.
func (s *Settlement) Flush(ctx context.Context) (lanes []int64, err error) {
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	w := s.tx.Writes()
	s.addStarted(w)
	s.addMoves(w)
	s.addEnded(w)
	s.keys.AddChanged(w, s.tx.Dialect())
	if s.quota != nil {
		s.quota.AddChanged(w)
	}
	task.AddEvents(w, s.events)
	if err := s.write(ctx, w); err != nil {
		return nil, err
	}
	if err := s.checkFreshness(); err != nil {
		return nil, err
	}
	if lanes, err = s.promote(ctx); err != nil {
		return nil, err
	}
	lanes = append(lanes, s.readied()...)
	slices.Sort(lanes)
	return slices.Compact(lanes), nil
}

const startTasks = `
UPDATE task{by}
SET state = 3, revision = revision + 1, updated_at = ?, started_count = started_count + 1, unstarted_count = 0
WHERE id IN `

func (s *Settlement) addStarted(w *sqldb.Writes) {
	if len(s.started) == 0 {
		return
	}
	var ids []sqldb.ID
	for _, a := range s.started {
		ids = append(ids, a.Task)
	}
	s.updateTasks(w, "start tasks", startTasks, []any{s.Now}, ids)
	s.addStartedAttempts(w)
}

// readied returns the lanes of tasks that were moved into the claim index.
func (s *Settlement) readied() []int64 {
	var lanes []int64
	for m, ids := range s.moves {
		for _, id := range ids {
			switch m.wait {
			case task.DispatchReady:
				lanes = append(lanes, s.tasks[id].Lane)
			case task.DispatchDelayed:
				lanes = append(lanes, task.TimerLane)
			}
		}
	}
	return lanes
}

// Lost is how a live attempt ends of which nothing was heard in time: an un-started one
// is handed back, a started one is unknown (STATE-006, STATE-024).
func Lost(a *Attempt, t *Task) Ending {
	if a.State == task.AttemptLeased {
		return Ending{Act: task.ActGiveBack, Outcome: task.OutcomeNotStarted, Reason: ReasonLeaseExpired}
	}
	e := Ending{Act: task.ActLose, Outcome: task.OutcomeUnknown, Reason: ReasonLeaseExpired}
	switch {
	case a.LeaseUntil < a.TimeoutAt.Int64:
	case a.TimeoutAt.Int64 == t.DeadlineAt:
		e.Reason = ReasonDeadline
	default:
		e.Reason = ReasonAttemptTimeout
	}
	return e
}

package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/orbitkit/orbit"
)

const (
	floorName = "hand-written loop"
	floorLane = 7
)

// A floorLoop is a hand-written task loop of the best kind known: submits, claims, starts
// and finishes are each written by one writer, in transactions of up to 100 of what
// gathered while the last one ran, and workers are goroutines. It writes the rows that our
// server writes into the same tables: task, identity with receipt, events, audit and
// attempt, which is the permit of a task without resource key. It has none of what makes
// ours safe: no HTTP and no worker connection, no strict reading and no digest of content,
// no look-up of identities, no quota, pause or credential, no check of state, lease or
// epoch under locks, no clock of the database, no recovery.
type floorLoop struct {
	w    *workshop
	db   *sql.DB
	base *floorAcceptance
	size int // attempts at one time

	submits  chan floorSubmit
	starts   chan *floorAttempt
	finishes chan *floorAttempt
	wake     chan struct{}
	free     chan struct{} // one for each attempt that may be claimed
	done     counter
	handle   func(task []byte)

	node, process []byte
}

type floorSubmit struct {
	key      string
	i        int
	accepted chan floorAnswer
}

type floorAnswer struct {
	task []byte
	err  error
}

type floorAttempt struct {
	id, task []byte
	epoch    int64
	revision int64
	payload  []byte
	claimed  int64
}

// newFloorLoop returns a loop on a database of its own.
func newFloorLoop(ctx context.Context, o options, creds orbit.Credentials) (*floorLoop, error) {
	w, err := newWorkshop(ctx, o.dsn, "server")
	if err != nil {
		return nil, err
	}
	f := &floorLoop{
		w: w, size: o.capacity, node: []byte("floor"), process: make([]byte, 16), handle: func([]byte) {},
		submits: make(chan floorSubmit, 1024), wake: make(chan struct{}, 1),
	}
	if f.db, err = w.readCommitted(); err == nil {
		f.base, err = newFloorAcceptance(f.db, creds)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *floorLoop) close() {
	if f.db != nil {
		f.db.Close()
	}
	f.w.close()
}

func (f *floorLoop) fill(ctx context.Context, run string, n int) error {
	_, err := rate(4, n/floorBatch, func(i int) error { return f.base.accept(ctx, fmt.Sprintf("%s-%d", run, i)) })
	if err == nil {
		f.nudge()
	}
	return err
}

func (f *floorLoop) submit(_ context.Context, key string, i int) error {
	_, err := f.accepted(key, i)
	return err
}

// accepted is submit, and returns the id of the task.
func (f *floorLoop) accepted(key string, i int) (task string, err error) {
	s := floorSubmit{key, i, make(chan floorAnswer, 1)}
	f.submits <- s
	answer := <-s.accepted
	return hex.EncodeToString(answer.task), answer.err
}

func (f *floorLoop) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *floorLoop) ended(ctx context.Context, n int) error {
	return waitUntil(ctx, func() (bool, error) { return f.done.since() >= n, nil })
}

// work runs the writers until it is stopped.
func (f *floorLoop) work(ctx context.Context) (func() error, error) {
	f.starts, f.finishes, f.free = make(chan *floorAttempt, f.size), make(chan *floorAttempt, f.size), make(chan struct{}, f.size)
	for range f.size {
		f.free <- struct{}{}
	}
	f.done.begin()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	failed := make(chan error, 4)
	run := func(part string, loop func(context.Context) error) {
		running.Go(func() {
			if err := loop(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", part, err)
				cancel()
			}
		})
	}
	run("accept", func(ctx context.Context) error { return inGroups(ctx, f.submits, f.accept) })
	run("claim", f.claimLoop)
	run("start", func(ctx context.Context) error { return inGroups(ctx, f.starts, f.start) })
	run("finish", func(ctx context.Context) error { return inGroups(ctx, f.finishes, f.finish) })
	return func() error {
		cancel()
		running.Wait()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}, nil
}

// inGroups runs what gathered while the last group ran.
func inGroups[T any](ctx context.Context, items <-chan T, run func(context.Context, []T) error) error {
	for {
		var group []T
		select {
		case <-ctx.Done():
			return nil
		case x := <-items:
			group = append(group, x)
		}
	more:
		for len(group) < floorBatch {
			select {
			case x := <-items:
				group = append(group, x)
			default:
				break more
			}
		}
		if err := run(ctx, group); err != nil {
			return err
		}
	}
}

func (f *floorLoop) accept(ctx context.Context, group []floorSubmit) error {
	keys, bodies := make([]string, len(group)), make([]int, len(group))
	for i, s := range group {
		keys[i], bodies[i] = s.key, s.i%len(f.base.bodies)
	}
	tasks, err := f.base.insert(ctx, keys, bodies)
	for i, s := range group {
		s.accepted <- floorAnswer{tasks[i], err}
	}
	f.nudge()
	return nil
}

// claimLoop claims while there are tasks and free workers. It is woken by submits.
func (f *floorLoop) claimLoop(ctx context.Context) error {
	for {
		n := f.takeFree(ctx)
		if n == 0 {
			return nil
		}
		got, err := f.claim(ctx, n)
		if err != nil {
			return err
		}
		for range n - len(got) {
			f.free <- struct{}{}
		}
		for _, a := range got {
			f.starts <- a
		}
		if len(got) == n {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		}
	}
}

// takeFree takes as many free workers as a claim may use, at least one.
func (f *floorLoop) takeFree(ctx context.Context) (n int) {
	select {
	case <-ctx.Done():
		return 0
	case <-f.free:
		n++
	}
	for n < floorBatch {
		select {
		case <-f.free:
			n++
		default:
			return n
		}
	}
	return n
}

const (
	floorSelect = `
SELECT id, payload, revision, epoch
FROM task
WHERE dispatch_lane = ?
ORDER BY order_value, id
LIMIT ? FOR UPDATE SKIP LOCKED`

	floorInsertAttempt = `
INSERT INTO attempt (id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id,
	lease_ms, claimed_at, state, live, lease_until) VALUES `

	floorLease = `
UPDATE task
SET attempt_id = (SELECT a.id FROM attempt a WHERE a.task_id = task.id AND a.epoch = task.epoch + 1),
    state = 2, revision = revision + 1, updated_at = ?, epoch = epoch + 1, attempt_count = attempt_count + 1,
    dispatch_state = 0, dispatch_lane = NULL, expire_at = NULL
WHERE id IN `

	floorAttemptEvent = `INSERT INTO task_event (task_id, revision, kind, attempt_id, created_at) VALUES `

	floorStartTask = `
UPDATE task
SET state = 3, revision = revision + 1, updated_at = ?, started_count = started_count + 1, unstarted_count = 0
WHERE id IN `

	floorStartAttempt = `
UPDATE attempt
SET state = 2, lease_until = ?, started_at = ?, timeout_at = ?
WHERE id IN `

	floorFinishTask = `
UPDATE task
SET state = 5, revision = revision + 1, updated_at = ?, completed_at = ?, attempt_id = NULL
WHERE id IN `

	floorFinishAttempt = `
UPDATE attempt JOIN (VALUES %s) v (id, receipt, digest) ON v.id = attempt.id
SET attempt.state = 3, attempt.live = NULL, attempt.ended_at = ?, attempt.outcome = 1, attempt.receipt = v.receipt,
    attempt.finish_digest = v.digest, attempt.finish_answer = 'recorded SUCCEEDED'`
)

const floorLeaseMicros = 15_000_000

func (f *floorLoop) claim(ctx context.Context, n int) (got []*floorAttempt, err error) {
	now := time.Now().UnixMicro()
	err = inTx(ctx, f.db, func(tx *sql.Tx) error {
		if got, err = floorCandidates(ctx, tx, n); err != nil || len(got) == 0 {
			return err
		}
		var attempts []any
		for _, a := range got {
			a.claimed = now
			attempts = append(attempts, a.id, a.task, 1, a.epoch, f.base.namespace, f.base.credential, f.base.queue, f.process, f.node,
				15_000, now, 1, 1, now+floorLeaseMicros)
		}
		if _, err := tx.ExecContext(ctx, floorInsertAttempt+rowsOf(len(got), 14), attempts...); err != nil {
			return err
		}
		if err := updateIn(ctx, tx, floorLease, tasksOf(got), now); err != nil {
			return err
		}
		return floorEvents(ctx, tx, got, "claimed", now)
	})
	return got, err
}

func floorCandidates(ctx context.Context, tx *sql.Tx, n int) (got []*floorAttempt, err error) {
	rows, err := tx.QueryContext(ctx, floorSelect, floorLane, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		id := uuid.Must(uuid.NewV7())
		a := &floorAttempt{id: id[:]}
		if err := rows.Scan(&a.task, &a.payload, &a.revision, &a.epoch); err != nil {
			return nil, err
		}
		a.revision++
		a.epoch++
		got = append(got, a)
	}
	return got, rows.Err()
}

// start confirms starts and runs the handlers, which do nothing.
func (f *floorLoop) start(ctx context.Context, group []*floorAttempt) error {
	now := time.Now().UnixMicro()
	err := inTx(ctx, f.db, func(tx *sql.Tx) error {
		if err := updateIn(ctx, tx, floorStartTask, tasksOf(group), now); err != nil {
			return err
		}
		if err := updateIn(ctx, tx, floorStartAttempt, attemptsOf(group), now+floorLeaseMicros, now, now+2*floorLeaseMicros); err != nil {
			return err
		}
		return floorEvents(ctx, tx, group, "started", now)
	})
	if err != nil {
		return err
	}
	for _, a := range group {
		f.handle(a.task)
		f.finishes <- a
	}
	return nil
}

func (f *floorLoop) finish(ctx context.Context, group []*floorAttempt) error {
	now := time.Now().UnixMicro()
	var ends []any
	for _, a := range group {
		receipt := []byte(hex.EncodeToString(a.id))
		digest := sha256.Sum256(receipt)
		ends = append(ends, a.id, receipt, digest[:])
	}
	values := strings.TrimSuffix(strings.Repeat("ROW(?,?,?),", len(group)), ",")
	err := inTx(ctx, f.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(floorFinishAttempt, values), append(ends, now)...); err != nil {
			return err
		}
		if err := updateIn(ctx, tx, floorFinishTask, tasksOf(group), now, now); err != nil {
			return err
		}
		return floorEvents(ctx, tx, group, "succeeded", now)
	})
	if err != nil {
		return err
	}
	for range group {
		f.free <- struct{}{}
	}
	f.done.Add(int64(len(group)))
	return nil
}

func floorEvents(ctx context.Context, tx *sql.Tx, group []*floorAttempt, kind string, now int64) error {
	var args []any
	for _, a := range group {
		args = append(args, a.task, a.revision, []byte(kind), a.id, now)
		a.revision++
	}
	_, err := tx.ExecContext(ctx, floorAttemptEvent+rowsOf(len(group), 5), args...)
	return err
}

func tasksOf(group []*floorAttempt) [][]byte {
	ids := make([][]byte, len(group))
	for i, a := range group {
		ids[i] = a.task
	}
	return ids
}

func attemptsOf(group []*floorAttempt) [][]byte {
	ids := make([][]byte, len(group))
	for i, a := range group {
		ids[i] = a.id
	}
	return ids
}

func updateIn(ctx context.Context, tx *sql.Tx, query string, ids [][]byte, args ...any) error {
	for _, id := range ids {
		args = append(args, id)
	}
	_, err := tx.ExecContext(ctx, query+"("+strings.TrimSuffix(strings.Repeat("?,", len(ids)), ",")+")", args...)
	return err
}

func rowsOf(n, columns int) string {
	row := "(" + strings.Repeat("?,", columns-1) + "?)"
	return strings.Repeat(row+",", n-1) + row
}

package dispatch

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A Renewal extends the lease of an attempt, and with it its permits (LIC-004).
type Renewal struct {
	Ref
	Progress []byte // at most wire.MaxProgress bytes; empty keeps the last
}

// Renewed answers a renewal.
type Renewed struct {
	Refusal      *Refusal
	Lease        time.Duration // left
	CancelWanted bool
}

// Renew extends the leases of running attempts, never past their timeout. A lease that
// has passed is not revived (STATE-026). An attempt that was not started gets no longer
// lease, only an answer with what is left.
func (d *Dispatcher) Renew(ctx context.Context, renewals []Renewal) ([]Renewed, error) {
	return inBatches(ctx, d, renewals, d.renewBatch, func(r *Refusal) Renewed { return Renewed{Refusal: r} })
}

func (d *Dispatcher) renewBatch(ctx context.Context, renewals []Renewal) ([]Renewed, error) {
	var answers []Renewed
	err := d.tx(ctx, func(tx *sqldb.Tx) error {
		answers = nil
		refs := make([]Ref, len(renewals))
		for i, r := range renewals {
			refs[i] = r.Ref
		}
		x, err := d.extend(ctx, tx, refs)
		if err != nil {
			return err
		}
		for _, r := range refs {
			a, refusal := x.judge(r)
			if refusal != nil {
				answers = append(answers, Renewed{Refusal: refusal})
				continue
			}
			answers = append(answers, Renewed{Lease: left(a.LeaseUntil, x.now), CancelWanted: x.tasks[a.ID].cancelWanted})
		}
		return x.saveProgress(ctx, tx, renewals)
	})
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", err)
	}
	return answers, nil
}

// Resumed answers a resume: whether the process may go on with an attempt. Status is
// one of the Resume constants of package wire.
type Resumed struct {
	Refusal      *Refusal
	Status       string
	Running      bool // the start had been confirmed
	Lease        time.Duration
	Timeout      time.Duration
	CancelWanted bool
}

// Resume tells a process that comes back, perhaps to another node, which of its attempts
// it still holds, and renews those that run. Attempt and token stay (TOK-010).
func (d *Dispatcher) Resume(ctx context.Context, refs []Ref) ([]Resumed, error) {
	return inBatches(ctx, d, refs, d.resumeBatch, func(r *Refusal) Resumed { return Resumed{Refusal: r} })
}

func (d *Dispatcher) resumeBatch(ctx context.Context, refs []Ref) ([]Resumed, error) {
	var answers []Resumed
	err := d.tx(ctx, func(tx *sqldb.Tx) error {
		answers = nil
		x, err := d.extend(ctx, tx, refs)
		if err != nil {
			return err
		}
		for _, r := range refs {
			answers = append(answers, x.resume(r))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("resume attempts: %w", err)
	}
	return answers, nil
}

func (x *extension) resume(r Ref) Resumed {
	a, refusal := x.judge(r)
	switch {
	case refusal != nil && refusal.Code == wire.CodeEnded:
		return Resumed{Status: wire.ResumeFinished}
	case refusal != nil:
		return Resumed{Status: wire.ResumeLost}
	}
	answer := Resumed{
		Status: wire.ResumeKeep, Running: a.State == task.AttemptRunning,
		Lease: left(a.LeaseUntil, x.now), CancelWanted: x.tasks[a.ID].cancelWanted,
	}
	if a.TimeoutAt.Valid {
		answer.Timeout = left(a.TimeoutAt.Int64, x.now)
	}
	return answer
}

// An extension is a transaction that renews leases. It locks attempts only: what it
// needs of their tasks may be a moment old.
type extension struct {
	now      int64
	attempts map[sqldb.ID]*settle.Attempt
	tasks    map[sqldb.ID]taskGlance // by attempt
}

type taskGlance struct {
	epoch        int64
	cancelWanted bool
}

// extend renews the leases of those refs that run and are in time.
func (d *Dispatcher) extend(ctx context.Context, tx *sqldb.Tx, refs []Ref) (*extension, error) {
	x := &extension{}
	var err error
	if x.attempts, err = settle.LockAttempts(ctx, tx, ids(refs)); err != nil {
		return nil, err
	}
	if x.now, err = tx.Now(ctx); err != nil {
		return nil, err
	}
	if x.tasks, err = glanceAtTasks(ctx, tx, refs); err != nil {
		return nil, err
	}
	var running []sqldb.ID
	for _, r := range refs {
		if a, refusal := x.judge(r); refusal == nil && a.State == task.AttemptRunning {
			running = append(running, a.ID)
			a.LeaseUntil = max(a.LeaseUntil, min(x.now+d.lease, a.TimeoutAt.Int64))
		}
	}
	return x, d.saveLeases(ctx, tx, running, x.now+d.lease)
}

// judge tells whether r may still execute.
func (x *extension) judge(r Ref) (*settle.Attempt, *Refusal) {
	a := x.attempts[r.Attempt]
	switch {
	case !r.owns(a):
		return nil, refuseUnknown
	case !a.Live():
		return nil, refuseLate(a, x.tasks[a.ID].epoch)
	case a.LeaseUntil <= x.now:
		return nil, refuseExpired
	}
	return a, nil
}

const selectTaskGlances = `
SELECT a.id, t.epoch, t.cancel_requested_at
FROM attempt a
JOIN task t ON t.id = a.task_id
WHERE a.id IN `

func glanceAtTasks(ctx context.Context, tx *sqldb.Tx, refs []Ref) (map[sqldb.ID]taskGlance, error) {
	list := settle.SortedIDs(ids(refs))
	rows, err := tx.QueryContext(ctx, selectTaskGlances+sqldb.Placeholders(len(list)), settle.IDArgs(list)...)
	if err != nil {
		return nil, fmt.Errorf("read tasks of attempts: %w", err)
	}
	defer rows.Close()
	glances := make(map[sqldb.ID]taskGlance, len(list))
	for rows.Next() {
		var (
			attempt sqldb.ID
			epoch   int64
			cancel  sql.NullInt64
		)
		if err := rows.Scan(&attempt, &epoch, &cancel); err != nil {
			return nil, fmt.Errorf("read tasks of attempts: %w", err)
		}
		glances[attempt] = taskGlance{epoch, cancel.Valid}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read tasks of attempts: %w", err)
	}
	return glances, nil
}

// By live, which has an index, SQLite would go through all attempts that live.
const renewLeases = `
UPDATE attempt{by}
SET lease_until = CASE WHEN timeout_at < ? THEN timeout_at WHEN lease_until > ? THEN lease_until ELSE ? END
WHERE state <> 3 AND id IN `

func (d *Dispatcher) saveLeases(ctx context.Context, tx *sqldb.Tx, attempts []sqldb.ID, until int64) error {
	if len(attempts) == 0 {
		return nil
	}
	args := append([]any{until, until, until}, settle.IDArgs(attempts)...)
	if _, err := tx.ExecContext(ctx, settle.ByID(tx.Dialect(), renewLeases, len(attempts)), args...); err != nil {
		return fmt.Errorf("save leases: %w", err)
	}
	return nil
}

const saveProgress = `
UPDATE attempt{by}
SET progress_at = ?, progress = CASE id%s ELSE progress END
WHERE id IN `

// saveProgress keeps the progress of renewals that were granted.
func (x *extension) saveProgress(ctx context.Context, tx *sqldb.Tx, renewals []Renewal) error {
	var (
		args = []any{x.now}
		list []sqldb.ID
	)
	for _, r := range slices.Backward(renewals) { // of two for one attempt the later counts
		if _, refusal := x.judge(r.Ref); refusal == nil && len(r.Progress) > 0 {
			args, list = append(args, r.Attempt, r.Progress), append(list, r.Attempt)
		}
	}
	if len(list) == 0 {
		return nil
	}
	query := settle.ByID(tx.Dialect(), fmt.Sprintf(saveProgress, strings.Repeat(" WHEN ? THEN ?", len(list))), len(list))
	_, err := tx.ExecContext(ctx, query, append(args, settle.IDArgs(list)...)...)
	if err != nil {
		return fmt.Errorf("save progress: %w", err)
	}
	return nil
}

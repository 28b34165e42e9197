package settle

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// An Attempt is what a transaction knows of an attempt that it has locked.
type Attempt struct {
	ID           sqldb.ID
	Task         sqldb.ID
	Number       int64
	Epoch        int64
	Namespace    sqldb.ID
	Application  sqldb.ID
	Queue        sqldb.ID
	Process      sqldb.ID
	Node         []byte
	State        task.AttemptState
	LeaseUntil   int64
	LeaseMS      int64
	ClaimedAt    int64
	StartedAt    sql.NullInt64
	TimeoutAt    sql.NullInt64 // start + attempt timeout, never after the deadline
	EndedAt      sql.NullInt64
	Outcome      task.Outcome // zero while live
	Receipt      []byte
	FinishDigest []byte
	FinishAnswer []byte

	ending *Ending // what to write besides, once it has ended
}

// Live reports whether the attempt holds its permits.
func (a *Attempt) Live() bool { return a.State != task.AttemptEnded }

const selectAttempts = `
SELECT id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id, state,
       lease_until, lease_ms, claimed_at, started_at, timeout_at, ended_at, COALESCE(outcome, 0),
       receipt, finish_digest, finish_answer
FROM attempt{by}
WHERE id IN `

// LockAttempts reads and locks attempts in the order of their ids. Missing ones are
// left out. Who means to change a task locks it before.
func LockAttempts(ctx context.Context, tx *sqldb.Tx, ids []sqldb.ID) (map[sqldb.ID]*Attempt, error) {
	ids = SortedIDs(ids)
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx, ByID(tx.Dialect(), selectAttempts, len(ids))+" ORDER BY id"+tx.Dialect().ForUpdate, IDArgs(ids)...)
	if err != nil {
		return nil, fmt.Errorf("lock attempts: %w", err)
	}
	defer rows.Close()
	attempts := make(map[sqldb.ID]*Attempt, len(ids))
	for rows.Next() {
		var a Attempt
		err := rows.Scan(&a.ID, &a.Task, &a.Number, &a.Epoch, &a.Namespace, &a.Application, &a.Queue, &a.Process, &a.Node, &a.State,
			&a.LeaseUntil, &a.LeaseMS, &a.ClaimedAt, &a.StartedAt, &a.TimeoutAt, &a.EndedAt, &a.Outcome,
			&a.Receipt, &a.FinishDigest, &a.FinishAnswer)
		if err != nil {
			return nil, fmt.Errorf("lock attempts: %w", err)
		}
		attempts[a.ID] = &a
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock attempts: %w", err)
	}
	return attempts, nil
}

const (
	insertAttempts = `
INSERT INTO attempt (id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id,
    lease_ms, claimed_at, state, live, lease_until, concurrency_token)
VALUES `

	insertedColumns = 15
)

// AddAttempts has new live attempts inserted, with the token of each (0 for none).
func AddAttempts(w *sqldb.Writes, d *sqldb.Dialect, attempts []*Attempt, tokens []uint64) {
	args := make([]any, 0, len(attempts)*insertedColumns)
	for i, a := range attempts {
		args = append(args, a.ID.Arg(), a.Task.Arg(), a.Number, a.Epoch, a.Namespace.Arg(), a.Application.Arg(), a.Queue.Arg(), a.Process.Arg(), a.Node,
			a.LeaseMS, a.ClaimedAt, a.State, 1, a.LeaseUntil, d.Uint64(tokens[i]))
	}
	w.Add("insert attempts", insertAttempts+sqldb.Rows(len(attempts), insertedColumns), args...)
}

const updateStarted = `
UPDATE attempt{by}
SET state = ?, lease_until = %s, started_at = ?, timeout_at = %s
WHERE id IN `

// addStartedAttempts has attempts written that have been started now.
func (s *Settlement) addStartedAttempts(w *sqldb.Writes) {
	lease, leases := column(s.started, func(a *Attempt) any { return a.LeaseUntil })
	timeout, timeouts := column(s.started, func(a *Attempt) any { return a.TimeoutAt })
	args := slices.Concat([]any{task.AttemptRunning}, leases, []any{s.Now}, timeouts)
	s.updateAttempts(w, "save started attempts", fmt.Sprintf(updateStarted, lease, timeout), args, s.started,
		" AND lease_until > "+s.tx.Dialect().Clock)
}

// An ending group is what ended attempts have in common that are written by one statement.
type endingGroup struct {
	outcome   task.Outcome
	answer    string
	retryable bool
	result    bool
}

// endings returns the attempts that ended, in groups.
func (s *Settlement) endings() map[endingGroup][]*Attempt {
	groups := make(map[endingGroup][]*Attempt, 1)
	for _, a := range s.ended {
		g := endingGroup{a.Outcome, string(a.FinishAnswer), a.ending.Retryable, a.ending.Result != nil}
		groups[g] = append(groups[g], a)
	}
	return groups
}

const (
	updateEnded = `
UPDATE attempt{by}
SET state = ?, live = NULL, ended_at = ?, outcome = ?, finish_answer = ?, retryable = ?,
    receipt = %s, finish_digest = %s, error_text = %s%s
WHERE id IN `

	// The result is already in the task's row: it does not travel twice.
	setResult = `, result = (SELECT t.result FROM task t WHERE t.id = attempt.task_id)`
)

// addEnded has attempts written that have ended, after their tasks.
func (s *Settlement) addEnded(w *sqldb.Writes) {
	for g, attempts := range s.endings() {
		receipt, receipts := column(attempts, func(a *Attempt) any { return orEmpty(a.Receipt) })
		digest, digests := column(attempts, func(a *Attempt) any { return orEmpty(a.FinishDigest) })
		text, texts := column(attempts, func(a *Attempt) any { return orEmpty(a.ending.Error) })
		result := ""
		if g.result {
			result = setResult
		}
		args := slices.Concat([]any{task.AttemptEnded, s.Now, g.outcome, []byte(g.answer), g.retryable}, receipts, digests, texts)
		s.updateAttempts(w, "save ended attempts", fmt.Sprintf(updateEnded, receipt, digest, text, result), args, attempts,
			" AND (timeout_at IS NULL OR timeout_at > "+s.tx.Dialect().Clock+")")
	}
}

// orEmpty keeps nil, which would be NULL, out of columns that have none.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

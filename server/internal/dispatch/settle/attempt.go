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

	ending Ending // what to write besides, once it has ended
}

// Live reports whether the attempt holds its permits.
func (a *Attempt) Live() bool { return a.State != task.AttemptEnded }

const selectAttempts = `
SELECT id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id, state,
       lease_until, lease_ms, claimed_at, started_at, timeout_at, ended_at, COALESCE(outcome, 0),
       receipt, finish_digest, finish_answer
FROM attempt
WHERE id IN `

// LockAttempts reads and locks attempts in the order of their ids. Missing ones are
// left out. Who means to change a task locks it before.
func LockAttempts(ctx context.Context, tx *sqldb.Tx, ids []sqldb.ID) (map[sqldb.ID]*Attempt, error) {
	ids = SortedIDs(ids)
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx, selectAttempts+sqldb.Placeholders(len(ids))+" ORDER BY id"+tx.Dialect().ForUpdate, IDArgs(ids)...)
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

// identity are the columns that an insert of an attempt must have; the statements
// below only ever meet rows that exist and are locked, and change them by upsert, since
// their values differ from row to row.
const (
	identityColumns = `id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id,
    lease_ms, claimed_at, state, live, lease_until`
	identityCount = 14
)

func (a *Attempt) identity() []any {
	var live any
	if a.Live() {
		live = 1
	}
	return []any{a.ID, a.Task, a.Number, a.Epoch, a.Namespace, a.Application, a.Queue, a.Process, a.Node,
		a.LeaseMS, a.ClaimedAt, a.State, live, a.LeaseUntil}
}

const insertAttempts = `
INSERT INTO attempt (` + identityColumns + `, concurrency_token)
VALUES `

// InsertAttempts adds new attempts, with the token of each (0 for none).
func InsertAttempts(ctx context.Context, tx *sqldb.Tx, attempts []*Attempt, tokens []uint64) error {
	var args []any
	for i, a := range attempts {
		args = append(append(args, a.identity()...), tx.Dialect().Uint64(tokens[i]))
	}
	if _, err := tx.ExecContext(ctx, insertAttempts+sqldb.Rows(len(attempts), identityCount+1), args...); err != nil {
		return fmt.Errorf("insert attempts: %w", err)
	}
	return nil
}

const (
	updateStarted = `
UPDATE attempt
SET state = ?, lease_until = ?, started_at = ?, timeout_at = ?
WHERE id IN `

	upsertStarted = `
INSERT INTO attempt (` + identityColumns + `, started_at, timeout_at)
VALUES `
)

// saveStartedAttempts writes attempts by one statement: an update where all have the same
// times, as those of one kind have, which costs the database less than an upsert.
func saveStartedAttempts(ctx context.Context, tx *sqldb.Tx, attempts []*Attempt) error {
	if first := attempts[0]; alike(attempts) {
		args := []any{first.State, first.LeaseUntil, first.StartedAt, first.TimeoutAt}
		for _, a := range attempts {
			args = append(args, a.ID)
		}
		if _, err := tx.ExecContext(ctx, updateStarted+sqldb.Placeholders(len(attempts)), args...); err != nil {
			return fmt.Errorf("save started attempts: %w", err)
		}
		return nil
	}
	var args []any
	for _, a := range attempts {
		args = append(append(args, a.identity()...), a.StartedAt, a.TimeoutAt)
	}
	_, err := tx.ExecContext(ctx, upsertStarted+sqldb.Rows(len(attempts), identityCount+2)+
		tx.Dialect().OnConflict([]string{"id"}, "state", "lease_until", "started_at", "timeout_at"), args...)
	if err != nil {
		return fmt.Errorf("save started attempts: %w", err)
	}
	return nil
}

// alike reports whether started attempts differ in nothing that is written.
func alike(attempts []*Attempt) bool {
	first := attempts[0]
	return !slices.ContainsFunc(attempts, func(a *Attempt) bool {
		return a.State != first.State || a.LeaseUntil != first.LeaseUntil || a.StartedAt != first.StartedAt || a.TimeoutAt != first.TimeoutAt
	})
}

const upsertEnded = `
INSERT INTO attempt (` + identityColumns + `, ended_at, outcome, receipt, finish_digest, finish_answer, result, error_text, retryable)
VALUES `

func saveEnded(ctx context.Context, tx *sqldb.Tx, attempts []*Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	var args []any
	for _, a := range attempts {
		e := a.ending
		args = append(append(args, a.identity()...),
			a.EndedAt, a.Outcome, orEmpty(a.Receipt), orEmpty(a.FinishDigest), orEmpty(a.FinishAnswer), orNull(e.Result), orEmpty(e.Error), e.Retryable)
	}
	_, err := tx.ExecContext(ctx, upsertEnded+sqldb.Rows(len(attempts), identityCount+8)+
		tx.Dialect().OnConflict([]string{"id"}, "state", "live", "ended_at", "outcome",
			"receipt", "finish_digest", "finish_answer", "result", "error_text", "retryable"), args...)
	if err != nil {
		return fmt.Errorf("save ended attempts: %w", err)
	}
	return nil
}

// orEmpty keeps nil, which would be NULL, out of columns that have none.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func orNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

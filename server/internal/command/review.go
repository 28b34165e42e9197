package command

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/idempotency"
	"github.com/orbitkit/orbit/server/internal/task"
)

// evidenceReview is the kind of the evidence that a review leaves.
const evidenceReview = "review"

var decided = map[string]task.State{
	orbit.StateSucceeded: task.Succeeded, orbit.StateFailed: task.Failed, orbit.StateCancelled: task.Cancelled,
}

// Review ends the review of a task in NEEDS_REVIEW by a decision (REF-REV-002). The task
// is final then, and its effect no longer unknown; the decision is kept as a review and as
// evidence of the task's newest attempt. Its errors are those of [Commands.Cancel].
func (c *Commands) Review(ctx context.Context, caller Caller, id sqldb.ID, r orbit.ReviewTaskRequest, content orbit.Digest) (Receipt, error) {
	return c.editTask(ctx, caller, id, edit{
		op: idempotency.Review, expected: r.ExpectedRevision, content: content,
		apply: func(ctx context.Context, tx *sqldb.Tx, s *settle.Settlement, t *settle.Task) (audit, error) {
			_, err := s.Decide(ctx, t, decided[r.Decision], r.Result, caller.Credential)
			var forbidden *task.ForbiddenError
			switch {
			case errors.As(err, &forbidden):
				return audit{}, conflictf("the task is %v: only one in NEEDS_REVIEW can be decided", t.State)
			case err != nil:
				return audit{}, err
			}
			v := verdict{task: t, request: &r, caller: &caller, at: s.Now}
			return audit{action: actionReview, actor: r.Source, note: r.Note}, v.insert(ctx, tx)
		},
	})
}

// A verdict is a decision as it is kept.
type verdict struct {
	task    *settle.Task
	request *orbit.ReviewTaskRequest
	caller  *Caller
	at      int64
}

const insertReview = `
INSERT INTO review (id, task_id, credential_id, actor, decision, note, evidence, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)`

func (v *verdict) insert(ctx context.Context, tx *sqldb.Tx) error {
	r := v.request
	var evidence any
	if len(r.Evidence) > 0 {
		evidence = []byte(r.Evidence)
	}
	_, err := tx.ExecContext(ctx, insertReview, sqldb.NewID(), v.task.ID, v.caller.Credential, []byte(v.actor()),
		decided[r.Decision], []byte(r.Note), evidence, v.at)
	if err != nil {
		return fmt.Errorf("insert review: %w", err)
	}
	return v.insertEvidence(ctx, tx)
}

// actor is who decided: who the request names as its source, or who gave the command.
func (v *verdict) actor() string {
	if v.request.Source != "" {
		return v.request.Source
	}
	return v.caller.Actor
}

const (
	selectNewest = `
SELECT id
FROM attempt
WHERE task_id = ?
  AND epoch = ?`

	insertEvidence = `
INSERT INTO evidence (id, task_id, attempt_id, kind, body, created_at)
VALUES (?, ?, ?, ?, ?, ?)`
)

// insertEvidence binds the decision to the newest attempt. A task without one, whose
// effect is unknown by other means, has the review alone: evidence belongs to an attempt.
func (v *verdict) insertEvidence(ctx context.Context, tx *sqldb.Tx) error {
	var newest sqldb.ID
	err := tx.QueryRowContext(ctx, selectNewest, v.task.ID, v.task.Epoch).Scan(&newest)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("read newest attempt: %w", err)
	}
	_, err = tx.ExecContext(ctx, insertEvidence, sqldb.NewID(), v.task.ID, newest, []byte(evidenceReview), v.evidence(), v.at)
	if err != nil {
		return fmt.Errorf("insert evidence: %w", err)
	}
	return nil
}

// evidence is a JSON object. What the reviewer gave as evidence is kept byte for byte.
func (v *verdict) evidence() []byte {
	r := v.request
	body := append(append([]byte(`{"decision":`), quote(r.Decision)...), `,"note":`...)
	body = append(body, quote(r.Note)...)
	if r.Source != "" {
		body = append(append(body, `,"source":`...), quote(r.Source)...)
	}
	if len(r.Evidence) > 0 {
		body = append(append(body, `,"evidence":`...), r.Evidence...)
	}
	return append(body, '}')
}

func quote(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // strings can always be written
	}
	return quoted
}

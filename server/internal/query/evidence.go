package query

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// An EvidencePage is a page of the evidence of a task, the newest first.
type EvidencePage struct {
	Evidence []orbit.Evidence
	// Next is the place after which the next page begins; nil on the last page.
	Next *Place
}

const evidenceColumns = `
SELECT id, attempt_id, kind, body, created_at
FROM evidence`

const selectEvidenceList = evidenceColumns + `{by}
WHERE task_id = ?
  AND {after}
ORDER BY created_at DESC, id DESC
LIMIT ?`

// EvidenceList reads a page of at most limit pieces of evidence that lie after a place;
// nil means from the newest on. The page ends early when it has become long. The error is
// [ErrNotFound] if the task is not in scope.
func (r *Reader) EvidenceList(ctx context.Context, s Scope, id sqldb.ID, after *Place, limit int) (EvidencePage, error) {
	if _, err := r.find(ctx, s, id); err != nil {
		return EvidencePage{}, err
	}
	last := Place{CreatedAt: math.MaxInt64}
	if after != nil {
		last = *after
	}
	var page EvidencePage
	size := 0
	args := append(r.after([]any{id}, last), limit+1)
	rows, err := r.db.Read().QueryContext(ctx, r.by("evidence_task", selectEvidenceList), args...)
	err = each(rows, err, func(rows *sql.Rows) (bool, error) {
		if len(page.Evidence) == limit || size > pageBytes {
			page.Next = &last
			return false, nil
		}
		e, place, err := scanEvidence(rows)
		e.TaskID = id.String()
		page.Evidence = append(page.Evidence, e)
		size, last = size+len(e.Body), place
		return true, err
	})
	if err != nil {
		return EvidencePage{}, fmt.Errorf("list evidence: %w", err)
	}
	return page, nil
}

const selectEvidence = evidenceColumns + `
WHERE id = ?
  AND task_id = ?`

// Evidence reads one piece of evidence of a task, its body byte for byte. The error is
// [ErrNotFound] if the task is not in scope or has no such evidence.
func (r *Reader) Evidence(ctx context.Context, s Scope, taskID, id sqldb.ID) (orbit.Evidence, error) {
	if _, err := r.find(ctx, s, taskID); err != nil {
		return orbit.Evidence{}, err
	}
	e, _, err := scanEvidence(r.db.Read().QueryRowContext(ctx, selectEvidence, id, taskID))
	e.TaskID = taskID.String()
	return e, found(err, "read evidence")
}

func scanEvidence(row interface{ Scan(...any) error }) (e orbit.Evidence, p Place, err error) {
	var attempt sqldb.ID
	var body []byte
	if err := row.Scan(&p.ID, &attempt, &e.Kind, &body, &p.CreatedAt); err != nil {
		return orbit.Evidence{}, p, err
	}
	e.ID, e.AttemptID, e.Body, e.CreatedAt = p.ID.String(), attempt.String(), body, sqldb.Time(p.CreatedAt)
	return e, p, nil
}

package orbit

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// Kinds of evidence.
const (
	EvidenceLateFinish = "late_finish" // what a worker reported after its attempt had ended
	EvidenceReview     = "review"      // what a review decided and what it rests on
)

// Evidence is something that was learned about an attempt and changed nothing by itself
// (STATE-020).
type Evidence struct {
	ID        string
	TaskID    string
	AttemptID string
	Kind      string          // one of the Evidence constants; more may come
	Body      json.RawMessage // byte for byte as stored
	CreatedAt time.Time
}

// AppendJSON appends the contract form of e, the body byte for byte.
func (e *Evidence) AppendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("id", e.ID)
	o.string("task_id", e.TaskID)
	o.string("attempt_id", e.AttemptID)
	o.string("kind", e.Kind)
	o.optionalRaw("body", e.Body)
	o.time("created_at", e.CreatedAt)
	return o.end()
}

// MarshalJSON returns the contract form. Mind that [encoding/json.Marshal]
// re-formats what it returns; AppendJSON keeps the bytes.
func (e Evidence) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// UnmarshalJSON reads the contract form. Unknown members are ignored; numbers stay exact.
func (e *Evidence) UnmarshalJSON(data []byte) error {
	var w struct {
		ID        string          `json:"id"`
		TaskID    string          `json:"task_id"`
		AttemptID string          `json:"attempt_id"`
		Kind      string          `json:"kind"`
		Body      json.RawMessage `json:"body"`
		CreatedAt wireTime        `json:"created_at"`
	}
	if err := jsonv2.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("orbit: read evidence: %w", err)
	}
	*e = Evidence{ID: w.ID, TaskID: w.TaskID, AttemptID: w.AttemptID, Kind: w.Kind, Body: w.Body, CreatedAt: time.Time(w.CreatedAt)}
	return nil
}

// An EvidencePage is one page of evidence, the newest first.
type EvidencePage struct {
	Items      []Evidence `json:"items"`
	NextCursor string     `json:"next_cursor,omitempty"` // empty on the last page
}

// ListEvidence reads the evidence of a task, one page at a time.
func (c *Client) ListEvidence(ctx context.Context, taskID string, r PageRequest) (EvidencePage, error) {
	if !ValidID(taskID) {
		return EvidencePage{}, invalid("task_id", "must be 32 lower-case hexadecimal characters")
	}
	var page EvidencePage
	path := withQuery(submitPath+"/"+taskID+"/evidence", pageQuery(r.Limit, r.Cursor))
	return page, c.get(ctx, "list evidence", path, maxBatchAnswer, &page)
}

// Evidence reads all pages of [Client.ListEvidence] from r.Cursor on. It ends with the
// first error.
func (c *Client) Evidence(ctx context.Context, taskID string, r PageRequest) iter.Seq2[Evidence, error] {
	return pages(r.Cursor, func(cursor string) ([]Evidence, string, error) {
		r.Cursor = cursor
		page, err := c.ListEvidence(ctx, taskID, r)
		return page.Items, page.NextCursor, err
	})
}

// GetEvidence reads one piece of evidence of a task.
func (c *Client) GetEvidence(ctx context.Context, taskID, evidenceID string) (Evidence, error) {
	path, err := partPath(taskID, "evidence", evidenceID)
	if err != nil {
		return Evidence{}, err
	}
	var e Evidence
	return e, c.get(ctx, "read evidence", path, maxSingleAnswer, &e)
}

// partPath is the path of one part of a task.
func partPath(taskID, parts, id string) (string, error) {
	const rule = "must be 32 lower-case hexadecimal characters"
	switch {
	case !ValidID(taskID):
		return "", invalid("task_id", rule)
	case !ValidID(id):
		return "", invalid("id", rule)
	}
	return submitPath + "/" + taskID + "/" + parts + "/" + id, nil
}

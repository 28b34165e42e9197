package orbit

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// ReviewTaskRequest decides about a task in NEEDS_REVIEW: what a person, or a program
// with proof, has found out about its effect.
type ReviewTaskRequest struct {
	ExpectedRevision uint64 // revision that the caller has seen; not zero
	Decision         string // StateSucceeded, StateFailed or StateCancelled
	Note             string // why: 1 to 1024 Unicode characters, not only blanks
	Result           json.RawMessage
	Evidence         json.RawMessage // what the decision rests on: JSON of at most 4 KiB
	Source           string          // who or what decided, for the audit: at most 128 bytes
}

// Bounds of a review.
const (
	MaxReviewEvidence = 4 << 10 // bytes
	MaxReviewSource   = 128     // bytes
)

type wireReview struct {
	ExpectedRevision decimalUint       `json:"expected_revision" strict:"required"`
	Decision         string            `json:"decision" strict:"required"`
	Note             string            `json:"note" strict:"required"`
	Result           *strictjson.Value `json:"result"`
	Evidence         *strictjson.Value `json:"evidence"`
	Source           string            `json:"source"`
}

// ParseReview reads the body of POST /v1/tasks/{task_id}:review strictly (REF-REV-002) and
// returns the digest of its content. Its errors are [*InvalidArgumentError].
func ParseReview(body []byte) (ReviewTaskRequest, Digest, error) {
	var w wireReview
	if err := decode(body, &w); err != nil {
		return ReviewTaskRequest{}, Digest{}, err
	}
	r := ReviewTaskRequest{
		ExpectedRevision: uint64(w.ExpectedRevision), Decision: w.Decision, Note: w.Note, Source: w.Source,
		Result: rawOf(w.Result), Evidence: rawOf(w.Evidence),
	}
	if err := r.validate(); err != nil {
		return ReviewTaskRequest{}, Digest{}, err
	}
	same := r
	same.Result, same.Evidence = canonicalOf(w.Result), canonicalOf(w.Evidence)
	return r, digestOf(same.appendJSON(nil)), nil
}

func rawOf(v *strictjson.Value) json.RawMessage {
	if v == nil {
		return nil
	}
	return v.Raw
}

func canonicalOf(v *strictjson.Value) json.RawMessage {
	if v == nil {
		return nil
	}
	return v.Canonical
}

// validate holds r to every rule but those of the JSON in it.
func (r *ReviewTaskRequest) validate() error {
	if err := validRevision(r.ExpectedRevision); err != nil {
		return err
	}
	switch r.Decision {
	case StateSucceeded, StateFailed, StateCancelled:
	default:
		return invalid("decision", "must be SUCCEEDED, FAILED or CANCELLED")
	}
	if err := validReason("note", r.Note); err != nil {
		return err
	}
	switch {
	case len(r.Result) > 0 && r.Decision != StateSucceeded:
		return invalid("result", "is for the decision SUCCEEDED only")
	case len(r.Result) > MaxPayloadBytes:
		return invalid("result", "must be at most 262144 bytes")
	case len(r.Evidence) > MaxReviewEvidence:
		return invalid("evidence", "must be at most 4096 bytes")
	case len(r.Source) > MaxReviewSource:
		return invalid("source", "must be at most 128 bytes")
	case !utf8.ValidString(r.Source):
		return invalid("source", "must be valid UTF-8")
	}
	return nil
}

// appendJSON encodes a valid request, its members in the order of the canonical form.
func (r *ReviewTaskRequest) appendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("decision", r.Decision)
	o.optionalRaw("evidence", r.Evidence)
	o.decimal("expected_revision", r.ExpectedRevision)
	o.string("note", r.Note)
	o.optionalRaw("result", r.Result)
	o.optionalString("source", r.Source)
	return o.end()
}

// ReviewTask ends the review of a task in NEEDS_REVIEW by a decision, once, under key. It
// settles the effect: the task is final and no longer effect_uncertain. A stale revision
// and any other state give an [*APIError] with CodeStateConflict; other errors are as
// for [Client.SubmitTask].
func (c *Client) ReviewTask(ctx context.Context, taskID, key string, r ReviewTaskRequest) (TaskReceipt, error) {
	var err error
	if len(r.Result) > 0 {
		if r.Result, err = ValidatePayload("result", r.Result); err != nil {
			return TaskReceipt{}, err
		}
	}
	if len(r.Evidence) > 0 {
		if r.Evidence, err = ValidatePayload("evidence", r.Evidence); err != nil {
			return TaskReceipt{}, err
		}
	}
	if err := r.validate(); err != nil {
		return TaskReceipt{}, err
	}
	return c.runOnTask(ctx, taskID, command{
		act: "review task", path: submitPath + "/" + taskID + ":review", key: key, body: r.appendJSON(nil),
	})
}

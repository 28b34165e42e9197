package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A Finish reports how an attempt ended. The bounds of package wire are the caller's to
// check.
type Finish struct {
	Ref
	Receipt   []byte // the worker's identity of this result, 1 to 64 bytes
	Outcome   task.Outcome
	Retryable bool   // with OutcomeFailed: another attempt may succeed
	Result    []byte // with OutcomeSucceeded: JSON, or nil
	Error     []byte
}

// Finished answers a finish. Status is one of the Finish constants of package wire;
// with any but FinishRecorded what was reported is kept as evidence and changes nothing
// (STATE-020).
type Finished struct {
	Refusal   *Refusal
	Status    string
	TaskState string // of the task: with FinishRecorded when the result was recorded, else now
}

// Finish ends attempts by what their workers report. The same receipt with the same
// content gets the answer that the first one got. A result is taken even after the end
// of the lease, if nobody has ended the attempt yet and neither its timeout nor the
// deadline has passed (STATE-026).
func (d *Dispatcher) Finish(ctx context.Context, list []Finish) ([]Finished, error) {
	return inBatches(ctx, d, list, d.finishBatch, func(r *Refusal) Finished { return Finished{Refusal: r} })
}

func (d *Dispatcher) finishBatch(ctx context.Context, list []Finish) ([]Finished, error) {
	var answers []Finished
	refs := refsOf(list)
	err := d.settle(ctx, func(tx *sqldb.Tx) (*settle.Settlement, error) {
		answers = nil
		s, err := settle.OpenAttempts(ctx, tx, d.modes, ids(refs), hints(refs))
		if err != nil {
			return nil, err
		}
		var late []evidence
		for i := range list {
			answer, err := finish(s, &list[i])
			if err != nil {
				return nil, err
			}
			if answer.Refusal == nil && answer.Status != wire.FinishRecorded {
				late = append(late, lateFinish(s, &list[i]))
			}
			answers = append(answers, answer)
		}
		return s, saveEvidence(ctx, tx, late)
	})
	if err != nil {
		return nil, fmt.Errorf("finish attempts: %w", err)
	}
	return answers, nil
}

func refsOf(list []Finish) []Ref {
	refs := make([]Ref, len(list))
	for i := range list {
		refs[i] = list[i].Ref
	}
	return refs
}

func finish(s *settle.Settlement, f *Finish) (Finished, error) {
	a := s.Attempt(f.Attempt)
	switch {
	case !f.owns(a):
		return Finished{Refusal: refuseUnknown}, nil
	case !a.Live():
		return finishEnded(s, a, f), nil
	case a.State == task.AttemptLeased:
		return Finished{Refusal: refuseNotStarted}, nil
	case a.TimeoutAt.Int64 <= s.Now:
		// The report comes too late to be the truth about this attempt: it ends unknown
		// (STATE-024), as recovery would have ended it.
		if _, err := s.EndAttempt(a, settle.Lost(a, s.Task(a.Task))); err != nil {
			return Finished{}, err
		}
		return finishEnded(s, a, f), nil
	}
	c, err := s.EndAttempt(a, f.ending())
	var forbidden *task.ForbiddenError
	switch {
	case errors.As(err, &forbidden):
		return Finished{Refusal: &Refusal{orbit.CodeStateConflict, refusedStop}}, nil
	case err != nil:
		return Finished{}, err
	}
	return Finished{Status: wire.FinishRecorded, TaskState: c.To.String()}, nil
}

// A running attempt allows every outcome but this one.
const refusedStop = "outcome CANCELLED needs a cancel intent: report UNKNOWN or FAILED instead"

// finishEnded answers a finish of an attempt that has ended: the stored answer to a
// repeat, else which of the reasons it is too late.
func finishEnded(s *settle.Settlement, a *settle.Attempt, f *Finish) Finished {
	if digest := f.digest(); string(a.Receipt) == string(f.Receipt) && string(a.FinishDigest) == string(digest) {
		return parseAnswer(a.FinishAnswer)
	}
	t := s.Task(a.Task)
	answer := Finished{Status: wire.FinishFinished, TaskState: t.State.String()}
	switch {
	case len(a.Receipt) > 0: // another result was recorded
	case t.Epoch > a.Epoch:
		answer.Status = wire.FinishReplaced
	case expired(a):
		answer.Status = wire.FinishExpired
	}
	return answer
}

// expired reports whether an attempt was ended because nothing was heard of it in time.
func expired(a *settle.Attempt) bool {
	return len(a.Receipt) == 0 && (a.Outcome == task.OutcomeUnknown || a.Outcome == task.OutcomeNotStarted)
}

func (f *Finish) ending() settle.Ending {
	return settle.Ending{
		Act: f.act(), Outcome: f.Outcome, Reason: "",
		Receipt: f.Receipt, Digest: f.digest(), Answer: storedAnswer,
		Result: f.Result, Error: f.Error, Retryable: f.Retryable,
	}
}

func (f *Finish) act() task.Act {
	switch {
	case f.Outcome == task.OutcomeSucceeded:
		return task.ActSucceed
	case f.Outcome == task.OutcomeFailed && f.Retryable:
		return task.ActFailRetryable
	case f.Outcome == task.OutcomeFailed:
		return task.ActFail
	case f.Outcome == task.OutcomeCancelled:
		return task.ActStop
	}
	return task.ActLose
}

// digest tells whether two finishes report the same.
func (f *Finish) digest() []byte {
	h := sha256.New()
	retryable := byte(0)
	if f.Retryable {
		retryable = 1
	}
	h.Write([]byte{byte(f.Outcome), retryable})
	for _, part := range [][]byte{f.Receipt, f.Result, f.Error} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// The stored answer to a finish is its status and the state of its task, at that time.
func storedAnswer(s task.State) []byte { return []byte(wire.FinishRecorded + " " + s.String()) }

func parseAnswer(stored []byte) Finished {
	status, state, _ := strings.Cut(string(stored), " ")
	return Finished{Status: status, TaskState: state}
}

package dispatch

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Returned answers a hand-back.
type Returned struct {
	Refusal *Refusal
}

// Return hands un-started attempts back: their tasks wait again at once. It uses nothing
// of max_attempts (AMB-034). An attempt that has ended already is answered the same way.
func (d *Dispatcher) Return(ctx context.Context, refs []Ref) ([]Returned, error) {
	return inBatches(ctx, d, refs, d.returnBatch, func(r *Refusal) Returned { return Returned{Refusal: r} })
}

func (d *Dispatcher) returnBatch(ctx context.Context, refs []Ref) ([]Returned, error) {
	var answers []Returned
	err := d.settle(ctx, func(tx *sqldb.Tx) (*settle.Settlement, error) {
		answers = nil
		s, err := settle.OpenAttempts(ctx, tx, d.modes, ids(refs), hints(refs))
		if err != nil {
			return nil, err
		}
		for _, r := range refs {
			answer, err := giveBack(s, r)
			if err != nil {
				return nil, err
			}
			answers = append(answers, answer)
		}
		return s, nil
	})
	if err != nil {
		return nil, fmt.Errorf("return attempts: %w", err)
	}
	return answers, nil
}

func giveBack(s *settle.Settlement, r Ref) (Returned, error) {
	a := s.Attempt(r.Attempt)
	switch {
	case !r.owns(a):
		return Returned{Refusal: refuseUnknown}, nil
	case a.State == task.AttemptRunning:
		return Returned{Refusal: refuseRunning}, nil
	case !a.Live():
		return Returned{}, nil
	}
	_, err := s.EndAttempt(a, settle.Ending{Act: task.ActGiveBack, Outcome: task.OutcomeNotStarted, Reason: settle.ReasonReturned})
	return Returned{}, err
}

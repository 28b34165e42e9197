package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Started answers a start. Without a Refusal the right to execute is confirmed, for as
// long as Lease and Timeout say.
type Started struct {
	Refusal      *Refusal
	Lease        time.Duration // left
	Timeout      time.Duration // left of the attempt timeout; no renewal goes past it
	CancelWanted bool
	Hint         Hint // what to remember of the attempt from now on
}

// Start confirms starts. The first one of an attempt begins its timeout; a repeat gets
// the confirmation again while its lease lasts. A start after a deadline of the task is
// refused, and ends the task. Refs that cannot be answered for are refused one by one;
// an error means that the outcome of all is unknown.
func (d *Dispatcher) Start(ctx context.Context, refs []Ref) ([]Started, error) {
	return inBatches(ctx, d, refs, d.startBatch, func(r *Refusal) Started { return Started{Refusal: r} })
}

func (d *Dispatcher) startBatch(ctx context.Context, refs []Ref) ([]Started, error) {
	var (
		answers []Started
		late    []sqldb.ID
		tally   settle.Tally
	)
	err := d.tx(ctx, func(tx *sqldb.Tx) error {
		answers, late = nil, nil
		var ended map[process]bool
		s, err := settle.OpenToStart(ctx, tx, ids(refs), hints(refs), func() (now int64, err error) {
			now, ended, err = barred(ctx, tx, refs)
			return now, err
		})
		if err != nil {
			return err
		}
		for _, r := range refs {
			if ended[process{r.Namespace, r.Process}] {
				answers = append(answers, Started{Refusal: refuseBarred})
				continue
			}
			answer, err := d.start(s, r)
			if err != nil {
				return err
			}
			if answer.Refusal != nil && answer.Refusal.Code == wire.CodeStartDeadline {
				late = append(late, r.Attempt)
			}
			answers = append(answers, answer)
		}
		_, err = s.Flush(ctx)
		tally = s.Tally()
		return err
	})
	if err == nil {
		d.watch.Settled(tally)
	}
	if err == nil && len(late) > 0 {
		err = d.endLate(ctx, late)
	}
	if err != nil {
		return nil, fmt.Errorf("start attempts: %w", err)
	}
	return answers, nil
}

func (d *Dispatcher) start(s *settle.Settlement, r Ref) (Started, error) {
	a := s.Attempt(r.Attempt)
	if !r.owns(a) {
		return Started{Refusal: refuseUnknown}, nil
	}
	t := s.Task(a.Task)
	switch {
	case !a.Live():
		return Started{Refusal: refuseLate(a, t.Epoch)}, nil
	case a.LeaseUntil <= s.Now:
		return Started{Refusal: refuseExpired}, nil
	case a.State == task.AttemptRunning: // a repeat
		return startedNow(s, a, t), nil
	}
	if reason := t.TooLate(s.Now); reason != "" {
		return Started{Refusal: &Refusal{wire.CodeStartDeadline, "the task may not begin any more: " + reason}}, nil
	}
	if err := s.StartAttempt(a, d.lease); err != nil {
		return Started{}, err
	}
	return startedNow(s, a, t), nil
}

func startedNow(s *settle.Settlement, a *settle.Attempt, t *settle.Task) Started {
	return Started{
		Lease:        left(a.LeaseUntil, s.Now),
		Timeout:      left(a.TimeoutAt.Int64, s.Now),
		CancelWanted: t.CancelAt.Valid,
		Hint:         settle.NewHint(t, a),
	}
}

// endLate ends leased attempts whose task may not begin any more. It needs the keys,
// which a start does not lock.
func (d *Dispatcher) endLate(ctx context.Context, attempts []sqldb.ID) error {
	return d.settle(ctx, func(tx *sqldb.Tx) (*settle.Settlement, error) {
		s, err := settle.OpenAttempts(ctx, tx, d.modes, attempts, nil)
		if err != nil {
			return nil, err
		}
		for _, id := range attempts {
			a := s.Attempt(id)
			if a == nil || a.State != task.AttemptLeased {
				continue
			}
			reason := s.Task(a.Task).TooLate(s.Now)
			if reason == "" {
				continue
			}
			if _, err := s.EndAttempt(a, settle.Ending{Act: task.ActExpire, Outcome: task.OutcomeNotStarted, Reason: reason}); err != nil {
				return nil, err
			}
		}
		return s, nil
	})
}

// settle runs f in a transaction, flushes what it did, and wakes the lanes that got
// something.
func (d *Dispatcher) settle(ctx context.Context, f func(*sqldb.Tx) (*settle.Settlement, error)) error {
	var (
		lanes []int64
		tally settle.Tally
	)
	err := d.tx(ctx, func(tx *sqldb.Tx) error {
		s, err := f(tx)
		if err != nil {
			return err
		}
		lanes, err = s.Flush(ctx)
		tally = s.Tally()
		return err
	})
	if err == nil {
		d.watch.Settled(tally)
	}
	if err == nil && len(lanes) > 0 {
		d.wake(lanes)
	}
	return err
}

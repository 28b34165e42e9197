package everycall_test

import (
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/task"
)

// refusal is the error of an answer that refuses.
func refusal(r *dispatch.Refusal) error {
	if r == nil {
		return nil
	}
	return errors.New(r.Message)
}

func claim(s *sweep, n *node) error {
	c, err := n.dispatch.Claim(s.Context(), []dispatch.Lane{s.x.Lane()}, []dispatch.Taker{s.taker})
	s.given = append(s.given, c.Grants...)
	if err == nil && len(c.Grants) == 0 {
		err = errNothing
	}
	return err
}

// claimedOnce: a lease that nobody knows of would be one whose commit was taken for a
// failure.
func claimedOnce(s *sweep) error {
	if len(s.given) != 1 || s.given[0].Token != 1 {
		return fmt.Errorf("%d grants were given, want one with token 1", len(s.given))
	}
	return s.expect(s.first, "LEASED", 2, task.DispatchNone)
}

func start(s *sweep, n *node) error {
	got, err := n.dispatch.Start(s.Context(), []dispatch.Ref{s.ref})
	if err == nil {
		err = refusal(got[0].Refusal)
	}
	return err
}

func isRunning(s *sweep) error { return s.expect(s.first, "RUNNING", 3, task.DispatchNone) }

func finish(s *sweep, n *node) error {
	got, err := n.dispatch.Finish(s.Context(), []dispatch.Finish{{Ref: s.ref, Receipt: []byte("r"), Outcome: task.OutcomeSucceeded, Result: []byte("1")}})
	if err == nil && (got[0].Status != wire.FinishRecorded || got[0].TaskState != "SUCCEEDED") {
		err = fmt.Errorf("finish = %+v", got[0])
	}
	return err
}

func hasSucceeded(s *sweep) error {
	return errors.Join(s.expect(s.first, "SUCCEEDED", 4, task.DispatchNone), s.nextIsReady(),
		s.expectCount(1, "SELECT COUNT(*) FROM task t JOIN attempt a ON a.task_id = t.id WHERE t.id = ? AND t.result = ? AND a.result = t.result", s.first, []byte("1")))
}

// attempts are the transactions of an attempt.
var attempts = []act{
	{
		name: "claim", calls: 6,
		before: func(s *sweep) { s.first = s.w.Submit(s.x) },
		do:     claim,
		check:  claimedOnce,
	},
	{
		name: "claim from a limited queue", calls: 6,
		before: func(s *sweep) {
			s.first = s.w.Submit(s.x)
			s.w.Exec("UPDATE queue SET max_concurrency = 1 WHERE id = ?", s.x.Queue)
		},
		do:    claim,
		check: claimedOnce,
	},
	{
		name: "start", calls: 3,
		before: func(s *sweep) { s.lease(false) },
		do:     start,
		check:  isRunning,
	},
	{
		name: "start of what the node does not remember", calls: 6,
		before: func(s *sweep) { s.lease(false); s.forget() },
		do:     start,
		check:  isRunning,
	},
	{
		name: "renew", calls: 4,
		before: func(s *sweep) { s.lease(true) },
		do: func(s *sweep, n *node) error {
			got, err := n.dispatch.Renew(s.Context(), []dispatch.Renewal{{Ref: s.ref, Progress: []byte("p")}})
			if err == nil {
				err = refusal(got[0].Refusal)
			}
			return err
		},
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "RUNNING", 3, task.DispatchNone),
				s.expectCount(1, "SELECT COUNT(*) FROM attempt WHERE id = ? AND progress = ?", s.ref.Attempt, []byte("p")))
		},
	},
	{
		name: "resume", calls: 3,
		before: func(s *sweep) { s.lease(true) },
		do: func(s *sweep, n *node) error {
			got, err := n.dispatch.Resume(s.Context(), []dispatch.Ref{s.ref})
			if err == nil && got[0].Status != wire.ResumeKeep {
				err = fmt.Errorf("resume = %+v", got[0])
			}
			return err
		},
		check: func(s *sweep) error { return s.expect(s.first, "RUNNING", 3, task.DispatchNone) },
	},
	{
		name: "finish", calls: 6,
		before: func(s *sweep) { s.lease(true) },
		do:     finish,
		check:  hasSucceeded,
	},
	{
		name: "finish of what the node does not remember", calls: 9,
		before: func(s *sweep) { s.lease(true); s.forget() },
		do:     finish,
		check:  hasSucceeded,
	},
	{
		name: "return", calls: 6,
		before: func(s *sweep) { s.lease(false) },
		do: func(s *sweep, n *node) error {
			got, err := n.dispatch.Return(s.Context(), []dispatch.Ref{s.ref})
			if err == nil {
				err = refusal(got[0].Refusal)
			}
			return err
		},
		check: func(s *sweep) error { // it is older than the next one, and so the first in line
			return errors.Join(s.expect(s.first, "WAITING", 3, task.DispatchReady), s.expect(s.next, "WAITING", 1, task.DispatchKeyBlocked))
		},
	},
}

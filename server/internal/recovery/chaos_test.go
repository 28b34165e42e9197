package recovery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Submitters, workers and sweepers on two nodes whose connections break all the time, with
// leases so short that many end under their workers. When it is over every task has
// succeeded, and no key ever had two holders (LIC-020, TOK-004).
func TestInvariantsHoldWhileConnectionsBreak(t *testing.T) {
	const tasks, keys = 50, 5
	run(t, func(s scene) {
		seed := rand.Uint64()
		s.Logf("seed %d", seed)
		x := spec{Queue: s.w.NewQueue("q"), Key: "k", Idempotent: true, MaxAttempts: 100}
		calls := []*dbfault.Faults{dbfault.Open(s, s.db), dbfault.Open(s, s.db)}
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i, c := range calls {
			node, err := dispatch.New(c.DB, fmt.Sprintf("node-%d", i), dispatch.Config{Lease: 200 * time.Millisecond, ShortLease: true})
			if err != nil {
				s.Fatal(err)
			}
			r := recovery.New(c.DB, recovery.Config{Interval: 50 * time.Millisecond, StrandedInterval: time.Hour})
			wg.Go(func() { r.Run(ctx) })
			for j := range 3 {
				wg.Go(func() { chaosWorker{s: s, node: node, x: x}.run(ctx, rand.New(rand.NewPCG(seed, uint64(10*i+j)))) })
			}
		}
		fired := 0
		wg.Go(func() { fired = breakThings(ctx, calls, rand.New(rand.NewPCG(seed, 99))) })
		for i := range tasks {
			one := x
			one.Key = fmt.Sprintf("key-%d", i%keys)
			s.w.Submit(one)
		}
		s.until3m(ctx, func() bool { return s.w.Int("SELECT COUNT(*) FROM task WHERE state = 5") == tasks })
		cancel()
		wg.Wait()
		if fired < 5 {
			s.Errorf("only %d calls were broken", fired)
		}
		s.Logf("%d calls broken, %d attempts for %d tasks", fired, s.w.Int("SELECT COUNT(*) FROM attempt"), tasks)
	})
}

func (s scene) until3m(ctx context.Context, ok func() bool) {
	s.Helper()
	for ctx.Err() == nil {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.Error("the tasks did not all succeed in time")
}

// breakThings breaks a call now and then and returns how many.
func breakThings(ctx context.Context, calls []*dbfault.Faults, r *rand.Rand) int {
	fired := 0
	for ctx.Err() == nil {
		for _, c := range calls {
			if _, hit := c.Disarm(); hit {
				fired++
			}
			c.Arm(1+r.IntN(30), dbfault.Failures[r.IntN(len(dbfault.Failures))])
		}
		time.Sleep(40 * time.Millisecond)
	}
	for _, c := range calls {
		c.Disarm()
	}
	return fired
}

// A chaosWorker does what it is given, now and then badly. What fails it forgets: leases
// end.
type chaosWorker struct {
	s    scene
	node *dispatch.Dispatcher
	x    spec
}

func (w chaosWorker) run(ctx context.Context, r *rand.Rand) {
	lane := w.x.Lane()
	for ctx.Err() == nil {
		taker := w.s.w.Taker(1+r.IntN(4), lane)
		c, err := w.node.Claim(ctx, []dispatch.Lane{lane}, []dispatch.Taker{taker})
		if err != nil || len(c.Grants) == 0 {
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
			continue
		}
		for _, g := range c.Grants {
			w.do(ctx, r, dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: taker.Namespace})
		}
	}
}

func (w chaosWorker) do(ctx context.Context, r *rand.Rand, ref dispatch.Ref) {
	switch r.IntN(12) {
	case 0:
		w.node.Return(ctx, []dispatch.Ref{ref})
		return
	case 1:
		return // forgotten before its start
	}
	started, err := w.node.Start(ctx, []dispatch.Ref{ref})
	if err != nil || started[0].Refusal != nil || r.IntN(12) == 0 {
		return
	}
	f := dispatch.Finish{Ref: ref, Receipt: []byte("r"), Outcome: task.OutcomeSucceeded}
	switch r.IntN(6) {
	case 0:
		f.Outcome, f.Retryable = task.OutcomeFailed, true
	case 1:
		f.Outcome = task.OutcomeUnknown
	}
	w.node.Finish(ctx, []dispatch.Finish{f, f})
}

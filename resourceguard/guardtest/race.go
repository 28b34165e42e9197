package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/orbitkit/orbit/resourceguard"
)

const (
	racers    = 8   // writers at once
	rounds    = 4   // races that count
	maxRounds = 100 // races tried for it
)

// An outcome is what one write of a race got.
type outcome struct {
	step step
	got  resourceguard.Result
	err  error
}

// contest runs races until enough of them count: those in which two writes were under
// way at one moment. One that does not count can still show a broken guard.
func (t *trial) contest(ctx context.Context, deal func(round int) []step, judge func([]outcome) error) error {
	counted := 0
	for round := range maxRounds {
		outcomes, overlapped, err := t.race(ctx, deal(round))
		if err == nil {
			err = judge(outcomes)
		}
		if err != nil {
			return err
		}
		if overlapped {
			counted++
		}
		if counted == rounds {
			return nil
		}
	}
	return fmt.Errorf("%w: in %d of %d races no two writes were under way at once", ErrUnsupported, maxRounds-counted, maxRounds)
}

// race deals steps to racers that begin together, half of them through a store of
// their own if there is one, and returns what each step got.
func (t *trial) race(ctx context.Context, steps []step) (outcomes []outcome, overlapped bool, err error) {
	stores, err := t.stores(ctx)
	if err != nil {
		return nil, false, err
	}
	outcomes = make([]outcome, len(steps))
	start := make(chan struct{})
	var running sync.WaitGroup
	var underWay atomic.Int32
	var met atomic.Bool
	for racer := range racers {
		running.Go(func() {
			<-start
			for i := racer; i < len(steps); i += racers {
				if underWay.Add(1) > 1 {
					met.Store(true)
				}
				got, err := t.apply(ctx, stores[racer%len(stores)], steps[i])
				underWay.Add(-1)
				outcomes[i] = outcome{steps[i], got, err}
			}
		})
	}
	close(start)
	running.Wait()
	return outcomes, met.Load(), nil
}

// raceOfFirstContact lets all racers meet a new key at once, each with its own token.
func raceOfFirstContact(ctx context.Context, t *trial) error {
	return t.raceForKeys(ctx, racers, Commit)
}

// raceOfShuffledTokens lets the racers write many times, in no order.
func raceOfShuffledTokens(ctx context.Context, t *trial) error {
	return t.raceForKeys(ctx, 4*racers, Commit)
}

// raceOfRollbacks lets every second token be rolled back, the largest among them.
func raceOfRollbacks(ctx context.Context, t *trial) error {
	return t.raceForKeys(ctx, 4*racers, RollBack)
}

// raceForKeys deals tokens 1 to writes, which rise on the whole and are in no order at
// close range, so that all along some are accepted and some too late; even ones end as
// told.
func (t *trial) raceForKeys(ctx context.Context, writes int, even End) error {
	deal := func(round int) []step {
		steps := make([]step, writes)
		for i, n := range shuffled(writes) {
			steps[i] = present(uint64(n+1), fmt.Sprintf("operation-%d", n)).on(fmt.Sprintf("race/%d", round))
			if n%2 == 1 {
				steps[i].end = even
			}
		}
		return steps
	}
	return t.contest(ctx, deal, func(outcomes []outcome) error {
		key := outcomes[0].step.write.Key
		if err := t.inOrder(ctx, key, outcomes); err != nil {
			return fmt.Errorf("%d racing writes: %w", writes, err)
		}
		// The final maximum is the largest token that was committed, whoever came last.
		largest := uint64(writes)
		if even != Commit {
			largest--
		}
		return t.play(ctx, t.store, present(largest-1, "probe").on(key).isStale(largest))
	})
}

// shuffled are the numbers below n, each at most two rounds of the racers from its place.
func shuffled(n int) []int {
	numbers, places := make([]int, n), make([]int, n)
	for i := range n {
		numbers[i], places[i] = i, i+rand.IntN(2*racers)
	}
	slices.SortStableFunc(numbers, func(a, b int) int { return places[a] - places[b] })
	return numbers
}

// inOrder checks that what was applied and committed, and nothing else, is in the log,
// that its tokens never fall in the order of commits, and that all others were stale.
func (t *trial) inOrder(ctx context.Context, key string, outcomes []outcome) error {
	log, err := t.store.Log(ctx, "namespace", key)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	for i := 1; i < len(log); i++ {
		if log[i].Token < log[i-1].Token {
			return fmt.Errorf("token %d was accepted after %d: %v", log[i].Token, log[i-1].Token, log)
		}
	}
	committed := 0
	for _, o := range outcomes {
		if errors.Is(o.err, ErrUnsupported) {
			return o.err
		}
		verdict := wantApplied(o.step, o.got, o.err)
		if verdict != nil && !staleBelow(o, log) {
			return fmt.Errorf("%s, neither applied nor stale: %w", o.step, verdict)
		}
		wanted := verdict == nil && o.step.end == Commit
		if wanted != slices.Contains(log, o.step.entry()) {
			return fmt.Errorf("%s: committed is %t, but the log holds %v", o.step, wanted, log)
		}
		if wanted {
			committed++
		}
	}
	if committed != len(log) {
		return fmt.Errorf("%d writes were committed, the log holds %v", committed, log)
	}
	t.logs[place{"namespace", key}] = log
	return nil
}

// raceOfNewKeys lets the racers meet a new key each, again and again: keys that lie
// side by side do not stand in each other's way.
func raceOfNewKeys(ctx context.Context, t *trial) error {
	deal := func(round int) []step {
		steps := make([]step, 2*racers)
		for i := range steps {
			steps[i] = present(5, "a").on(fmt.Sprintf("new/%d/%d", round, i))
		}
		return steps
	}
	return t.contest(ctx, deal, func(outcomes []outcome) error {
		for _, o := range outcomes {
			if err := wantApplied(o.step, o.got, o.err); err != nil {
				return fmt.Errorf("%s: %w", o.step, err)
			}
			t.expect(o.step)
		}
		return nil
	})
}

// staleBelow reports whether o was refused as stale because of a token that was
// accepted.
func staleBelow(o outcome, log []Entry) bool {
	var stale *resourceguard.StaleError
	if !errors.As(o.err, &stale) || stale.Presented != o.step.write.Token || stale.Highest <= stale.Presented {
		return false
	}
	return slices.ContainsFunc(log, func(e Entry) bool { return e.Token == stale.Highest })
}

// raceOfOneOperation lets one attempt send the same operation many times at once.
func raceOfOneOperation(ctx context.Context, t *trial) error {
	deal := func(round int) []step {
		steps := make([]step, racers)
		for i := range steps {
			steps[i] = present(5, "a").on(fmt.Sprintf("repeat/%d", round)).answers(fmt.Sprintf("receipt of writer %d", i))
		}
		return steps
	}
	return t.contest(ctx, deal, func(outcomes []outcome) error { return t.oneApplied(outcomes, false) })
}

// raceOfAttempts lets several attempts of a task do its operation at once.
func raceOfAttempts(ctx context.Context, t *trial) error {
	deal := func(round int) []step {
		steps := make([]step, racers)
		for i, n := range rand.Perm(racers) {
			steps[i] = present(uint64(n+1), "a").on(fmt.Sprintf("attempts/%d", round))
		}
		return steps
	}
	return t.contest(ctx, deal, func(outcomes []outcome) error { return t.oneApplied(outcomes, true) })
}

// oneApplied wants one application whose receipt all repeats got. Late ones may be
// stale where the tokens differ.
func (t *trial) oneApplied(outcomes []outcome, mayBeStale bool) error {
	var receipts []string
	applied := 0
	for _, o := range outcomes {
		switch {
		case o.err == nil:
			receipts = append(receipts, string(o.got.Receipt))
			if o.got.Verdict == resourceguard.Applied {
				applied++
				t.expect(o.step)
			}
		case !mayBeStale || !errors.Is(o.err, resourceguard.ErrStale):
			return fmt.Errorf("%s: %w", o.step, o.err)
		}
	}
	if applied != 1 || len(slices.Compact(receipts)) != 1 {
		return fmt.Errorf("racing repeats of one operation: applied %d times, receipts %q, want one of each", applied, receipts)
	}
	return nil
}

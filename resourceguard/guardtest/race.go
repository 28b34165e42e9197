package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/orbitkit/orbit/resourceguard"
)

const (
	racers = 8 // writers at once
	rounds = 4 // keys raced for
)

// An outcome is what one write of a race got.
type outcome struct {
	step step
	got  resourceguard.Result
	err  error
}

// race deals steps to racers that begin together, half of them through a store of
// their own if there is one, and returns what each step got.
func (t *trial) race(ctx context.Context, steps []step) ([]outcome, error) {
	stores, err := t.stores(ctx)
	if err != nil {
		return nil, err
	}
	outcomes := make([]outcome, len(steps))
	start := make(chan struct{})
	var running sync.WaitGroup
	for racer := range racers {
		running.Go(func() {
			<-start
			for i := racer; i < len(steps); i += racers {
				got, err := t.apply(ctx, stores[racer%len(stores)], steps[i])
				outcomes[i] = outcome{steps[i], got, err}
			}
		})
	}
	close(start)
	running.Wait()
	return outcomes, nil
}

// raceOfFirstContact lets all racers meet a new key at once, each with its own token.
func raceOfFirstContact(ctx context.Context, t *trial) error {
	return t.raceForKeys(ctx, racers, Commit)
}

// raceOfShuffledTokens lets the racers write many times, in no order.
func raceOfShuffledTokens(ctx context.Context, t *trial) error {
	return t.raceForKeys(ctx, 6*racers, Commit)
}

// raceOfRollbacks lets every second token be rolled back, the largest among them.
func raceOfRollbacks(ctx context.Context, t *trial) error {
	return t.raceForKeys(ctx, 6*racers, RollBack)
}

// raceForKeys deals tokens 1 to writes in no order; even ones end as told.
func (t *trial) raceForKeys(ctx context.Context, writes int, even End) error {
	for round := range rounds {
		key := fmt.Sprintf("race/%d", round)
		largest := uint64(0) // of those that commit
		steps := make([]step, writes)
		for i, n := range rand.Perm(writes) {
			steps[i] = present(uint64(n+1), fmt.Sprintf("operation-%d", n)).on(key)
			if n%2 == 1 {
				steps[i].end = even
			}
			if steps[i].end == Commit {
				largest = max(largest, uint64(n+1))
			}
		}
		outcomes, err := t.race(ctx, steps)
		if err != nil {
			return err
		}
		if err := t.inOrder(ctx, key, outcomes); err != nil {
			return fmt.Errorf("%d racing writes: %w", writes, err)
		}
		// The final maximum is the largest token, whoever came last.
		last := present(largest-1, "probe").on(key).isStale(largest)
		if err := t.play(ctx, t.store, last); err != nil {
			return err
		}
	}
	return nil
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
	steps := make([]step, 6*racers)
	for i := range steps {
		steps[i] = present(5, "a").on(fmt.Sprintf("new/%d", i))
	}
	outcomes, err := t.race(ctx, steps)
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		if err := wantApplied(o.step, o.got, o.err); err != nil {
			return fmt.Errorf("%s: %w", o.step, err)
		}
		t.expect(o.step)
	}
	return nil
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
	for round := range rounds {
		steps := make([]step, racers)
		for i := range steps {
			steps[i] = present(5, "a").on(fmt.Sprintf("repeat/%d", round)).answers(fmt.Sprintf("receipt of writer %d", i))
		}
		outcomes, err := t.race(ctx, steps)
		if err != nil {
			return err
		}
		if err := oneApplied(outcomes, false); err != nil {
			return err
		}
		t.expect(steps[0])
	}
	return nil
}

// raceOfAttempts lets several attempts of a task do its operation at once.
func raceOfAttempts(ctx context.Context, t *trial) error {
	for round := range rounds {
		steps := make([]step, racers)
		for i, n := range rand.Perm(racers) {
			steps[i] = present(uint64(n+1), "a").on(fmt.Sprintf("attempts/%d", round))
		}
		outcomes, err := t.race(ctx, steps)
		if err != nil {
			return err
		}
		if err := oneApplied(outcomes, true); err != nil {
			return err
		}
		for _, o := range outcomes {
			if o.got.Verdict == resourceguard.Applied {
				t.expect(o.step)
			}
		}
	}
	return nil
}

// oneApplied wants one application whose receipt all repeats got. Late ones may be
// stale where the tokens differ.
func oneApplied(outcomes []outcome, mayBeStale bool) error {
	var receipts []string
	applied := 0
	for _, o := range outcomes {
		switch {
		case o.err == nil:
			receipts = append(receipts, string(o.got.Receipt))
			if o.got.Verdict == resourceguard.Applied {
				applied++
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

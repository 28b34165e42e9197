package session

import (
	"context"
	"sync"
	"time"
)

const (
	maxBatch      = 100
	maxBatchBytes = 2 << 20
	// batchTimeout bounds how long the items of a batch wait for the database before
	// they are answered as of unknown outcome.
	batchTimeout = 20 * time.Second
)

// A batcher runs items in batches of what gathered while the last batch ran.
type batcher[Q, A any] struct {
	run   func(context.Context, []Q) ([]A, error)
	size  func(*Q) int // bytes, about
	alone bool         // each item is a batch of its own, at once: to measure what batches give
	told  func(batch []job[Q, A], answers []A, took time.Duration, err error)

	nudge   chan struct{}
	mu      sync.Mutex
	waiting turns[job[Q, A]]
	running sync.WaitGroup // items that run alone
}

// A job is an item and who wants its answer.
type job[Q, A any] struct {
	item Q
	at   time.Time      // of its arrival
	done func(A, error) // called once, not concurrently; must not block
}

func newBatcher[Q, A any](run func(context.Context, []Q) ([]A, error), size func(*Q) int) *batcher[Q, A] {
	nobody := func([]job[Q, A], []A, time.Duration, error) {}
	return &batcher[Q, A]{run: run, size: size, told: nobody, nudge: make(chan struct{}, 1)}
}

// add puts an item that is the node's own into the next batch. How many wait is bounded by
// who adds.
func (b *batcher[Q, A]) add(item Q, done func(A, error)) { b.addFor(nil, item, done) }

// addFor is add for an item of an owner: owners take turns, so that a flood of one delays
// only itself.
func (b *batcher[Q, A]) addFor(owner any, item Q, done func(A, error)) {
	if b.alone {
		b.running.Go(func() { b.serve(context.Background(), []job[Q, A]{{item, time.Now(), done}}) })
		return
	}
	b.mu.Lock()
	b.waiting.push(owner, job[Q, A]{item, time.Now(), done})
	b.mu.Unlock()
	select {
	case b.nudge <- struct{}{}:
	default:
	}
}

// Run runs batches until ctx is canceled, and then what is still waiting.
func (b *batcher[Q, A]) Run(ctx context.Context) {
	defer b.running.Wait()
	for {
		if batch := b.take(); len(batch) > 0 {
			b.serve(context.WithoutCancel(ctx), batch)
			continue
		}
		select {
		case <-b.nudge:
		case <-ctx.Done():
			if batch := b.take(); len(batch) > 0 {
				b.serve(context.WithoutCancel(ctx), batch)
				continue
			}
			return
		}
	}
}

// take removes the next batch, bounded by count and bytes.
func (b *batcher[Q, A]) take() []job[Q, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []job[Q, A]
	for bytes := 0; len(batch) < maxBatch && b.waiting.len() > 0; {
		bytes += b.size(&b.waiting.peek().item)
		if len(batch) > 0 && bytes > maxBatchBytes {
			break
		}
		batch = append(batch, b.waiting.pop())
	}
	return batch
}

func (b *batcher[Q, A]) serve(ctx context.Context, batch []job[Q, A]) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	items := make([]Q, len(batch))
	for i := range batch {
		items[i] = batch[i].item
	}
	began := time.Now()
	answers, err := b.run(ctx, items)
	b.told(batch, answers, time.Since(began), err)
	for i := range batch {
		var answer A
		if err == nil {
			answer = answers[i]
		}
		batch[i].done(answer, err)
	}
}

package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestBatcherGathersWhatComesWhileItIsBusy(t *testing.T) { // cost law 1
	var (
		batches [][]int
		busy    = make(chan struct{}, 1)
		release = make(chan struct{})
	)
	b := newBatcher(func(_ context.Context, items []int) ([]int, error) {
		batches = append(batches, slices.Clone(items))
		if len(batches) == 1 {
			busy <- struct{}{}
			<-release
		}
		return items, nil
	}, func(*int) int { return 1 })
	ctx, cancel := context.WithCancel(t.Context())
	var running, answered sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	answered.Add(251)
	done := func(int, error) { answered.Done() }
	b.add(0, done)
	<-busy
	for i := range 250 {
		b.add(i+1, done)
	}
	close(release)
	answered.Wait()
	cancel()
	running.Wait()
	var sizes []int
	for _, batch := range batches {
		sizes = append(sizes, len(batch))
	}
	if !slices.Equal(sizes, []int{1, 100, 100, 50}) {
		t.Errorf("batches of %v, want 1, 100, 100 and 50", sizes)
	}
}

func TestBatcherIsBoundedByBytes(t *testing.T) {
	var sizes []int
	b := newBatcher(func(_ context.Context, items []int) ([]int, error) {
		sizes = append(sizes, len(items))
		return items, nil
	}, func(n *int) int { return *n })
	for _, n := range []int{maxBatchBytes - 1, 1, 1, 2 * maxBatchBytes, 5} {
		b.add(n, func(int, error) {})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Run(ctx) // serves what waits, then ends
	if !slices.Equal(sizes, []int{2, 1, 1, 1}) {
		t.Errorf("batches of %v, want 2, 1, 1 and 1", sizes)
	}
}

func TestBatcherTellsEachItemOfAFailure(t *testing.T) {
	boom := errors.New("boom")
	b := newBatcher(func(context.Context, []int) ([]int, error) { return nil, boom }, func(*int) int { return 1 })
	var got []error
	for range 3 {
		b.add(1, func(_ int, err error) { got = append(got, err) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Run(ctx)
	if !slices.Equal(got, []error{boom, boom, boom}) {
		t.Errorf("items were told %v, want the failure", got)
	}
}

func TestBudgetHoldsTheReaderBack(t *testing.T) {
	b, ended := newBudget(100), make(chan struct{})
	if !b.take(500, ended) {
		t.Fatal("a message larger than the budget must pass when nothing is under way")
	}
	took := make(chan bool, 1)
	go func() { took <- b.take(1, ended) }()
	select {
	case <-took:
		t.Fatal("the budget was not held")
	default:
	}
	b.give(500)
	if !<-took {
		t.Error("what was given back was not taken")
	}
	b.take(99, ended)
	close(ended)
	if b.take(1, ended) {
		t.Error("the end of the connection does not end the wait")
	}
}

func TestItemsOfAnUngroupedBatcherRunAloneAndAreWaitedFor(t *testing.T) {
	var batches atomic.Int64
	b := newBatcher(func(_ context.Context, items []int) ([]int, error) {
		if len(items) == 1 {
			batches.Add(1)
		}
		return items, nil
	}, func(*int) int { return 1 })
	b.alone = true
	var answered atomic.Int64
	for i := range 20 {
		b.add(i, func(int, error) { answered.Add(1) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Run(ctx)
	if batches.Load() != 20 || answered.Load() != 20 {
		t.Errorf("%d batches of one and %d answers, want 20 of each", batches.Load(), answered.Load())
	}
}

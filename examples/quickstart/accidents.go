package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/orbitkit/orbit/worker"
)

// A sleeper is a worker's code whose process is paused in the middle of its first
// task, past the end of its lease, and then goes on as if nothing had happened.
type sleeper struct {
	stock  *stock
	used   atomic.Bool
	asleep chan string   // the order it holds, when it falls asleep
	wake   chan struct{} // closed to let it go on
	late   chan error    // what became of its late write
}

func newSleeper(s *stock) *sleeper {
	return &sleeper{stock: s, asleep: make(chan string, 1), wake: make(chan struct{}), late: make(chan error, 1)}
}

func (s *sleeper) reserve(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	if s.used.Swap(true) {
		return s.stock.reserve(ctx, e)
	}
	s.asleep <- e.Task.BusinessKey
	<-s.wake
	// A paused process hears of nothing: neither of the cancelled context nor that
	// someone else has taken over.
	result, err := s.stock.reserve(context.WithoutCancel(ctx), e)
	s.late <- err
	return result, err
}

// An answerLoser is a worker's code that does its first write and then cannot tell
// whether it was done, as after a broken connection.
type answerLoser struct {
	stock *stock
	used  atomic.Bool
}

func (l *answerLoser) reserve(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	result, err := l.stock.reserve(ctx, e)
	if err == nil && !l.used.Swap(true) {
		return nil, worker.Unknown(errors.New("connection lost after the write"))
	}
	return result, err
}

package auth

import (
	"context"
	"errors"
	"sync"
)

// shared lets callers who ask for the same thing at the same time share one answer. An
// answer is given only to those who asked before its work began, so it is never older
// than the question: what was changed before somebody asked, somebody sees. Who asks while
// the work is under way waits for the next.
type shared[K comparable, V any] struct {
	work func(K) (V, error) // must end by itself

	mu    sync.Mutex
	turns map[K]*turns[V]
}

// turns are the work under way for one key and the one after it, which has not begun.
type turns[V any] struct {
	running *turn[V]
	next    *turn[V]
}

type turn[V any] struct {
	done  chan struct{}
	value V
	err   error
}

func newShared[K comparable, V any](work func(K) (V, error)) *shared[K, V] {
	return &shared[K, V]{work: work, turns: map[K]*turns[V]{}}
}

// get returns the answer for key. It gives up waiting for others when ctx ends.
func (s *shared[K, V]) get(ctx context.Context, key K) (V, error) {
	mine, before, lead := s.join(key)
	if lead {
		if before != nil {
			<-before.done // others may count on this turn: it is taken whatever ctx says
			s.begin(key)
		}
		s.take(key, mine)
		return mine.value, mine.err
	}
	select {
	case <-mine.done:
		return mine.value, mine.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// join returns the turn that answers a question asked now, the one that has to end before
// it, and whether the caller is to do the work.
func (s *shared[K, V]) join(key K) (mine, before *turn[V], lead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turns[key]
	if t == nil {
		t = &turns[V]{running: newTurn[V]()}
		s.turns[key] = t
		return t.running, nil, true
	}
	if t.next == nil {
		t.next = newTurn[V]()
		return t.next, t.running, true
	}
	return t.next, nil, false
}

// errCut is the answer of a turn whose work panicked.
var errCut = errors.New("look-up was cut off")

func newTurn[V any]() *turn[V] { return &turn[V]{done: make(chan struct{}), err: errCut} }

// begin makes the next turn the running one: from here on nobody joins it.
func (s *shared[K, V]) begin(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turns[key]
	t.running, t.next = t.next, nil
}

func (s *shared[K, V]) take(key K, mine *turn[V]) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.turns[key].next == nil {
			delete(s.turns, key)
		}
		close(mine.done)
	}()
	mine.value, mine.err = s.work(key)
}

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
)

// Calls of stores and rules that have not come back: those of one store, and all.
const (
	mostCallsOfOne = 8
	mostCalls      = 128
)

var (
	errCrowded  = errors.New("reconcile: too many earlier calls of the store have not come back")
	errVanished = errors.New("reconcile: the store or rule ended the goroutine of its caller")
)

// calls counts the calls that are under way, by whom is called. A store that ignores the
// end of its context keeps a goroutine each time, so their number is bounded.
type calls struct {
	mu  sync.Mutex
	all int
	of  map[any]int
}

func (c *calls) begin(of any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[of] >= mostCallsOfOne || c.all >= mostCalls {
		return false
	}
	if c.of == nil {
		c.of = make(map[any]int)
	}
	c.of[of]++
	c.all++
	return true
}

func (c *calls) end(of any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[of]--; c.of[of] == 0 {
		delete(c.of, of)
	}
}

// who is what the calls of a store are counted by: the store, or its handler if it cannot
// be compared.
func who(store Store, h Handler) any {
	if reflect.ValueOf(store).Comparable() {
		return store
	}
	return h
}

type answer[T any] struct {
	value T
	err   error
}

// ask calls what is not ours, and comes back when ctx ends whether it does or not. A panic
// is its error. f must write to nothing that its caller reads.
func ask[T any](ctx context.Context, c *calls, of any, f func() (T, error)) (T, error) {
	var none T
	if !c.begin(of) {
		return none, errCrowded
	}
	answers := make(chan answer[T], 1)
	go func() {
		defer c.end(of)
		a := answer[T]{err: errVanished}
		defer func() {
			if v := recover(); v != nil {
				a = answer[T]{err: panicked(v)}
			}
			answers <- a
		}()
		a.value, a.err = f()
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("reconcile: the store or rule has not answered: %w", context.Cause(ctx))
	}
}

// panicked shows the value of a panic only if it is the runtime's: others may hold anything.
func panicked(v any) error {
	if e, is := v.(runtime.Error); is {
		return fmt.Errorf("reconcile: the store or rule panicked: %w", e)
	}
	return fmt.Errorf("reconcile: the store or rule panicked with a %T", v)
}

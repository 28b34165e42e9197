package handoff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ConcurrentTake lets all of tos take one ticket at the same time, from one starting
// line, and returns how many won. It judges the results and not how the store came to
// them; a store that passes has moved responsibility atomically. The verdict is an error
// unless
//
//   - exactly one wins: none means that nobody can take, several that responsibility does
//     not move atomically;
//   - each loser's error is [ErrTaken]. Another refusal, such as ErrExpired or
//     ErrNotAddressee, means that this taker never came to the contest, so that nothing is
//     proven;
//   - there is no other error. It is a fault of the infrastructure and counts as no loser:
//     else a store that cannot be reached at all would look sound.
//
// The ticket must be offered, with all of tos the same identity, its To. ttl bounds the
// whole run. After it, or at the end of ctx, ConcurrentTake returns even if the store
// ignores its context; takers that have not answered are reported, the count is that of
// the known winners, and their goroutines end when the store lets them.
//
// A nil ctx or s, fewer than two takers and a ttl that is not positive are an
// [*InvalidError]: nothing is taken. Errors of the store are wrapped.
func ConcurrentTake(ctx context.Context, s Store, key Key, tos []Agent, ttl time.Duration) (int, error) {
	switch {
	case ctx == nil:
		return 0, &InvalidError{"ctx", "must not be nil"}
	case s == nil:
		return 0, &InvalidError{"s", "must not be nil"}
	case key == "":
		return 0, &InvalidError{"key", "must not be empty"}
	case len(tos) < 2:
		return 0, &InvalidError{"tos", "must be at least two: there is no contest otherwise"}
	case ttl <= 0:
		return 0, &InvalidError{"ttl", "must be positive"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ttl, fmt.Errorf("%w after %v", context.DeadlineExceeded, ttl))
	defer cancel()
	if ctx.Err() != nil {
		return 0, fmt.Errorf("handoff: no taker has begun: %w", context.Cause(ctx))
	}
	c := contend(ctx, s, key, slices.Clone(tos))
	return c.judge()
}

// A contest is what the takers of one run got. The results of those that have not
// answered are not known.
type contest struct {
	results  []error // by taker; nil for a winner
	answered []bool
	timeout  error // why the run ended before all had answered, or nil
}

// contend runs the takers. It returns when all have answered or ctx has ended.
func contend(ctx context.Context, s Store, key Key, tos []Agent) contest {
	answers := make(chan answer, len(tos)) // who answers late is not held up
	start := make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(len(tos))
	for i, to := range tos {
		go func() {
			a := answer{taker: i, err: errEnded}
			defer func() {
				if p := recover(); p != nil {
					a.err = fmt.Errorf("the store panicked: %v", p)
				}
				answers <- a
			}()
			ready.Done()
			<-start
			_, a.err = s.Take(ctx, key, to)
		}()
	}
	ready.Wait()
	close(start)

	c := contest{results: make([]error, len(tos)), answered: make([]bool, len(tos))}
	for range tos {
		select {
		case a := <-answers:
			c.note(a)
		case <-ctx.Done():
			c.timeout = context.Cause(ctx)
			c.drain(answers)
			return c
		}
	}
	return c
}

// An answer is what a taker got.
type answer struct {
	taker int
	err   error
}

// errEnded is the result of a store that ends the goroutine of its caller.
var errEnded = errors.New("the store ended the goroutine of its caller")

func (c *contest) note(a answer) { c.results[a.taker], c.answered[a.taker] = a.err, true }

// drain notes the answers that have come already.
func (c *contest) drain(answers <-chan answer) {
	for {
		select {
		case a := <-answers:
			c.note(a)
		default:
			return
		}
	}
}

// maxReported bounds how many errors of takers a verdict names.
const maxReported = 8

// judge applies the three rules.
func (c *contest) judge() (winners int, err error) {
	var refused int
	var reasons, faults []error
	for i, r := range c.results {
		if !c.answered[i] {
			continue
		}
		switch sentinel := refusal(r); {
		case r == nil:
			winners++
		case sentinel == ErrTaken:
			refused++
		case sentinel != nil:
			refused++
			faults = append(faults, fmt.Errorf("taker %d never came to the contest: %w", i, r))
		default:
			faults = append(faults, fmt.Errorf("taker %d met a fault of the infrastructure: %w", i, r))
		}
	}
	all := len(c.results)
	if winners > 1 {
		reasons = append(reasons, fmt.Errorf("%d of %d takers won: responsibility does not move atomically", winners, all))
	}
	if refused == all { // after a fault, or without an answer, nobody knows
		reasons = append(reasons, fmt.Errorf("none of %d takers won: nobody can take", all))
	}
	if n := c.unanswered(); n > 0 {
		reasons = append(reasons, fmt.Errorf("%d of %d takers have not answered: %w", n, all, c.timeout))
	}
	if more := len(faults) - maxReported; more > 0 {
		faults = append(faults[:maxReported], fmt.Errorf("and %d takers more", more))
	}
	return winners, verdict(append(reasons, faults...))
}

func (c *contest) unanswered() (n int) {
	for _, answered := range c.answered {
		if !answered {
			n++
		}
	}
	return n
}

// refusal returns the sentinel that err is, or nil if it is none or more than one.
func refusal(err error) (is error) {
	for _, sentinel := range []error{ErrUnknownKey, ErrTaken, ErrExpired, ErrNotAddressee, ErrNotSource, ErrLeaseLost, ErrAlreadySettled} {
		if errors.Is(err, sentinel) {
			if is != nil {
				return nil
			}
			is = sentinel
		}
	}
	return is
}

// A verdictError is a verdict with all its reasons, in one line.
type verdictError struct{ reasons []error }

func verdict(reasons []error) error {
	if len(reasons) == 0 {
		return nil
	}
	return &verdictError{reasons}
}

func (e *verdictError) Error() string {
	texts := make([]string, len(e.reasons))
	for i, r := range e.reasons {
		texts[i] = r.Error()
	}
	return "handoff: contest of takers: " + strings.Join(texts, "; ")
}

func (e *verdictError) Unwrap() []error { return e.reasons }

package guardtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/orbitkit/orbit/resourceguard"
)

// Open returns an empty store. It is called once for each clause.
type Open func(ctx context.Context) (Store, error)

// A Problem is a clause that a store breaks, or one that could not be evaluated.
type Problem struct {
	Clause string // name of the clause, such as StaleTokenIsRefused

	// Err tells what was seen and what was wanted. It wraps [ErrUnsupported] if the
	// clause could not be evaluated.
	Err error
}

// String returns clause and error.
func (p Problem) String() string { return p.Clause + ": " + p.Err.Error() }

// A T is what Run needs of a *testing.T, so that this package needs no testing.
type T[S any] interface {
	Run(name string, test func(S)) bool
	Context() context.Context
	Error(args ...any)
	Skip(args ...any)
}

// Run tests a guard, one subtest for each clause: Run(t, open) in a test. What cannot be
// evaluated is skipped.
func Run[S T[S]](t S, open Open) {
	for _, c := range clauses() {
		t.Run(c.name, func(t S) {
			err := c.judge(t.Context(), open)
			if errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Check does what Run does outside of tests. It returns the clauses that a guard breaks
// and those that could not be evaluated, told apart by errors.Is(p.Err, ErrUnsupported),
// in the order in which a broken guard is best understood. None means that it conforms.
// A clause whose store has not answered within two minutes is broken; the goroutine that
// waits for such a store is left behind.
func Check(ctx context.Context, open Open) []Problem {
	var problems []Problem
	for _, c := range clauses() {
		if err := c.judge(ctx, open); err != nil {
			problems = append(problems, Problem{Clause: c.name, Err: err})
		}
	}
	return problems
}

// A clause is one promise of a guard.
type clause struct {
	name string
	test func(context.Context, *trial) error
}

// patience is how long a clause may last before its store is said to hang. A test of the
// suite shortens it.
var patience = 2 * time.Minute

var errNoStore = errors.New("open store: it must return a store or an error")

// judge tests the clause on a store of its own. A store that hangs, even one that ignores
// its context, is a problem and does not hang the caller.
func (c clause) judge(ctx context.Context, open Open) error {
	if open == nil {
		return &resourceguard.InvalidError{Field: "open", Rule: "must be given"}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := errors.New("the store ended the goroutine of its caller")
		defer func() { ended <- err }()
		err = c.play(ctx, open)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the store has not answered: %w", ctx.Err())
	}
}

func (c clause) play(ctx context.Context, open Open) (err error) {
	store, err := open(ctx)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	if store == nil {
		return errNoStore
	}
	t := &trial{store: store, logs: make(map[place][]Entry)}
	defer func() {
		if cerr := t.close(); err == nil {
			err = cerr
		}
	}()
	if err := c.test(ctx, t); err != nil {
		return err
	}
	return t.checkLogs(ctx)
}

func closeStore(s Store) error {
	if c, is := s.(io.Closer); is {
		return c.Close()
	}
	return nil
}

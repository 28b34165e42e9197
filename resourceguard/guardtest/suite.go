package guardtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
)

// Open returns an empty store. It is called once for each clause.
type Open func(ctx context.Context) (Store, error)

// A Problem is a clause that a store breaks.
type Problem struct {
	Clause string // name of the clause, such as StaleTokenIsRefused
	Err    error  // what was seen and what was wanted
}

// String returns clause and error.
func (p Problem) String() string { return p.Clause + ": " + p.Err.Error() }

// Run tests a guard, one subtest for each clause.
func Run(t *testing.T, open Open) {
	for _, c := range clauses() {
		t.Run(c.name, func(t *testing.T) {
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

// Check returns the clauses that a guard breaks and those that could not be
// evaluated. No problem and nothing skipped means that it conforms.
func Check(ctx context.Context, open Open) (problems []Problem, skipped []string) {
	for _, c := range clauses() {
		err := c.judge(ctx, open)
		switch {
		case errors.Is(err, ErrUnsupported):
			skipped = append(skipped, c.name)
		case err != nil:
			problems = append(problems, Problem{Clause: c.name, Err: err})
		}
	}
	return problems, skipped
}

// A clause is one promise of a guard.
type clause struct {
	name string
	test func(context.Context, *trial) error
}

// judge tests the clause on a store of its own.
func (c clause) judge(ctx context.Context, open Open) (err error) {
	store, err := open(ctx)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
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

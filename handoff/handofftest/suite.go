package handofftest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Run tests a store, one subtest for each clause, and last against random commands.
func Run(t *testing.T, open Open) {
	for _, c := range clauses() {
		t.Run(c.name, func(t *testing.T) {
			err := c.judge(t.Context(), open)
			if errors.Is(err, errUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("RandomCommandsAgreeWithTheModel", func(t *testing.T) { randomCommands(t.Context(), t, open) })
}

// A Problem is a clause that a store breaks.
type Problem struct {
	Clause string // such as TakeIsForTheAddresseeAlone
	Err    error  // what was seen and what was wanted
}

// String returns clause and error.
func (p Problem) String() string { return p.Clause + ": " + p.Err.Error() }

// Check returns the clauses that a store breaks and those that could not be judged. No
// problem and nothing skipped means that it conforms, as far as these go.
func Check(ctx context.Context, open Open) (problems []Problem, skipped []string) {
	for _, c := range clauses() {
		err := c.judge(ctx, open)
		switch {
		case errors.Is(err, errUnsupported):
			skipped = append(skipped, c.name)
		case err != nil:
			problems = append(problems, Problem{Clause: c.name, Err: err})
		}
	}
	return problems, skipped
}

// A clause is one promise of a store.
type clause struct {
	name string
	test func(context.Context, *trial) error
}

// patience is how long a clause may last before its store is said to hang.
const patience = 2 * time.Minute

// judge tests the clause on a host of its own. A store that hangs, even one that ignores
// its context, is a problem and does not hang the caller.
func (c clause) judge(ctx context.Context, open Open) error {
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

func (c clause) play(ctx context.Context, open Open) error {
	t, err := begin(ctx, open)
	if err != nil {
		return err
	}
	return errors.Join(c.test(ctx, t), t.end())
}

// script is a clause that plays commands; the model tells what each must get.
func script(name string, commands ...command) clause {
	return clause{name, func(ctx context.Context, t *trial) error { return t.play(ctx, commands...) }}
}

// bulk is a script of many tickets, which takes a snapshot only at its end.
func bulk(name string, commands ...command) clause {
	return clause{name, func(ctx context.Context, t *trial) error { return t.playBlind(ctx, commands...) }}
}

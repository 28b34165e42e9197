package guardtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/resourceguard"
)

// A step is one write, or one raise, and what is to come of it.
type step struct {
	write   resourceguard.Write
	raises  bool // no write: the token alone
	receipt string
	end     End
	want    func(step, resourceguard.Result, error) error
}

// present is a write to the usual key under a token. Each token belongs to an attempt
// of its own.
func present(token uint64, operation string) step {
	return step{
		write: resourceguard.Write{
			Namespace: "namespace",
			Key:       "object/42",
			Token:     token,
			Attempt:   fmt.Sprintf("attempt-%d", token),
			Operation: operation,
			Content:   []byte("content of " + operation),
		},
		receipt: receiptOf(operation, token),
	}
}

// raise presents a token without a write.
func raise(token uint64) step {
	s := present(token, "")
	s.raises = true
	return s
}

func receiptOf(operation string, token uint64) string {
	return fmt.Sprintf("receipt of %s under %d", operation, token)
}

func (s step) in(namespace string) step    { s.write.Namespace = namespace; return s }
func (s step) on(key string) step          { s.write.Key = key; return s }
func (s step) by(attempt string) step      { s.write.Attempt = attempt; return s }
func (s step) content(content string) step { s.write.Content = []byte(content); return s }
func (s step) answers(receipt string) step { s.receipt = receipt; return s }
func (s step) entry() Entry                { return Entry{s.write.Token, s.write.Operation} }

// isApplied wants the write done, with its own receipt.
func (s step) isApplied() step { s.want = wantApplied; return s }

// isAppliedButRolledBack wants it done, and undone by the owner.
func (s step) isAppliedButRolledBack() step {
	s.end = RollBack
	return s.isApplied()
}

// isDone wants a raise that is accepted.
func (s step) isDone() step {
	s.want = func(_ step, got resourceguard.Result, err error) error {
		if err != nil {
			return mismatch(got, err, "no error")
		}
		return nil
	}
	return s
}

// isRefusedByBusiness wants the error of the business write.
func (s step) isRefusedByBusiness() step {
	s.end, s.want = Refuse, wantError(ErrBusiness)
	return s
}

// isRefusedButRaised also wants to be told that the token is raised.
func (s step) isRefusedButRaised() step {
	s = s.isRefusedByBusiness()
	refused := s.want
	s.want = func(s step, got resourceguard.Result, err error) error {
		return errors.Join(refused(s, got, err), wantError(resourceguard.ErrRefused)(s, got, err))
	}
	return s
}

// isReplayed wants the receipt of the operation's first application.
func (s step) isReplayed(receipt string) step {
	s.want = func(_ step, got resourceguard.Result, err error) error {
		if err != nil || got.Verdict != resourceguard.Replayed || string(got.Receipt) != receipt {
			return mismatch(got, err, "Replayed with receipt %q", receipt)
		}
		return nil
	}
	return s
}

// isStale wants the refusal of a token below highest.
func (s step) isStale(highest uint64) step { return s.isStaleThough(highest, false) }

// isStaleThough also wants to be told whether the operation had been applied.
func (s step) isStaleThough(highest uint64, applied bool) step {
	s.want = func(s step, got resourceguard.Result, err error) error {
		var stale *resourceguard.StaleError
		want := resourceguard.StaleError{Presented: s.write.Token, Highest: highest, AlreadyApplied: applied}
		if got.Verdict != 0 || !errors.Is(err, resourceguard.ErrStale) || !errors.As(err, &stale) || *stale != want {
			return mismatch(got, err, "%+v", want)
		}
		return nil
	}
	return s
}

func (s step) isConflict() step   { s.want = wantError(resourceguard.ErrOperationConflict); return s }
func (s step) isCollision() step  { s.want = wantError(resourceguard.ErrTokenCollision); return s }
func (s step) isInvalid() step    { s.want = wantError(resourceguard.ErrInvalid); return s }
func (s step) isNotAllowed() step { s.want = wantError(resourceguard.ErrNotAuthorised); return s }

// isInvalidOrApart wants a name that the guard may refuse but must not confuse with
// another.
func (s step) isInvalidOrApart() step {
	s.want = func(s step, got resourceguard.Result, err error) error {
		if errors.Is(err, resourceguard.ErrInvalid) && got.Verdict == 0 {
			return nil
		}
		return wantApplied(s, got, err)
	}
	return s
}

func wantApplied(s step, got resourceguard.Result, err error) error {
	if err != nil || got.Verdict != resourceguard.Applied || !bytes.Equal(got.Receipt, []byte(s.receipt)) {
		return mismatch(got, err, "Applied with receipt %q", s.receipt)
	}
	return nil
}

func wantError(want error) func(step, resourceguard.Result, error) error {
	return func(_ step, got resourceguard.Result, err error) error {
		if got.Verdict != 0 || !errors.Is(err, want) {
			return mismatch(got, err, "error %q", want)
		}
		return nil
	}
}

func mismatch(got resourceguard.Result, err error, want string, args ...any) error {
	want = fmt.Sprintf(want, args...)
	if err != nil {
		return fmt.Errorf("want %s, got error: %w", want, err)
	}
	return fmt.Errorf("want %s, got %v with receipt %q", want, got.Verdict, got.Receipt)
}

// script is a clause of steps taken one after the other. Each write that commits, and
// no other, is to be in the log of its key.
func script(name string, steps ...step) clause {
	return clause{name: name, test: func(ctx context.Context, t *trial) error {
		return t.play(ctx, t.store, steps...)
	}}
}

func (t *trial) play(ctx context.Context, store Store, steps ...step) error {
	for i, s := range steps {
		got, err := t.apply(ctx, store, s)
		if errors.Is(err, ErrUnsupported) {
			return err
		}
		if err := s.want(s, got, err); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, s, err)
		}
		t.watch(s)
		if got.Verdict == resourceguard.Applied && s.end == Commit {
			t.expect(s)
		}
	}
	return nil
}

func (s step) String() string {
	w := s.write
	if s.raises {
		return fmt.Sprintf("raise to token %d by attempt %q on %q %q", w.Token, w.Attempt, w.Namespace, w.Key)
	}
	return fmt.Sprintf("operation %q under token %d of attempt %q on %q %q", w.Operation, w.Token, w.Attempt, w.Namespace, w.Key)
}

package resourceguard

import (
	"context"
	"fmt"
)

// seen is what a resource knows: its highest token and the attempt that it belongs
// to. The zero value is a resource that has seen no token.
type seen struct {
	highest uint64
	attempt string // empty: raised by a reconciler
}

// admit refuses a token that is too low, or that belongs to another attempt. A
// reconciler, without an attempt, claims no token and so collides with none.
func (s seen) admit(token uint64, attempt string) error {
	switch {
	case token < s.highest:
		return &StaleError{Presented: token, Highest: s.highest}
	case token == s.highest && attempt != s.attempt && attempt != "":
		return &CollisionError{Token: token, Presented: attempt, Holder: s.attempt}
	}
	return nil
}

// lock makes the row of a key if there is none, locks it until the end of the
// transaction and returns what it says. The row comes first, since two that both lock
// an absent row cannot both insert it.
func (g *Guard) lock(ctx context.Context, tx Tx, namespace, key string) (seen, error) {
	ns, k := []byte(namespace), []byte(key)
	if _, err := tx.ExecContext(ctx, g.sql.makeKey, ns, k, g.dialect.Uint64(0), []byte{}); err != nil {
		return seen{}, fmt.Errorf("lock resource key: %w", err)
	}
	var s seen
	err := tx.QueryRowContext(ctx, g.sql.lockKey, ns, k).Scan(g.dialect.ScanUint64(&s.highest), &s.attempt)
	if err != nil {
		return seen{}, fmt.Errorf("read resource key: %w", err)
	}
	return s, nil
}

// raise makes f the highest token of its key, whose row is locked and says s.
func (g *Guard) raise(ctx context.Context, tx Tx, s seen, f Fence) error {
	if f.Token <= s.highest {
		return nil
	}
	_, err := tx.ExecContext(ctx, g.sql.raiseKey,
		g.dialect.Uint64(f.Token), []byte(f.Attempt), []byte(f.Namespace), []byte(f.Key))
	if err != nil {
		return fmt.Errorf("raise token: %w", err)
	}
	return nil
}

// Raise makes the resource refuse every token below f's from the moment that tx
// commits, without a write. A worker raises before its first effect, so that its
// predecessor is fenced at once; a reconciler raises to the fence_token of an attempt
// that ended unknown, with no attempt of its own. The present maximum is left as it
// is.
//
// A higher maximum is reported as [ErrStale]: a worker has lost the resource, a
// reconciler has nothing left to fence. The present maximum from another attempt is
// an [ErrTokenCollision]. Other errors are those of [Guard.Apply].
func (g *Guard) Raise(ctx context.Context, tx Tx, f Fence) error {
	if err := g.made(); err != nil {
		return err
	}
	if err := f.validate(); err != nil {
		return err
	}
	if err := inTransaction(tx); err != nil {
		return err
	}
	if err := allowed(ctx, g.authorise, f.Namespace, f.Key); err != nil {
		return err
	}
	s, err := g.lock(ctx, tx, f.Namespace, f.Key)
	if err != nil {
		return g.retryable(err)
	}
	if err := s.admit(f.Token, f.Attempt); err != nil {
		return err
	}
	return g.retryable(g.raise(ctx, tx, s, f))
}

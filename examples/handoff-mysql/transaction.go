package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// errUnknown says that the answer to COMMIT was lost: the operation is in force, or it is
// not. Repeat an Offer and compare; a Cancel or a Reply that is refused by
// ErrAlreadySettled when it is repeated has been in force. A Take cannot be repeated: if
// it is in force nobody has its token, and the ticket comes back at its deadline.
var errUnknown = errors.New("handoff-mysql: outcome of commit is unknown")

const maxTries = 10

// inTx runs f in a transaction, again if the engine asks for it. f keeps nothing from an
// earlier run.
func (s *store) inTx(ctx context.Context, f func(*sql.Tx) error) error {
	var err error
	for try := range maxTries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(rand.N(5 * time.Millisecond << min(try, 5))):
			}
		}
		if err = s.tryTx(ctx, f); err == nil || errors.Is(err, errUnknown) || !s.engine.again(err) {
			return err
		}
	}
	return fmt.Errorf("gave up after %d tries: %w", maxTries, err)
}

func (s *store) tryTx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.engine.isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback() // no-op after Commit
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return nil
}

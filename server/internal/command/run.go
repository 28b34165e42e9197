package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// A work is one command on its way through its transaction.
type work struct {
	caller *Caller
	record idempotency.Command
	target sqldb.ID // what the audit row of the command names
	// write does everything but the record, and returns the receipt. It may run several
	// times; what it keeps for told is that of its last run.
	write func(ctx context.Context, tx *sqldb.Tx) (idempotency.Receipt, error)
	// told is called once, after the commit.
	told func()
	// show makes the data of an answer out of a receipt.
	show func(r *idempotency.Receipt, replayed bool) []byte

	made    idempotency.Receipt // of the last run of write
	raced   bool                // another command took the key
	unknown bool                // a COMMIT was sent and not answered
}

// newWork returns the work of a command on subject, which is zero if the command makes
// something new.
func newWork(caller *Caller, op idempotency.Operation, subject sqldb.ID, content orbit.Digest) *work {
	if caller.Request.IsZero() {
		caller.Request = sqldb.NewID()
	}
	return &work{
		caller: caller, target: subject,
		record: idempotency.Command{Namespace: caller.Namespace, Operation: op, Subject: subject, Key: caller.Key, Digest: content},
		told:   func() {},
		show:   func(r *idempotency.Receipt, _ bool) []byte { return r.Append(nil, nil) },
	}
}

// keyed reports whether the command has a record.
func (w *work) keyed() bool { return w.caller.Key != "" }

// maxRounds bounds how often a command is begun anew because another one took its key at
// that moment, or because its commit is unknown.
const maxRounds = 8

// run carries a command out, or finds the receipt of the first one with its key. Any
// error but a [*StateConflictError], ErrNotFound and idempotency.ErrConflict means that the
// outcome is unknown.
func (c *Commands) run(ctx context.Context, w *work) (Receipt, error) {
	var err error
	for range maxRounds {
		r, lookErr := c.look(ctx, w)
		if r != nil || lookErr != nil {
			return orZero(r), lookErr
		}
		err = c.db.Tx(ctx, func(tx *sqldb.Tx) error { return w.commit(ctx, tx) })
		switch {
		case err == nil:
			return *w.done(&w.made), nil
		case errors.Is(err, sqldb.ErrUnknownCommit):
			w.unknown = true
			c.cfg.Log.WarnContext(ctx, "commit of a command is unknown: looking it up", "request_id", w.caller.Request.String(), "err", err)
		case w.keyed() && c.db.Dialect().Duplicate(err):
			w.raced = true
		default:
			return c.refused(ctx, w, err)
		}
	}
	return Receipt{}, fmt.Errorf("command is not settled after %d rounds: %w", maxRounds, err)
}

// refused ends a command that the database or the state of things did not let through.
// After an unknown commit that may be the doing of that commit.
func (c *Commands) refused(ctx context.Context, w *work, err error) (Receipt, error) {
	if !w.unknown {
		return Receipt{}, err
	}
	r, lookErr := c.look(ctx, w)
	switch {
	case lookErr != nil:
		return Receipt{}, errors.Join(lookErr, err)
	case r != nil:
		return *r, nil
	}
	return Receipt{}, err
}

// look returns the receipt of a command that is in force, this one or an earlier one with
// its key; nil if there is none.
func (c *Commands) look(ctx context.Context, w *work) (*Receipt, error) {
	q := c.db.Read()
	if w.raced || w.unknown {
		q = c.db.Write() // the primary, whatever the read pool is
	}
	var found *idempotency.Receipt
	if w.keyed() {
		var err error
		if found, err = w.record.Find(ctx, q); err != nil {
			return nil, err
		}
	}
	own, err := w.inForce(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case own && found != nil:
		return w.done(found), nil
	case own:
		return w.done(&w.made), nil
	case found != nil:
		return &Receipt{Status: found.Status, Data: w.show(found, true), Replayed: true}, nil
	}
	return nil, nil
}

const countOwn = `
SELECT COUNT(*)
FROM audit
WHERE target_id = ?
  AND request_id = ?`

// inForce reports whether a commit of this command whose answer was lost has come into
// force.
func (w *work) inForce(ctx context.Context, q sqldb.Querier) (bool, error) {
	if !w.unknown {
		return false, nil
	}
	var n int
	if err := q.QueryRowContext(ctx, countOwn, w.target, w.caller.Request).Scan(&n); err != nil {
		return false, fmt.Errorf("look up command: %w", err)
	}
	return n > 0, nil
}

// commit is the whole transaction but its COMMIT.
func (w *work) commit(ctx context.Context, tx *sqldb.Tx) error {
	if w.keyed() {
		if err := w.record.Insert(ctx, tx); err != nil {
			return err
		}
	}
	made, err := w.write(ctx, tx)
	if err != nil {
		return err
	}
	if w.made = made; !w.keyed() {
		return nil
	}
	return w.record.Complete(ctx, tx, made)
}

// done tells of the command, which is in force, and answers it.
func (w *work) done(r *idempotency.Receipt) *Receipt {
	w.told()
	return &Receipt{Status: r.Status, Data: w.show(r, false)}
}

func orZero(r *Receipt) Receipt {
	if r == nil {
		return Receipt{}
	}
	return *r
}

package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"database/sql"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

var _ handoff.Store = (*store)(nil)

// A store is a hand-over point in a table of MySQL, MariaDB or SQLite. Processes share
// the table and nothing else. Each operation is one transaction on the row of its key:
// the row's lock makes it atomic, and the database's clock, read after the lock was got,
// judges its time.
//
// Expiry is written when an operation finds it. Rows stay for ever, since generations of a
// key must not begin anew.
type store struct {
	db     *sql.DB
	engine engine
}

// open opens the store at an address (see openDatabase) and makes its table if there is none.
func open(ctx context.Context, address string) (*store, error) {
	db, engine, err := openDatabase(ctx, address)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, engine.schema); err != nil {
		db.Close()
		return nil, fmt.Errorf("make the table: %w", err)
	}
	return &store{db: db, engine: engine}, nil
}

func (s *store) Close() error { return s.db.Close() }

// Bounds of the columns, and of memory.
const (
	maxName    = 512     // of a key or an identity, bytes
	maxAddress = 1024    // bytes
	maxContent = 1 << 20 // of a payload or of all of a receipt, bytes
)

// Offer implements handoff.Store.
func (s *store) Offer(ctx context.Context, t handoff.Ticket) (handoff.Ticket, error) {
	if err := validate(t); err != nil {
		return handoff.Ticket{}, err
	}
	var offered handoff.Ticket
	err := s.change(ctx, t.Key, func(r *row, now time.Time) (change, error) {
		if r.State == handoff.StateOffered || r.State == handoff.StateAccepted {
			offered = r.Ticket
			return none, nil
		}
		next := row{Ticket: handoff.Ticket{
			Key: t.Key, From: t.From, To: t.To, ReplyTo: t.ReplyTo, Payload: append([]byte{}, t.Payload...), TTL: t.TTL,
			Generation: r.Generation + 1, Deadline: deadline(now, t.TTL), State: handoff.StateOffered,
		}}
		*r, offered = next, next.Ticket
		return anew, nil
	})
	if err != nil {
		return handoff.Ticket{}, err
	}
	return offered, nil
}

// deadline rounds up to the microseconds that the table keeps: no time is lost.
func deadline(now time.Time, ttl time.Duration) time.Time {
	if rest := ttl % time.Microsecond; rest > 0 {
		now = now.Add(time.Microsecond)
		ttl -= rest
	}
	return now.Add(ttl)
}

// Take implements handoff.Store.
func (s *store) Take(ctx context.Context, key handoff.Key, to handoff.Agent) (handoff.Handle, error) {
	if len(key) > maxName { // there can be no such row
		return handoff.Handle{}, handoff.ErrUnknownKey
	}
	var h handoff.Handle
	err := s.change(ctx, key, func(r *row, _ time.Time) (change, error) {
		switch {
		case r.Generation == 0:
			return none, handoff.ErrUnknownKey
		case to != r.To:
			return none, handoff.ErrNotAddressee
		case r.State == handoff.StateExpired:
			return none, handoff.ErrExpired
		case r.State == handoff.StateAccepted:
			return none, handoff.ErrTaken
		case r.State != handoff.StateOffered:
			return none, handoff.ErrAlreadySettled
		}
		r.State, r.token = handoff.StateAccepted, rand.Text()
		h = handoff.Handle{Token: r.token, Fence: r.Generation, Until: r.Deadline}
		return marked, nil
	})
	if err != nil {
		return handoff.Handle{}, err
	}
	return h, nil
}

// Reply implements handoff.Store.
func (s *store) Reply(ctx context.Context, key handoff.Key, token string, receipt handoff.Receipt) error {
	if len(key) > maxName {
		return handoff.ErrUnknownKey
	}
	return s.change(ctx, key, func(r *row, now time.Time) (change, error) {
		switch {
		case r.Generation == 0:
			return none, handoff.ErrUnknownKey
		case r.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(r.token)) == 0:
			return none, handoff.ErrLeaseLost
		case r.State == handoff.StateExpired:
			return none, handoff.ErrExpired
		case r.State != handoff.StateAccepted:
			return none, handoff.ErrAlreadySettled
		}
		if err := validateReceipt(receipt); err != nil {
			return none, err
		}
		r.State, r.ReceiptAt, r.receipt = handoff.StateClosed, now, receipt
		return marked, nil
	})
}

// Cancel implements handoff.Store.
func (s *store) Cancel(ctx context.Context, key handoff.Key, by handoff.Agent) error {
	if len(key) > maxName {
		return handoff.ErrUnknownKey
	}
	return s.change(ctx, key, func(r *row, _ time.Time) (change, error) {
		switch {
		case r.Generation == 0:
			return none, handoff.ErrUnknownKey
		case by != r.From:
			return none, handoff.ErrNotSource
		case r.State == handoff.StateAccepted:
			return none, handoff.ErrTaken
		case r.State != handoff.StateOffered:
			return none, handoff.ErrAlreadySettled
		}
		r.State = handoff.StateWithdrawn
		return marked, nil
	})
}

// change runs one operation on the row of a key. judge changes the row, or refuses; that
// the row has expired is written in both cases.
func (s *store) change(ctx context.Context, key handoff.Key, judge func(r *row, now time.Time) (change, error)) error {
	var refusal error
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		r, err := s.lock(ctx, tx, key)
		if err != nil {
			return err
		}
		// A statement of its own: that of the lock shows the time at which it began to wait.
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		what := none
		if live := r.State == handoff.StateOffered || r.State == handoff.StateAccepted; live && !now.Before(r.Deadline) {
			r.State, what = handoff.StateExpired, marked
		}
		var did change
		did, refusal = judge(&r, now)
		return s.write(ctx, tx, r, max(what, did))
	})
	if err != nil {
		return fmt.Errorf("handoff-mysql: %w", err)
	}
	return refusal
}

// now reads the database's clock through a transaction or a pool.
func (s *store) now(ctx context.Context, q interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}) (time.Time, error) {
	var micros int64
	if err := q.QueryRowContext(ctx, "SELECT "+s.engine.clock).Scan(&micros); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return time.UnixMicro(micros).UTC(), nil
}

// Snapshot implements handoff.Store. One statement is one consistent picture on all
// engines, without a lock. It has a transaction of its own, since a session may be set to
// commit nothing by itself, and so keep an old picture, or to read what is not committed.
func (s *store) Snapshot(ctx context.Context) ([]handoff.Ticket, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.engine.isolation, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("handoff-mysql: %w", err)
	}
	defer tx.Rollback() // there is nothing to commit
	rows, err := tx.QueryContext(ctx, "SELECT "+columns+" FROM handoff_ticket ORDER BY ticket_key")
	if err != nil {
		return nil, fmt.Errorf("handoff-mysql: %w", err)
	}
	defer rows.Close()
	var tickets []handoff.Ticket
	for rows.Next() {
		r, err := scan(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("handoff-mysql: %w", err)
		}
		tickets = append(tickets, r.Ticket)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("handoff-mysql: %w", err)
	}
	return tickets, nil
}

// receipt returns the receipt of a closed ticket, for whoever delivers it to its address.
func (s *store) receipt(ctx context.Context, key handoff.Key) (r handoff.Receipt, replyTo string, ok bool, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		found, err := s.lock(ctx, tx, key)
		r, replyTo, ok = found.receipt, found.ReplyTo, found.State == handoff.StateClosed
		return err
	})
	if err != nil {
		return handoff.Receipt{}, "", false, fmt.Errorf("handoff-mysql: %w", err)
	}
	return r, replyTo, ok, nil
}

// validate adds what the table cannot hold to the rules of the contract.
func validate(t handoff.Ticket) error {
	if err := t.Validate(); err != nil {
		return err
	}
	for _, f := range []struct {
		name      string
		size, max int
	}{
		{"Ticket.Key", len(t.Key), maxName}, {"Ticket.From", len(t.From), maxName}, {"Ticket.To", len(t.To), maxName},
		{"Ticket.ReplyTo", len(t.ReplyTo), maxAddress}, {"Ticket.Payload", len(t.Payload), maxContent},
	} {
		if f.size > f.max {
			return &handoff.InvalidError{Field: f.name, Rule: fmt.Sprintf("must be at most %d bytes", f.max)}
		}
	}
	return nil
}

func validateReceipt(r handoff.Receipt) error {
	if err := r.Validate(); err != nil {
		return err
	}
	size := len(r.Summary) + len(r.Failure)
	for _, a := range r.Artifacts {
		size += len(a) + 1
	}
	if size > maxContent {
		return &handoff.InvalidError{Field: "Receipt", Rule: fmt.Sprintf("must be at most %d bytes", maxContent)}
	}
	return nil
}

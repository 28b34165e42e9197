package sqldb

import (
	"context"
	"fmt"
	"strings"
)

// Writes are statements of a transaction whose answers nobody needs before the last one is
// sent. On connections that take several statements at once they are one round trip.
type Writes struct {
	tx         *Tx
	statements []statement
}

type statement struct {
	what  string
	query string
	args  []any
	rows  int // that it must match; negative for any number
}

// Affected, as the last argument of ExecContext on the pool of [DB.WithTransactionsOn], takes
// how many rows each of several statements has changed.
type Affected []int64

// LeastPacket is the packet of a MySQL connection, in bytes, below which Orbit's statements do
// not fit: a batch has at most 4 MiB, and a byte of it can become two in a statement.
const LeastPacket = 8<<20 + 64<<10

// maxJoined bounds the values of statements that travel together, in bytes: the packet of a
// connection is bounded (max_allowed_packet). A larger statement travels alone.
const maxJoined = 1 << 20

// Writes returns an empty list of writes.
func (tx *Tx) Writes() *Writes { return &Writes{tx: tx} }

// Add appends a statement. What says in errors what it does.
func (w *Writes) Add(what, query string, args ...any) {
	w.statements = append(w.statements, statement{what, query, args, -1})
}

// AddMatching appends an update that must match n rows and changes each row that it matches,
// so that the engines agree on how many these are.
func (w *Writes) AddMatching(n int, what, query string, args ...any) {
	w.statements = append(w.statements, statement{what, query, args, n})
}

// A MismatchError reports an update that matched another number of rows than it must.
type MismatchError struct{ What string }

// Error implements error.
func (e *MismatchError) Error() string { return e.What + ": rows are not as expected" }

// Run carries the statements out in their order and forgets them. After an error it may have
// carried out any of them: the transaction is to be rolled back.
func (w *Writes) Run(ctx context.Context) error {
	statements := w.statements
	w.statements = nil
	for len(statements) > 0 {
		n := w.together(statements)
		if err := w.run(ctx, statements[:n]); err != nil {
			return err
		}
		statements = statements[n:]
	}
	return nil
}

// together returns how many of the first statements travel together.
func (w *Writes) together(statements []statement) int {
	if !w.tx.joins {
		return 1
	}
	size := 0
	for i, s := range statements {
		if size += s.size(); size > maxJoined {
			return max(1, i)
		}
	}
	return len(statements)
}

func (s statement) size() int {
	size := len(s.query)
	for _, a := range s.args {
		switch a := a.(type) {
		case []byte:
			size += len(a)
		case string:
			size += len(a)
		default:
			size += 20 // digits, or an id
		}
	}
	return size
}

func (w *Writes) run(ctx context.Context, statements []statement) error {
	if len(statements) == 1 {
		return statements[0].run(ctx, w.tx)
	}
	var (
		what, queries []string
		args          []any
		affected      Affected
	)
	for _, s := range statements {
		what, queries, args = append(what, s.what), append(queries, s.query), append(args, s.args...)
	}
	if _, err := w.tx.ExecContext(ctx, strings.Join(queries, ";"), append(args, &affected)...); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(what, ", "), err)
	}
	if len(affected) != len(statements) {
		return fmt.Errorf("%s: %d of %d statements were answered", strings.Join(what, ", "), len(affected), len(statements))
	}
	for i, s := range statements {
		if err := s.matches(affected[i]); err != nil {
			return err
		}
	}
	return nil
}

// run carries a statement out by itself.
func (s statement) run(ctx context.Context, tx *Tx) error {
	result, err := tx.ExecContext(ctx, s.query, s.args...)
	if err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	if s.rows < 0 {
		return nil
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	return s.matches(n)
}

func (s statement) matches(n int64) error {
	if s.rows >= 0 && n != int64(s.rows) {
		return &MismatchError{s.what}
	}
	return nil
}

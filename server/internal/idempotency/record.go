package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// ErrConflict reports that a key already stands for other content. The sender must find
// out which of the two it means (ERR-005).
var ErrConflict = errors.New(orbit.ConflictMessage)

// A Command is a command that was given a key. Its identity follows from the namespace,
// the operation, the subject and the key.
type Command struct {
	Namespace sqldb.ID
	Operation Operation
	Subject   sqldb.ID // what it acts on; zero if it makes something new
	Task      sqldb.ID // the subject, if that is a task: its record goes when the task goes
	Key       string
	Digest    orbit.Digest // of the content, by orbit.DigestAlgorithm
}

// Identity returns the primary key of the command's record.
func (c *Command) Identity() Identity {
	return NewIdentity(c.Namespace, c.Operation, c.Subject, c.Key)
}

// A Receipt is the answer to the first command with a key, as every repeat gets it.
type Receipt struct {
	Status int    // of HTTP
	Body   []byte // what the answer shows: a task without its payload, or a whole object
	// PayloadAt is where the payload of the task goes in Body, in bytes. 0 means that Body
	// is whole.
	PayloadAt int
}

// Append appends the object that the answer shows, with payload in its place, byte for
// byte.
func (r *Receipt) Append(dst, payload []byte) []byte {
	if r.PayloadAt == 0 {
		return append(dst, r.Body...)
	}
	dst = append(dst, r.Body[:r.PayloadAt]...)
	dst = append(dst, payload...)
	return append(dst, r.Body[r.PayloadAt:]...)
}

// damaged reports whether the receipt cannot be given.
func (r *Receipt) damaged() bool {
	return r.Status < 200 || r.Status > 299 || len(r.Body) < 2 || r.PayloadAt < 0 || r.PayloadAt >= len(r.Body)
}

const selectRecord = `
SELECT algorithm, content_digest, status, receipt, payload_at
FROM idempotency
WHERE digest = ?`

// Find returns the receipt of the command, or nil if its key is new. It returns
// ErrConflict if the key stands for other content.
func (c *Command) Find(ctx context.Context, q sqldb.Querier) (*Receipt, error) {
	identity := c.Identity()
	var (
		algorithm, content []byte
		r                  Receipt
	)
	err := q.QueryRowContext(ctx, selectRecord, identity[:]).Scan(&algorithm, &content, &r.Status, &r.Body, &r.PayloadAt)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up identity: %w", err)
	case string(algorithm) != orbit.DigestAlgorithm || string(content) != string(c.Digest[:]):
		return nil, ErrConflict
	case r.damaged():
		return nil, errors.New("stored receipt of a command is damaged")
	}
	return &r, nil
}

const insertRecord = `
INSERT INTO idempotency (digest, namespace_id, operation, task_id, idempotency_key,
	algorithm, content_digest, status, receipt, payload_at, created_at, retain_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, %[1]s, %[1]s + ?)`

// Insert takes the key for the command, before the transaction locks anything else
// (LIC-014): of commands with one key the first goes on, and the others wait for it here
// and then get the engine's duplicate error. Complete must follow; a transaction that is
// rolled back leaves no record (IDEM-021).
func (c *Command) Insert(ctx context.Context, tx *sqldb.Tx) error {
	// The clock of the transaction is left unread: what follows wants the time at which it
	// holds its locks.
	query := fmt.Sprintf(insertRecord, tx.Dialect().Clock)
	identity := c.Identity()
	_, err := tx.ExecContext(ctx, query, identity[:], c.Namespace, int(c.Operation), c.Task, []byte(c.Key),
		[]byte(orbit.DigestAlgorithm), c.Digest[:], 0, []byte{}, 0, orbit.IdempotencyRetention.Microseconds())
	if err != nil {
		return fmt.Errorf("insert identity: %w", err)
	}
	return nil
}

const completeRecord = `
UPDATE idempotency
SET status = ?, receipt = ?, payload_at = ?
WHERE digest = ?`

// Complete stores the receipt of a command that was inserted by the same transaction.
func (c *Command) Complete(ctx context.Context, tx *sqldb.Tx, r Receipt) error {
	if r.damaged() {
		return fmt.Errorf("receipt with status %d and %d bytes cannot be stored", r.Status, len(r.Body))
	}
	identity := c.Identity()
	if _, err := tx.ExecContext(ctx, completeRecord, r.Status, r.Body, r.PayloadAt, identity[:]); err != nil {
		return fmt.Errorf("store receipt: %w", err)
	}
	return nil
}

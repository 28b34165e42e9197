package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitkit/orbit/resourceguard"
)

// guardSQL are the statements of a guarded write, written by hand.
type guardSQL struct {
	makeKey, lockKey, record, raise, keepReceipt string

	recordAnswers bool // record returns a row if it inserted, instead of an error if not
}

// all are the statements of a first write under a new token, in their order.
func (s guardSQL) all(business string) []string {
	return []string{s.makeKey, s.lockKey, s.record, s.raise, business, s.keepReceipt}
}

var mysqlGuard = guardSQL{
	makeKey: `INSERT INTO orbit_guard_key (namespace, resource_key, highest, attempt, raised_at)
		VALUES (?, ?, ?, ?, 0) ON DUPLICATE KEY UPDATE namespace = namespace`,
	lockKey: `SELECT highest, attempt FROM orbit_guard_key WHERE namespace = ? AND resource_key = ? FOR UPDATE`,
	record: `INSERT INTO orbit_guard_operation (namespace, resource_key, operation, digest, token, attempt, applied_at)
		VALUES (?, ?, ?, ?, ?, ?, TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)))`,
	raise: `UPDATE orbit_guard_key SET highest = ?, attempt = ?, raised_at = TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))
		WHERE namespace = ? AND resource_key = ?`,
	keepReceipt: keepReceipt,
}

var sqliteGuard = guardSQL{
	makeKey: `INSERT INTO orbit_guard_key (namespace, resource_key, highest, attempt, raised_at)
		VALUES (?, ?, ?, ?, 0) ON CONFLICT (namespace, resource_key) DO NOTHING`,
	lockKey: `SELECT highest, attempt FROM orbit_guard_key WHERE namespace = ? AND resource_key = ?`,
	record: `INSERT INTO orbit_guard_operation (namespace, resource_key, operation, digest, token, attempt, applied_at)
		VALUES (?, ?, ?, ?, ?, ?, CAST(unixepoch('subsec')*1000000 AS INTEGER))
		ON CONFLICT (namespace, resource_key, operation) DO NOTHING RETURNING 1`,
	raise: `UPDATE orbit_guard_key SET highest = ?, attempt = ?, raised_at = CAST(unixepoch('subsec')*1000000 AS INTEGER)
		WHERE namespace = ? AND resource_key = ?`,
	keepReceipt:   keepReceipt,
	recordAnswers: true,
}

var postgresGuard = guardSQL{
	makeKey: `INSERT INTO orbit_guard_key (namespace, resource_key, highest, attempt, raised_at)
		VALUES ($1, $2, $3, $4, 0) ON CONFLICT (namespace, resource_key) DO NOTHING`,
	lockKey: `SELECT highest, attempt FROM orbit_guard_key WHERE namespace = $1 AND resource_key = $2 FOR UPDATE`,
	record: `INSERT INTO orbit_guard_operation (namespace, resource_key, operation, digest, token, attempt, applied_at)
		VALUES ($1, $2, $3, $4, $5, $6, CAST(EXTRACT(EPOCH FROM statement_timestamp())*1000000 AS BIGINT))
		ON CONFLICT (namespace, resource_key, operation) DO NOTHING RETURNING 1`,
	raise: `UPDATE orbit_guard_key SET highest = $1, attempt = $2, raised_at = CAST(EXTRACT(EPOCH FROM statement_timestamp())*1000000 AS BIGINT)
		WHERE namespace = $3 AND resource_key = $4`,
	keepReceipt:   `UPDATE orbit_guard_operation SET receipt = $1 WHERE namespace = $2 AND resource_key = $3 AND operation = $4`,
	recordAnswers: true,
}

const keepReceipt = `UPDATE orbit_guard_operation SET receipt = ? WHERE namespace = ? AND resource_key = ? AND operation = ?`

// byHand writes without the guard: no rules for names, no authorisation, no typed errors,
// no look at the transaction. It does compute the digest.
type byHand struct {
	db     *sql.DB
	engine guardEngine
}

func (*byHand) namespace() string { return "floor" }

func (f *byHand) write(ctx context.Context, w resourceguard.Write) error {
	s, d := f.engine.floor, f.engine.dialect
	ns, key, op, attempt := []byte(w.Namespace), []byte(w.Key), []byte(w.Operation), []byte(w.Attempt)
	return inTx(ctx, f.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, s.makeKey, ns, key, d.Uint64(0), []byte{}); err != nil {
			return err
		}
		var highest uint64
		var holder string
		if err := tx.QueryRowContext(ctx, s.lockKey, ns, key).Scan(d.ScanUint64(&highest), &holder); err != nil {
			return err
		}
		if w.Token < highest || w.Token == highest && w.Attempt != holder {
			return errors.New("stale")
		}
		digest := sha256.Sum256(w.Content)
		if err := f.record(ctx, tx, ns, key, op, digest[:], d.Uint64(w.Token), attempt); err != nil {
			return err
		}
		if w.Token > highest {
			if _, err := tx.ExecContext(ctx, s.raise, d.Uint64(w.Token), attempt, ns, key); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, f.engine.insertBusiness, w.Key); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, s.keepReceipt, guardReceipt, ns, key, op)
		return err
	})
}

func (f *byHand) record(ctx context.Context, tx *sql.Tx, args ...any) error {
	if f.engine.floor.recordAnswers {
		var one int
		return tx.QueryRowContext(ctx, f.engine.floor.record, args...).Scan(&one)
	}
	_, err := tx.ExecContext(ctx, f.engine.floor.record, args...)
	return err
}

// sameStatements holds the floor to the guard: a guard that has changed its statements
// would be compared with another work.
func sameStatements(ctx context.Context, db *sql.DB, guard *resourceguard.Guard, engine guardEngine) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	listener := &listener{Tx: tx}
	w := guardWrites("probe", 1, 1, 1)[0]
	if err := (&guarded{guard: guard, engine: engine}).apply(ctx, listener, w); err != nil {
		return err
	}
	want := engine.floor.all(engine.insertBusiness)
	for i := range want {
		want[i] = inOneLine(want[i])
	}
	if !slices.Equal(listener.said, want) {
		return fmt.Errorf("the guard no longer runs the statements of the floor (guardfloor.go):\n%q\nfloor:\n%q", listener.said, want)
	}
	return nil
}

// A listener notes the statements of a transaction.
type listener struct {
	*sql.Tx
	said []string
}

func (l *listener) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	l.said = append(l.said, inOneLine(query))
	return l.Tx.ExecContext(ctx, query, args...)
}

func (l *listener) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	l.said = append(l.said, inOneLine(query))
	return l.Tx.QueryRowContext(ctx, query, args...)
}

func inOneLine(query string) string { return strings.Join(strings.Fields(query), " ") }

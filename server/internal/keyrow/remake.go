package keyrow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// SelectReferred finds which keys tasks refer to.
const SelectReferred = `
SELECT DISTINCT concurrency_key_digest
FROM task
WHERE concurrency_key_digest IN `

// Referred returns those of keys that a task refers to.
func Referred(ctx context.Context, q sqldb.Querier, keys map[[32]byte]Key) (map[[32]byte]Key, error) {
	referred := make(map[[32]byte]Key)
	var args []any
	for _, digest := range SortedDigests(keys) {
		args = append(args, digest)
	}
	err := sqldb.EachRow(ctx, q, SelectReferred+sqldb.Placeholders(len(args)), args, func(scan func(...any) error) error {
		var digest []byte
		err := scan(&digest)
		if key, asked := keys[[32]byte(digest)]; err == nil && asked {
			referred[[32]byte(digest)] = key
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for tasks of resource keys: %w", err)
	}
	return referred, nil
}

const (
	selectRow = `
SELECT version, holder_task_id
FROM resource
WHERE digest = ?`

	// The bound value is zero in the form of the token's column.
	selectLastToken = `
SELECT COALESCE(MAX(a.concurrency_token), ?)
FROM task t
JOIN attempt a ON a.task_id = t.id
WHERE t.concurrency_key_digest = ?`

	selectHolder = `
SELECT t.id, t.epoch
FROM task t
JOIN attempt a ON a.id = t.attempt_id
WHERE t.concurrency_key_digest = ? AND t.state IN (2, 3)
ORDER BY a.concurrency_token DESC
LIMIT 1`

	updateRow = `
UPDATE resource
SET version = ?, holder_task_id = ?, holder_epoch = ?
WHERE digest = ?`
)

// Remake makes rows that a restore has lost, though tasks refer to them: at the floor,
// above every token that is in the attempts of the key, and held by the attempt that
// still lives. It reads all tasks of a key, and changes nothing where there is a row.
func Remake(ctx context.Context, db *sqldb.DB, keys map[[32]byte]Key) error {
	for _, digest := range SortedDigests(keys) {
		one := map[[32]byte]Key{[32]byte(digest): keys[[32]byte(digest)]}
		run := func(tx *sqldb.Tx) error { return remake(ctx, tx, digest, one) }
		err := db.Tx(ctx, run)
		if errors.Is(err, sqldb.ErrUnknownCommit) {
			err = db.Tx(ctx, run) // raises nothing twice
		}
		if err != nil {
			return fmt.Errorf("make a lost resource key again: %w", err)
		}
	}
	return nil
}

// remake inserts first, which locks the row: who ends an attempt of the key from now on
// waits for it, and who does so without it is waited for by its lock of the task.
func remake(ctx context.Context, tx *sqldb.Tx, digest []byte, one map[[32]byte]Key) error {
	if err := insertRows(ctx, tx, one); err != nil {
		return err
	}
	d := tx.Dialect()
	var (
		version, last uint64
		holder        sqldb.ID
		epoch         sql.NullInt64
	)
	if err := tx.QueryRowContext(ctx, selectRow+d.ForUpdate, digest).Scan(d.ScanUint64(&version), &holder); err != nil {
		return err
	}
	if !holder.IsZero() {
		return nil // somebody else has made it
	}
	err := tx.QueryRowContext(ctx, selectHolder+d.Share, digest).Scan(&holder, &epoch)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := tx.QueryRowContext(ctx, selectLastToken, d.Uint64(0), digest).Scan(d.ScanUint64(&last)); err != nil {
		return err
	}
	if holder.IsZero() && last > 0 {
		last++ // the step of its release
	}
	_, err = tx.ExecContext(ctx, updateRow, d.Uint64(max(version, last)), holder, epoch, digest)
	return err
}

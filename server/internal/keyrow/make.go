package keyrow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A Key is a resource key and the namespace it lives in.
type Key struct {
	Namespace sqldb.ID
	Text      string
}

const insertResources = `
INSERT INTO resource (digest, kind, namespace_id, resource_key, version, created_at)
VALUES `

// Make makes the rows of keys, by digest, that have none. It does so in a short
// transaction of its own: inside a submit's, a rolled-back row left deadlocks to those
// who waited for it (research: dispatch).
func Make(ctx context.Context, db *sqldb.DB, keys map[[32]byte]Key) error {
	if len(keys) == 0 {
		return nil
	}
	insert := func(tx *sqldb.Tx) error { return insertRows(ctx, tx, keys) }
	err := db.Tx(ctx, insert)
	if errors.Is(err, sqldb.ErrUnknownCommit) {
		err = db.Tx(ctx, insert) // changes nothing if the first is in force
	}
	if err != nil {
		return fmt.Errorf("make resource keys: %w", err)
	}
	return nil
}

func insertRows(ctx context.Context, tx *sqldb.Tx, keys map[[32]byte]Key) error {
	d := tx.Dialect()
	var namespaces []sqldb.ID
	for _, k := range keys {
		namespaces = append(namespaces, k.Namespace)
	}
	// Held until the rows are committed: see the package comment.
	floors, err := Floors(ctx, tx, d, namespaces, d.Share)
	if err != nil {
		return err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	var args []any
	for _, digest := range SortedDigests(keys) {
		k := keys[[32]byte(digest)]
		args = append(args, digest, int(task.ResourceKey), k.Namespace, []byte(k.Text), d.Uint64(floors[k.Namespace]), now)
	}
	_, err = tx.ExecContext(ctx, insertResources+sqldb.Rows(len(keys), 6)+d.OnConflict([]string{"digest"}), args...)
	return err
}

// SortedDigests is the order in which rows are locked.
func SortedDigests(keys map[[32]byte]Key) [][]byte {
	digests := make([][]byte, 0, len(keys))
	for _, digest := range slices.SortedFunc(maps.Keys(keys), func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) }) {
		digests = append(digests, bytes.Clone(digest[:]))
	}
	return digests
}

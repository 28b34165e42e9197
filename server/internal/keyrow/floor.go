package keyrow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// ErrNoFloor reports that the row of the common floor is gone, without which rows of keys
// are not made: tokens could be given a second time.
var ErrNoFloor = errors.New("token_floor has no row of the common floor")

// everywhere is the id of the common floor.
var everywhere [16]byte

const selectFloors = `
SELECT namespace_id, version
FROM token_floor
WHERE namespace_id IN %s
ORDER BY namespace_id`

// Floors returns the floor of each of some namespaces and, under the zero id, the common
// one, without regard for a lower one of the namespace's own. lock is a suffix of the
// dialect or empty; the row of the common floor is locked first.
func Floors(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect, namespaces []sqldb.ID, lock string) (map[sqldb.ID]uint64, error) {
	args := []any{everywhere[:]}
	for _, id := range sortedIDs(namespaces) {
		if !id.IsZero() {
			args = append(args, id)
		}
	}
	own := map[sqldb.ID]uint64{}
	query := fmt.Sprintf(selectFloors, sqldb.Placeholders(len(args))) + lock
	err := sqldb.EachRow(ctx, q, query, args, func(scan func(...any) error) error {
		var (
			id      sqldb.ID
			version uint64
		)
		err := scan(&id, d.ScanUint64(&version))
		own[id] = version
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read floor of tokens: %w", err)
	}
	common, there := own[sqldb.ID{}]
	if !there {
		return nil, ErrNoFloor
	}
	floors := map[sqldb.ID]uint64{{}: common}
	for _, id := range namespaces {
		floors[id] = max(common, own[id])
	}
	return floors, nil
}

const upsertFloor = `
INSERT INTO token_floor (namespace_id, version, updated_at)
VALUES (?, ?, ?)`

// RaiseFloor raises the floor of a namespace, or with the zero id the common one, to at
// least least and returns what it was and is. It never lowers. Rows made after the
// commit of tx begin there; those made before are visible to reads that begin after it.
func RaiseFloor(ctx context.Context, tx *sqldb.Tx, namespace sqldb.ID, least uint64) (before, after uint64, err error) {
	d := tx.Dialect()
	// The common floor alone, whatever the scope: it is what makers of rows wait for.
	if _, err := Floors(ctx, tx, d, nil, d.ForUpdate); err != nil {
		return 0, 0, err
	}
	floors, err := Floors(ctx, tx, d, []sqldb.ID{namespace}, "")
	if err != nil {
		return 0, 0, err
	}
	before = floors[namespace]
	if before >= least {
		return before, before, nil
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return before, before, err
	}
	_, err = tx.ExecContext(ctx, upsertFloor+d.OnConflict([]string{"namespace_id"}, "version", "updated_at"),
		namespace[:], d.Uint64(least), now)
	if err != nil {
		return before, before, fmt.Errorf("raise floor of tokens: %w", err)
	}
	return before, least, nil
}

func sortedIDs(ids []sqldb.ID) []sqldb.ID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b sqldb.ID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

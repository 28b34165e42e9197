package quota

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Row is one to read under a lock.
type Row struct {
	Select    string   // with the primary key as its only bound value
	ID        sqldb.ID // that key
	Exclusive bool     // locked for a change, else in share mode

	// Without an ID nothing is locked, and Select may read any number of rows.
	Args []any
}

// Lock reads rows by one statement, each under its own lock, and calls f with the scan of
// each that exists. The locks are taken in the order given. A part that read several rows
// would leave that order to the engine's plan.
func Lock(ctx context.Context, tx *sqldb.Tx, rows []Row, f func(scan func(...any) error) error) error {
	if len(rows) == 0 {
		return nil
	}
	parts := make([]string, len(rows))
	keys := make([]any, 0, len(rows))
	for i, r := range rows {
		if parts[i] = r.part(tx.Dialect()); r.ID.IsZero() {
			keys = append(keys, r.Args...)
		} else {
			keys = append(keys, r.ID)
		}
	}
	found, err := tx.QueryContext(ctx, strings.Join(parts, "\nUNION ALL\n"), keys...)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := f(found.Scan); err != nil {
			return err
		}
	}
	return found.Err()
}

func (r Row) part(d *sqldb.Dialect) string {
	switch {
	case d == sqldb.SQLite:
		return r.Select // it has no locks, and takes no brackets in a union
	case r.ID.IsZero():
		return "(" + r.Select + ")"
	case r.Exclusive:
		return "(" + r.Select + d.ForUpdate + ")"
	}
	return "(" + r.Select + d.Share + ")"
}

// inOrder returns ids in the order in which they are locked, each once.
func inOrder(ids []sqldb.ID) []sqldb.ID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, compare)
	return slices.Compact(ids)
}

// applicationsOf returns the values of owners in the order in which they are locked.
func applicationsOf(owners map[sqldb.ID]sqldb.ID) []sqldb.ID {
	return slices.Compact(slices.SortedFunc(maps.Values(owners), compare))
}

func compare(a, b sqldb.ID) int { return bytes.Compare(a[:], b[:]) }

package migrations

import (
	"context"
	"io/fs"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// UpFiles is Up with steps from files.
func UpFiles(ctx context.Context, db *sqldb.DB, files fs.FS, set Set, opt Options) ([]int, error) {
	steps, err := load(files, set, db.Dialect())
	if err != nil {
		return nil, err
	}
	return up(ctx, db, set, steps, opt)
}

// Statements returns how many statements each step of set has.
func Statements(set Set, d *sqldb.Dialect) ([]int, error) {
	steps, err := load(files, set, d)
	if err != nil {
		return nil, err
	}
	counts := make([]int, len(steps))
	for i, s := range steps {
		counts[i] = len(s.statements)
	}
	return counts, nil
}

// SeenWhole says whether the catalogue shows the whole of an SQL statement.
func SeenWhole(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect, text string) (bool, error) {
	t, err := look(ctx, q, d, parse(text))
	return t == traceWhole, err
}

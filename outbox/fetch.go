package outbox

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// MaxRows is how many rows one call of Fetch and of the settling methods takes.
const MaxRows = 1000

// Fetch returns those of the rows that are still Pending, in ascending order of seq.
// The caller chooses rows whose sizes fit its memory. At most 1000 rows. A row that is damaged
// is returned like the others, with [Row.Damage].
func (s *Store) Fetch(ctx context.Context, seqs []int64) ([]Row, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	if err := checkCount(len(seqs)); err != nil {
		return nil, err
	}
	rows, err := readAll(ctx, s.db.Read(), newRowReader().whole, s.fetchQuery(len(seqs)), seqArgs(nil, seqs)...)
	if err != nil {
		return nil, failed(s.dialect, "fetch rows", err)
	}
	return rows, nil
}

func (s *Store) fetchQuery(n int) string {
	return selectRow + s.dialect.Clock + selectRest + `
FROM orbit_outbox r` + s.byPrimary + `
WHERE r.seq IN ` + sqldb.Placeholders(n) + ` AND r.state = 1
ORDER BY r.seq`
}

// Get returns one row in whatever state it is, or ErrNotFound.
func (s *Store) Get(ctx context.Context, seq int64) (Row, error) {
	query := selectRow + s.dialect.Clock + selectRest + `
FROM orbit_outbox r
WHERE r.seq = ?`
	rows, err := readAll(ctx, s.db.Read(), newRowReader().whole, query, seq)
	if err != nil {
		return Row{}, failed(s.dialect, "read row", err)
	}
	if len(rows) == 0 {
		return Row{}, fmt.Errorf("%w: %d", ErrNotFound, seq)
	}
	return rows[0], nil
}

func checkCount(n int) error {
	if n > MaxRows {
		return fmt.Errorf("outbox: %d rows at once, at most %d", n, MaxRows)
	}
	return nil
}

// checkLimit refuses what an engine would not take, or a page that is too long.
func checkLimit(n int) error {
	if n < 1 || n > MaxRows {
		return &orbit.InvalidArgumentError{Field: "limit", Rule: fmt.Sprintf("must be 1 to %d", MaxRows)}
	}
	return nil
}

func seqArgs(args []any, seqs []int64) []any {
	for _, seq := range seqs {
		args = append(args, seq)
	}
	return args
}

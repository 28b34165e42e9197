package query

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// ErrNotFound reports that there is no such thing, or none that the reader may see. The
// two are not told apart (GET-003).
var ErrNotFound = errors.New("query: not found")

// A Reader reads a server's database. It keeps nothing, and is safe for concurrent use.
type Reader struct {
	db *sqldb.DB
}

// New returns a reader of db.
func New(db *sqldb.DB) *Reader { return &Reader{db: db} }

// A Scope is what somebody may see. The zero value sees everything: it is the operator's.
type Scope struct {
	Namespace  sqldb.ID                  // zero means every one
	Credential sqldb.ID                  // whose list of queues confines the reader; zero means that nothing does
	MayUse     func(queue sqldb.ID) bool // the same list for single things; nil means every queue
}

// sees reports whether what lies in a queue of a namespace is visible.
func (s Scope) sees(namespace, queue sqldb.ID) bool {
	return (s.Namespace.IsZero() || s.Namespace == namespace) && (s.MayUse == nil || s.MayUse(queue))
}

// A Place is a position in a list that is ordered by creation time and id, both
// descending.
type Place struct {
	CreatedAt int64 // microseconds UTC
	ID        sqldb.ID
}

// by completes a statement that reads its table by one index: {by} becomes the hint and
// {after} the condition that rows lie after a place. The optimizers must not choose: with
// few rows, or with statistics of yesterday, they read other indexes and sort, or pass over
// rows until enough of them fit. The condition is one exact range of the index, also where
// many rows were created in the same microsecond: SQLite would sort the alternatives that
// MySQL wants, and MySQL makes no range of pairs.
func (r *Reader) by(index, statement string) string {
	d, after := r.db.Dialect(), "(created_at < ? OR (created_at = ? AND id < ?))"
	if d == sqldb.SQLite {
		after = "(created_at, id) < (?, ?)"
	}
	return strings.NewReplacer("{by}", d.ByIndex(index), "{after}", after).Replace(statement)
}

// after appends what the condition that rows lie after p binds.
func (r *Reader) after(args []any, p Place) []any {
	if args = append(args, p.CreatedAt); r.db.Dialect() != sqldb.SQLite {
		args = append(args, p.CreatedAt)
	}
	return append(args, p.ID[:])
}

// found turns the error of a read of one row into what callers look for.
func found(err error, act string) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("%s: %w", act, err)
	}
	return nil
}

// each calls scan for the rows until it reports that it has enough or fails.
func each(rows *sql.Rows, err error, scan func(*sql.Rows) (more bool, err error)) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if more, err := scan(rows); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// timeOf is a column that may be empty.
func timeOf(micros sql.NullInt64) *time.Time {
	if !micros.Valid {
		return nil
	}
	t := sqldb.Time(micros.Int64)
	return &t
}

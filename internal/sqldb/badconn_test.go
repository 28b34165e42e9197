package sqldb_test

import (
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A driver says ErrBadConn of a statement that it has not sent: then nothing is unknown, and
// the transaction runs again on another connection.
func TestTxRunsAgainWhereAConnectionHadEndedBefore(t *testing.T) { // ERR-017
	db := dbtest.Open(t, dbtest.SQLite)
	mustExec(t, db.Write(), createCounter)
	for i, at := range []string{"INSERT", "COMMIT"} {
		bad, runs := true, 0
		pool := sql.OpenDB(dbfault.Through(db.Write().Driver(), strings.TrimPrefix(db.Address, "sqlite:"), func(statement string, call func() error) error {
			if bad && strings.HasPrefix(statement, at) {
				bad = false
				return driver.ErrBadConn
			}
			return call()
		}))
		defer pool.Close()
		err := sqldb.New(sqldb.SQLite, pool, pool).Tx(t.Context(), func(tx *sqldb.Tx) error {
			runs++
			_, err := tx.ExecContext(t.Context(), "INSERT INTO counter (id, n) VALUES (?, 1)", i)
			return err
		})
		if err != nil || runs != 2 {
			t.Errorf("with a bad connection at %s: Tx = %v after %d runs, want it done by the second", at, err, runs)
		}
		if n := count(t, db.Write()); n != i+1 {
			t.Errorf("with a bad connection at %s %d rows are there, want %d", at, n, i+1)
		}
	}
}

package keyrow

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/task"
)

func oneKey(namespace sqldb.ID, text string) map[[32]byte]Key {
	return map[[32]byte]Key{task.KeyDigest(namespace, text): {namespace, text}}
}

// Who makes a row keeps the floor until it has committed, so that a raise comes before the
// row or sees it. SQLite has one writer at a time.
func TestMakersOfRowsHoldTheFloorAndShareIt(t *testing.T) { // TOK-018, LIC-014
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		if db.Engine == dbtest.SQLite {
			t.Skip("needs an engine that locks rows: SQLite locks the file")
		}
		d, namespace := db.Dialect(), sqldb.NewID()
		err := db.Tx(t.Context(), func(tx *sqldb.Tx) error {
			if err := insertRows(t.Context(), tx, oneKey(namespace, "a")); err != nil {
				return err
			}
			if err := Make(t.Context(), db.DB, oneKey(namespace, "b")); err != nil {
				t.Errorf("another maker: %v", err)
			}
			var free []byte
			err := db.Write().QueryRowContext(t.Context(), "SELECT namespace_id FROM token_floor WHERE namespace_id = ?"+d.SkipLocked, everywhere[:]).Scan(&free)
			if !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("the floor can be raised while a row is being made: %x, %v", free, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}, migrations.Server)
}

func TestNoRowIsMadeWithoutAFloor(t *testing.T) { // TOK-018
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		if _, err := db.Write().ExecContext(t.Context(), "DELETE FROM token_floor"); err != nil {
			t.Fatal(err)
		}
		if err := Make(t.Context(), db.DB, oneKey(sqldb.NewID(), "a")); !errors.Is(err, ErrNoFloor) {
			t.Errorf("Make = %v, want ErrNoFloor", err)
		}
		err := db.Tx(t.Context(), func(tx *sqldb.Tx) error {
			_, _, err := RaiseFloor(t.Context(), tx, sqldb.ID{}, 1)
			return err
		})
		if !errors.Is(err, ErrNoFloor) {
			t.Errorf("RaiseFloor = %v, want ErrNoFloor", err)
		}
	}, migrations.Server)
}

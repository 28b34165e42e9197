package dbtest_test

import (
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// The next borrower finds nothing of the one before, and everything of a fresh database.
func TestABorrowedDatabaseIsAsGoodAsNew(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			var first string
			for _, turn := range []string{"first", "second"} {
				t.Run(turn, func(t *testing.T) {
					db := dbtest.Borrow(t, engine, migrations.Outbox)
					if turn == "second" && engine != dbtest.SQLite && db.Address != first {
						t.Errorf("the second test got %s, want that of the first", db.Address)
					}
					first = db.Address
					for query, want := range map[string]int{
						"SELECT COUNT(*) FROM orbit_outbox_lease": 0,
						"SELECT COUNT(*) FROM orbit_migration":    migrationsOf(t, db),
					} {
						var n int
						if err := db.Read().QueryRowContext(t.Context(), query).Scan(&n); err != nil || n != want {
							t.Errorf("%s = %d, %v; want %d", query, n, err, want)
						}
					}
					for _, change := range []string{
						"INSERT INTO orbit_outbox_lease (shard, leader, holder, epoch, since_at, expires_at) VALUES (0, '', '', 1, 0, 0)",
						"CREATE TABLE added (id INTEGER NOT NULL PRIMARY KEY)",
						"DELETE FROM orbit_migration",
					} {
						if engine == dbtest.SQLite {
							break // always a new one
						}
						if _, err := db.Write().ExecContext(t.Context(), change); err != nil {
							t.Fatalf("%s: %v", change, err)
						}
					}
				})
			}
		})
	}
	if err := dbtest.DropBorrowed(); err != nil {
		t.Error(err)
	}
}

func migrationsOf(t *testing.T, db *dbtest.DB) int {
	t.Helper()
	n, err := migrations.Latest(migrations.Outbox, db.Dialect())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

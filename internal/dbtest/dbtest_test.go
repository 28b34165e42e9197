package dbtest_test

import (
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

func TestEachTestGetsAMigratedDatabaseOfItsOwn(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		want, err := migrations.Latest(migrations.Server, db.Dialect())
		if err != nil {
			t.Fatal(err)
		}
		insert := "INSERT INTO application (id, name, state, created_at, updated_at) VALUES (?, ?, 1, 0, 0)"
		for range 2 {
			own := dbtest.Open(t, db.Engine, migrations.Server)
			if err := migrations.Check(t.Context(), own.DB, migrations.Server, want, want); err != nil {
				t.Fatal(err)
			}
			if _, err := own.Write().ExecContext(t.Context(), insert, make([]byte, 16), []byte("a")); err != nil {
				t.Fatalf("insert into a fresh database: %v", err)
			}
			var n int
			if err := own.Reopen(t).Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM application").Scan(&n); err != nil || n != 1 {
				t.Fatalf("rows seen through a second pool = %d, %v, want 1", n, err)
			}
		}
	}, migrations.Server)
}

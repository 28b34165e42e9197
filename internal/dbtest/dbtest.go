// Package dbtest gives each test a database of its own: on SQLite always, on MySQL and
// MariaDB when ORBIT_TEST_MYSQL_DSN and ORBIT_TEST_MARIADB_DSN name a server on which
// databases may be created. Tests of the resource guard run on PostgreSQL too, when
// ORBIT_TEST_POSTGRES_DSN holds the URL of such a server. With ORBIT_TEST_ALL_ENGINES=1 a
// missing server fails the test instead of skipping it (CLI-012).
package dbtest

import (
	"os"
	"testing"

	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/drivers/postgres"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
)

// The engines, as DB.Engine names them.
const (
	SQLite   = "sqlite"
	MySQL    = "mysql"
	MariaDB  = "mariadb"
	Postgres = "postgres" // for the resource guard only
)

// Engines returns the engines that every test runs on.
func Engines() []string { return []string{SQLite, MySQL, MariaDB} }

// GuardEngines returns the engines that tests of the resource guard run on.
func GuardEngines() []string { return append(Engines(), Postgres) }

// A DB is a migrated database that one test owns. It is dropped when the test ends.
type DB struct {
	*sqldb.DB
	Engine  string // SQLite, MySQL, MariaDB or Postgres
	Address string // as ORBIT_DATABASE takes it; another process can open it
}

// Run runs f as a subtest per engine, each with a fresh database to which sets were
// applied.
func Run(t *testing.T, f func(t *testing.T, db *DB), sets ...migrations.Set) {
	t.Helper()
	RunOn(t, Engines(), f, sets...)
}

// RunOn is Run on the engines named.
func RunOn(t *testing.T, engines []string, f func(t *testing.T, db *DB), sets ...migrations.Set) {
	t.Helper()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			f(t, Open(t, engine, sets...))
		})
	}
}

// Open returns a fresh database on engine to which sets were applied. It skips the test,
// or fails it with ORBIT_TEST_ALL_ENGINES=1, if there is no server of that engine.
func Open(t testing.TB, engine string, sets ...migrations.Set) *DB {
	t.Helper()
	var address string
	switch engine {
	case SQLite:
		address = newSQLite(t, sets)
	case Postgres:
		address = newPostgres(t, sets)
	default:
		address = newMySQL(t, engine, sets)
	}
	return openAt(t, engine, address)
}

// Reopen opens the same database again through pools of its own, as another node would.
func (db *DB) Reopen(t testing.TB) *DB {
	t.Helper()
	return openAt(t, db.Engine, db.Address)
}

func openAt(t testing.TB, engine, address string) *DB {
	t.Helper()
	open := drivers.Open
	if engine == Postgres {
		open = postgres.Open
	}
	db, err := open(t.Context(), address)
	if err != nil {
		t.Fatalf("open test database: %v", err)
	}
	t.Cleanup(func() { db.Close() })
	return &DB{DB: db, Engine: engine, Address: address}
}

// Missing skips a test for want of what the message names, or fails it where all tests have
// to run: in CI (the variable CI is set) and with ORBIT_TEST_ALL_ENGINES=1.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" || os.Getenv("ORBIT_TEST_ALL_ENGINES") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// NeedServer returns the DSN of the engine's test server. Without one it skips the test, or
// fails it with ORBIT_TEST_ALL_ENGINES=1.
func NeedServer(t testing.TB, engine string) string {
	t.Helper()
	variable := map[string]string{
		MySQL: "ORBIT_TEST_MYSQL_DSN", MariaDB: "ORBIT_TEST_MARIADB_DSN", Postgres: "ORBIT_TEST_POSTGRES_DSN",
	}[engine]
	dsn := os.Getenv(variable)
	switch {
	case dsn != "":
	case os.Getenv("ORBIT_TEST_ALL_ENGINES") == "1":
		t.Fatalf("%s is not set, and ORBIT_TEST_ALL_ENGINES=1 allows no skipped engine", variable)
	default:
		t.Skipf("skipped on %s: %s names no server (make test sets one up)", engine, variable)
	}
	return dsn
}

package outbox_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/outbox/outboxtest"
)

// A flavour is how a business opens its MySQL or MariaDB.
type flavour struct {
	isolation   sql.IsolationLevel
	foundRows   bool
	interpolate bool
	parseTime   bool
	zone        string // of the session
}

func (f flavour) String() string {
	return fmt.Sprintf("%s,foundRows=%v,interpolate=%v,parseTime=%v,zone=%s",
		strings.ReplaceAll(f.isolation.String(), " ", ""), f.foundRows, f.interpolate, f.parseTime, strings.ReplaceAll(f.zone, ":", ""))
}

// flavours cover each pair of settings.
var flavours = []flavour{
	{sql.LevelRepeatableRead, false, false, false, "SYSTEM"},
	{sql.LevelRepeatableRead, true, true, true, "-03:30"},
	{sql.LevelReadCommitted, true, false, true, "+12:45"},
	{sql.LevelReadCommitted, false, true, false, "-03:30"},
	{sql.LevelSerializable, false, true, true, "+12:45"},
	{sql.LevelSerializable, true, false, false, "SYSTEM"},
}

func TestOutboxOnSQLite(t *testing.T) {
	outboxtest.TestOutbox(t, func(t testing.TB) outboxtest.Database {
		db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
		business := openSQLite(t, db)
		return database(t, db, business, nil)
	})
}

func TestOutboxOnMySQL(t *testing.T)   { testFlavours(t, dbtest.MySQL) }
func TestOutboxOnMariaDB(t *testing.T) { testFlavours(t, dbtest.MariaDB) }

// testFlavours runs the suite the way our own programs open a database, and then with
// business, relay and operators all on a pool of each flavour.
func testFlavours(t *testing.T, engine string) {
	t.Run("own pools", func(t *testing.T) {
		outboxtest.TestOutbox(t, func(t testing.TB) outboxtest.Database {
			db := dbtest.Open(t, engine, migrations.Outbox)
			return database(t, db, db.Write(), nil)
		})
	})
	for _, f := range flavours {
		t.Run(f.String(), func(t *testing.T) {
			if testing.Short() {
				t.Skip("skipped with -short")
			}
			outboxtest.TestOutbox(t, func(t testing.TB) outboxtest.Database {
				db := dbtest.Open(t, engine, migrations.Outbox)
				business := openMySQL(t, db, f)
				d := database(t, db, business, &sql.TxOptions{Isolation: f.isolation})
				d.Store = openStore(t, outbox.MySQL, business, business)
				d.Other = openStore(t, outbox.MySQL, openMySQL(t, db, f), business)
				return d
			})
		})
	}
}

func database(t testing.TB, db *dbtest.DB, business *sql.DB, options *sql.TxOptions) outboxtest.Database {
	o, err := outbox.New(db.Dialect(), outbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	other := db.Reopen(t)
	return outboxtest.Database{
		Outbox:    o,
		Store:     openStore(t, db.Dialect(), db.Write(), db.Read()),
		Other:     openStore(t, db.Dialect(), other.Write(), other.Read()),
		Business:  business,
		TxOptions: options,
		OneWriter: db.Dialect() == outbox.SQLite,
	}
}

func openStore(t testing.TB, d *outbox.Dialect, write, read *sql.DB) *outbox.Store {
	s, err := outbox.Open(d, write, read)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openMySQL opens the database of db as a business of that flavour does.
func openMySQL(t testing.TB, db *dbtest.DB, f flavour) *sql.DB {
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(db.Address, "mysql:"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ClientFoundRows, cfg.InterpolateParams, cfg.ParseTime = f.foundRows, f.interpolate, f.parseTime
	level := "transaction_isolation"
	if db.Engine == dbtest.MariaDB {
		level = "tx_isolation"
	}
	cfg.Params = map[string]string{
		"time_zone": "'" + f.zone + "'",
		level:       "'" + strings.ReplaceAll(strings.ToUpper(f.isolation.String()), " ", "-") + "'",
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pool := sql.OpenDB(connector)
	t.Cleanup(func() { pool.Close() })
	return pool
}

// openSQLite opens the file of db as a business does.
func openSQLite(t testing.TB, db *dbtest.DB) *sql.DB {
	pool, err := sql.Open("sqlite", outbox.SQLiteDSN(strings.TrimPrefix(db.Address, "sqlite:")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

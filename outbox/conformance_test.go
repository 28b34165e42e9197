package outbox_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

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
	loc         *time.Location // nil is UTC
	zone        string         // of the session
}

func (f flavour) String() string {
	return fmt.Sprintf("%s,foundRows=%v,interpolate=%v,parseTime=%v,loc=%v,zone=%s",
		strings.ReplaceAll(f.isolation.String(), " ", ""), f.foundRows, f.interpolate, f.parseTime, f.loc, strings.ReplaceAll(f.zone, ":", ""))
}

// far is a zone on the other side of that of the session.
var far = time.FixedZone("far", -11*60*60)

// The whole suite runs on these: what a plain DSN gives, and the opposite.
var flavours = []flavour{
	{sql.LevelRepeatableRead, false, false, false, nil, "SYSTEM"},
	{sql.LevelSerializable, true, false, true, far, "+12:45"},
}

// Cases mostly wait for commits, so more of them than processors run side by side.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := dbtest.DropBorrowed(); err != nil {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
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
	t.Parallel()
	t.Run("own pools", func(t *testing.T) {
		outboxtest.TestOutbox(t, func(t testing.TB) outboxtest.Database {
			db := dbtest.Borrow(t, engine, migrations.Outbox)
			return database(t, db, db.Write(), nil)
		})
	})
	for _, f := range flavours {
		t.Run(f.String(), func(t *testing.T) {
			if testing.Short() {
				t.Skip("skipped with -short")
			}
			outboxtest.TestOutbox(t, func(t testing.TB) outboxtest.Database {
				db := dbtest.Borrow(t, engine, migrations.Outbox)
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
	if f.loc != nil {
		cfg.Loc = f.loc
	}
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

// MariaDB can refuse to read past an old snapshot, and does so by default from 11.6.
// Then the transaction has to run again.
func TestOldSnapshotUnderSnapshotIsolationIsToldToRunAgain(t *testing.T) {
	db := dbtest.Open(t, dbtest.MariaDB, migrations.Outbox)
	pool := openMySQL(t, db, flavour{isolation: sql.LevelRepeatableRead, zone: "SYSTEM"})
	pool.SetMaxOpenConns(1)
	if _, err := pool.ExecContext(t.Context(), "SET SESSION innodb_snapshot_isolation = ON"); err != nil {
		t.Skipf("this MariaDB has no such setting: %v", err)
	}
	o := newOutbox(t, outbox.MySQL, outbox.Config{})
	old, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.ExecContext(t.Context(), "SELECT COUNT(*) FROM orbit_outbox"); err != nil {
		t.Fatal(err)
	}
	first := enqueue(t, db, outbox.Config{}, message("a"))
	if _, err := o.Enqueue(t.Context(), old, message("a")); !errors.Is(err, outbox.ErrRetry) {
		t.Fatalf("Enqueue with an old snapshot = %v, want ErrRetry", err)
	}
	old.Rollback()
	again, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Rollback()
	if r, err := o.Enqueue(t.Context(), again, message("a")); err != nil || r.Seq != first.Seq {
		t.Fatalf("Enqueue again = %+v, %v; want row %d", r, err, first.Seq)
	}
}

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
	zone        string // of the session
}

func (f flavour) String() string {
	return fmt.Sprintf("%s,foundRows=%v,interpolate=%v,parseTime=%v,zone=%s",
		strings.ReplaceAll(f.isolation.String(), " ", ""), f.foundRows, f.interpolate, f.parseTime, strings.ReplaceAll(f.zone, ":", ""))
}

// The whole suite runs on these: what a plain DSN gives, and the opposite.
var flavours = []flavour{
	{sql.LevelRepeatableRead, false, false, false, "SYSTEM"},
	{sql.LevelSerializable, true, false, true, "+12:45"},
}

// everyFlavour returns all combinations.
func everyFlavour() (all []flavour) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for bits := range 8 {
			f := flavour{level, bits&1 != 0, bits&2 != 0, bits&4 != 0, []string{"-03:30", "+12:45"}[bits%2]}
			all = append(all, f)
		}
	}
	return all
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

// On every combination of settings the promise of Enqueue holds, and rows are settled.
func TestEnqueueOnAnyConnection(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine, migrations.Outbox)
			for i, f := range everyFlavour() {
				t.Run(f.String(), func(t *testing.T) { enqueueOn(t, openMySQL(t, db, f), f, fmt.Sprintf("flavour:%d", i)) })
			}
		})
	}
}

func enqueueOn(t *testing.T, pool *sql.DB, f flavour, key string) {
	ctx := t.Context()
	o := newOutbox(t, outbox.MySQL, outbox.Config{})
	s := openStore(t, outbox.MySQL, pool, pool)
	begin := func() *sql.Tx {
		tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: f.isolation})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		return tx
	}
	must := func(tx *sql.Tx, m outbox.Message) outbox.Receipt {
		t.Helper()
		r, err := o.Enqueue(ctx, tx, m)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old, gone, first, again := begin(), begin(), begin(), begin()
	// The snapshot of a transaction begins with its first read. A SERIALIZABLE one
	// locks what it reads, so it reads something else.
	if _, err := old.ExecContext(ctx, "SELECT COUNT(*) FROM orbit_outbox_hold"); err != nil {
		t.Fatal(err)
	}
	must(gone, message(key))
	if err := gone.Rollback(); err != nil {
		t.Fatal(err)
	}
	receipt := must(first, message(key))
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	for name, tx := range map[string]*sql.Tx{"repeat": again, "repeat with an old snapshot": old} {
		if r := must(tx, message(key)); r.Seq != receipt.Seq || !r.Existing {
			t.Errorf("%s = %+v, want row %d", name, r, receipt.Seq)
		}
		other := message(key)
		other.Request.Handler = "another"
		if _, err := o.Enqueue(ctx, tx, other); !errors.Is(err, outbox.ErrConflict) {
			t.Errorf("%s with other content = %v, want ErrConflict", name, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	settleOn(t, s, receipt.Seq)
}

// settleOn leads, postpones, delivers and releases.
func settleOn(t *testing.T, s *outbox.Store, seq int64) {
	ctx := t.Context()
	l, err := s.Lead(ctx, 0, "relay", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Postpone(ctx, l, []int64{seq}, 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	if n != 1 || err != nil {
		t.Fatalf("Postpone = %d, %v", n, err)
	}
	d := outbox.Delivery{Seq: seq, TaskID: strings.Repeat("1", 32), RequestID: strings.Repeat("2", 32), Status: 201, AcceptedAt: time.Now()}
	for range 2 {
		if n, err := s.Deliver(ctx, l, []outbox.Delivery{d}); n != 1 || err != nil {
			t.Fatalf("Deliver = %d, %v", n, err)
		}
	}
	if err := s.Release(ctx, l); err != nil {
		t.Fatal(err)
	}
	r, err := s.Get(ctx, seq)
	if err != nil || r.State != outbox.Delivered || r.Attempts != 2 || time.Since(r.CreatedAt).Abs() > 10*time.Minute {
		t.Fatalf("row is %+v, %v; want it DELIVERED, made now", r, err)
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

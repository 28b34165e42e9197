package orm

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	gormsqlite "github.com/libtnb/sqlite"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/outbox/outboxtest"
)

// A shop takes orders.
type shop interface {
	Place(context.Context, Order) error
}

// OUT-001, OUT-004, OUT-005: with each library order and message are committed together, or
// neither is.
func TestOrderAndMessageAreOneTransaction(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		pool := open(t, db)
		if _, err := pool.ExecContext(t.Context(), "CREATE TABLE orders (id VARCHAR(64) NOT NULL PRIMARY KEY, quantity INTEGER NOT NULL)"); err != nil {
			t.Fatal(err)
		}
		box, err := outbox.New(db.Dialect(), outbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range shops(t, db, pool, box) {
			t.Run(name, func(t *testing.T) { trade(t, pool, s, name) })
		}
		store, err := outbox.Open(db.Dialect(), pool, pool)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := store.Verify(t.Context(), 0, 100); err != nil || len(v.Faults) > 0 || v.Rows != len(shops(t, db, pool, box)) {
			t.Errorf("Verify = %+v, %v; want a row of each library, and no fault", v, err)
		}
	}, migrations.Outbox)
}

func trade(t *testing.T, pool *sql.DB, s shop, name string) {
	good, bad := Order{ID: name + "-good", Quantity: 2}, Order{ID: name + "-bad", Quantity: stock + 1}
	if err := s.Place(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if err := s.Place(t.Context(), bad); !errors.Is(err, ErrSoldOut) {
		t.Fatalf("Place of too much = %v, want ErrSoldOut", err)
	}
	if err := s.Place(t.Context(), good); err == nil {
		t.Fatal("an order was placed twice")
	}
	want, err := shipping(good)
	if err != nil {
		t.Fatal(err)
	}
	outboxtest.RequireEnqueued(t, outboxtest.In(pool), outboxtest.Match{Key: want.Key, Target: want.Target, Payload: want.Request.Payload})
	unwanted, err := shipping(bad)
	if err != nil {
		t.Fatal(err)
	}
	outboxtest.RequireNothingEnqueued(t, outboxtest.In(pool), outboxtest.Match{Key: unwanted.Key})
	for o, want := range map[Order]int{good: 1, bad: 0} {
		var n int
		if err := pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders WHERE id = ?", o.ID).Scan(&n); err != nil || n != want {
			t.Errorf("%d orders %s, %v; want %d", n, o.ID, err, want)
		}
	}
}

// What the documents of these libraries offer beside a transaction is refused.
func TestPoolsOfLibrariesAreRefused(t *testing.T) { // OUT-004
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	pool := open(t, db)
	box, err := outbox.New(db.Dialect(), outbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	all := shops(t, db, pool, box)
	m, err := shipping(Order{ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tx := range map[string]outbox.Tx{
		"sql":           pool,
		"sqlx":          all["sqlx"].(SQLXShop).DB,
		"gorm":          all["gorm"].(GORMShop).DB.Statement.ConnPool,
		"gorm prepared": all["gorm prepared"].(GORMShop).DB.Statement.ConnPool,
		"bun":           all["bun"].(BunShop).DB,
	} {
		if _, err := box.Enqueue(t.Context(), tx, m); !errors.Is(err, outbox.ErrNoTransaction) {
			t.Errorf("%s: Enqueue on a pool (%T) = %v, want ErrNoTransaction", name, tx, err)
		}
	}
	outboxtest.RequireNothingEnqueued(t, outboxtest.In(pool), outboxtest.Match{})
}

// A bun.Tx itself freezes the same bytes as the *sql.Tx in it.
func TestABunTxItselfFits(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		box, err := outbox.New(db.Dialect(), outbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		b := shops(t, db, open(t, db), box)["bun"].(BunShop)
		m, err := shipping(Order{ID: `quo'te "?" \`, Quantity: 1})
		if err != nil {
			t.Fatal(err)
		}
		err = b.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			first, err := box.Enqueue(ctx, tx, m)
			if err != nil {
				return err
			}
			again, err := box.Enqueue(ctx, tx.Tx, m)
			if err == nil && (!again.Existing || again.Seq != first.Seq) {
				t.Errorf("again = %+v, want row %d", again, first.Seq)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		store, err := outbox.Open(db.Dialect(), db.Write(), db.Read())
		if err != nil {
			t.Fatal(err)
		}
		if v, err := store.Verify(t.Context(), 0, 100); err != nil || len(v.Faults) > 0 || v.Rows != 1 {
			t.Errorf("Verify = %+v, %v; want one row without a fault", v, err)
		}
	}, migrations.Outbox)
}

// open opens the database as a service does.
func open(t *testing.T, db *dbtest.DB) *sql.DB {
	driver, dsn, _ := strings.Cut(db.Address, ":")
	if db.Engine == dbtest.SQLite {
		dsn = outbox.SQLiteDSN(dsn)
	}
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

func shops(t *testing.T, db *dbtest.DB, pool *sql.DB, box *outbox.Outbox) map[string]shop {
	all := map[string]shop{
		"sql": SQLShop{pool, box}, "conn": ConnShop{pool, box},
		"gorm": GORMShop{openGORM(t, db, pool, false), box}, "gorm prepared": GORMShop{openGORM(t, db, pool, true), box},
	}
	if db.Engine == dbtest.SQLite {
		all["sqlx"] = SQLXShop{sqlx.NewDb(pool, "sqlite"), box}
		all["bun"] = BunShop{bun.NewDB(pool, sqlitedialect.New()), box}
	} else {
		all["sqlx"] = SQLXShop{sqlx.NewDb(pool, "mysql"), box}
		all["bun"] = BunShop{bun.NewDB(pool, mysqldialect.New()), box}
	}
	return all
}

func openGORM(t *testing.T, db *dbtest.DB, pool *sql.DB, prepare bool) *gorm.DB {
	dialector := gormmysql.New(gormmysql.Config{Conn: pool})
	if db.Engine == dbtest.SQLite {
		dialector = &gormsqlite.Dialector{Conn: pool}
	}
	g, err := gorm.Open(dialector, &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

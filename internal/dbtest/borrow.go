package dbtest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit/migrations"
)

// lent are the databases of this process that wait for the next test, by what they hold.
var lent struct {
	sync.Mutex
	free map[string][]string // addresses
	all  map[string]*mysql.Config
}

// Borrow is Open for a test that changes rows and adds tables, but alters none of the
// tables of its sets: on MySQL and MariaDB, where making a database takes most of the time
// of a short test, it gets one that an earlier test has used, with everything in it
// deleted. Numbers given out by AUTO_INCREMENT go on. The package's TestMain must call
// DropBorrowed at its end.
func Borrow(t testing.TB, engine string, sets ...migrations.Set) *DB {
	t.Helper()
	if engine == SQLite {
		return Open(t, engine, sets...)
	}
	dsn := NeedServer(t, engine)
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal("the test server's DSN is malformed")
	}
	s, err := mysqlTemplates.get(sets, func(sets []migrations.Set) (script, error) { return makeScript(cfg, engine, sets) }, dsn)
	if err != nil {
		t.Fatalf("prepare template on %s: %v", cfg.Addr, err)
	}
	kind := fmt.Sprint(engine, sets)
	name, used := borrowed(kind)
	if !used {
		name = databaseName()
		if err := create(cfg, name); err != nil {
			t.Fatalf("create test database: %v", err)
		}
		lendable(name, cfg)
		if err := s.replay(t.Context(), cfg, name); err != nil {
			t.Fatalf("fill test database: %v", err)
		}
	}
	t.Cleanup(func() {
		if err := s.wipe(cfg, name); err != nil {
			t.Errorf("wipe test database: %v", err)
			return // and never lend it again
		}
		giveBack(kind, name)
	})
	return openAt(t, engine, address(cfg, name)) // its clean-up comes first: nobody is connected when it is wiped
}

func borrowed(kind string) (name string, ok bool) {
	lent.Lock()
	defer lent.Unlock()
	free := lent.free[kind]
	if len(free) == 0 {
		return "", false
	}
	last := len(free) - 1
	lent.free[kind] = free[:last]
	return free[last], true
}

func lendable(name string, cfg *mysql.Config) {
	lent.Lock()
	defer lent.Unlock()
	if lent.all == nil {
		lent.all, lent.free = map[string]*mysql.Config{}, map[string][]string{}
	}
	lent.all[name] = cfg
}

func giveBack(kind, name string) {
	lent.Lock()
	defer lent.Unlock()
	lent.free[kind] = append(lent.free[kind], name)
}

// DropBorrowed drops every database that Borrow has made. It is for TestMain, after the
// tests.
func DropBorrowed() error {
	lent.Lock()
	defer lent.Unlock()
	for name, cfg := range lent.all {
		if err := drop(cfg, name); err != nil {
			return fmt.Errorf("drop test database: %w", err)
		}
	}
	lent.all, lent.free = nil, nil
	return nil
}

var createsTable = regexp.MustCompile("^CREATE TABLE `([^`]+)`")

// wipe makes a used database what replay made it, but for its counters.
func (s script) wipe(cfg *mysql.Config, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, closeAll, err := connect(ctx, cfg, name)
	if err != nil {
		return err
	}
	defer closeAll()
	tables, err := pairs(ctx, conn, "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
	if err != nil {
		return err
	}
	var ours []string
	for _, text := range s.create {
		if m := createsTable.FindStringSubmatch(text); m != nil {
			ours = append(ours, m[1])
		}
	}
	var drops []string
	changes := []string{"START TRANSACTION"}
	for _, table := range tables {
		if slices.Contains(ours, table[0]) {
			changes = append(changes, "DELETE FROM `"+table[0]+"`")
		} else {
			drops = append(drops, "DROP TABLE `"+table[0]+"`")
		}
	}
	changes = append(append(drops, changes...), s.rows...)
	_, err = conn.ExecContext(ctx, strings.Join(append(changes, "COMMIT"), "; "))
	return err
}

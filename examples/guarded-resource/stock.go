package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	_ "github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardworker"
	"github.com/orbitkit/orbit/worker"
)

// A stock is the guarded resource: a table, and beside it those of the guard.
type stock struct {
	db       *sql.DB
	guard    *resourceguard.Guard
	resource *guardworker.Resource
}

// openStock opens the owner's database. namespace is the only one that may write to it.
func openStock(ctx context.Context, address, namespace string) (*stock, error) {
	db, dialect, err := openDatabase(address)
	if err != nil {
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("database cannot be reached: %w", err)
	}
	authorise := func(_ context.Context, ns, _ string) error { // a token is no permission
		if ns != namespace {
			return errors.New("the namespace may not write to this stock")
		}
		return nil
	}
	guard, err := resourceguard.New(dialect, authorise, resourceguard.Config{})
	if err != nil {
		db.Close()
		return nil, err
	}
	resource, err := guardworker.New(guard, db)
	return &stock{db, guard, resource}, err
}

func openDatabase(address string) (*sql.DB, *resourceguard.Dialect, error) {
	kind, rest, _ := strings.Cut(address, ":")
	switch kind {
	case "mysql":
		db, err := sql.Open("mysql", rest)
		if err != nil {
			err = errors.New("GUARDED_DATABASE must be mysql:user:password@tcp(host:port)/database")
		}
		return db, resourceguard.MySQL, err
	case "sqlite":
		file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: rest}).EscapedPath()}
		db, err := sql.Open("sqlite", file.String()+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
		return db, resourceguard.SQLite, err
	}
	return nil, nil, errors.New(`GUARDED_DATABASE must begin with "mysql:" or "sqlite:"`)
}

// prepare makes the tables that are not there: those of the guard, and the owner's.
func prepare(ctx context.Context, address, namespace string) (*stock, error) {
	if err := migrate(ctx, address); err != nil {
		return nil, err
	}
	s, err := openStock(ctx, address, namespace)
	if err != nil {
		return nil, err
	}
	const create = `
		CREATE TABLE IF NOT EXISTS guarded_stock (
			operation VARCHAR(64) NOT NULL, attempt INTEGER NOT NULL, quantity INTEGER NOT NULL)`
	if _, err := s.db.ExecContext(ctx, create); err != nil {
		s.db.Close()
		return nil, fmt.Errorf("create table: %w", err)
	}
	return s, nil
}

// migrate runs orbit-migrate: the one that lies beside this program, or under go run the
// one of the module.
func migrate(ctx context.Context, address string) error {
	program := []string{"go", "run", "github.com/orbitkit/orbit/cmd/orbit-migrate"}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "orbit-migrate")
		if _, err := os.Stat(beside); err == nil {
			program = []string{beside}
		}
	}
	args := append(program[1:], "up", "--set", "guard")
	cmd := exec.CommandContext(ctx, program[0], args...)
	cmd.Env = append(os.Environ(), "ORBIT_DATABASE="+address) // where other users do not see the password
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("orbit-migrate up --set guard: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// take is the write of one attempt. The guard judges it in the transaction that it runs in.
func (s *stock) take(ctx context.Context, e worker.Execution, quantity int) ([]byte, error) {
	return s.resource.Apply(ctx, e, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO guarded_stock (operation, attempt, quantity) VALUES (?, ?, ?)",
			e.OperationRoot, e.Task.AttemptNumber, quantity)
		return fmt.Appendf(nil, `{"taken":%d}`, quantity), err
	})
}

// highest returns the highest token that the resource has seen, 0 if that is not known.
// It asks by a raise to the lowest token, which is refused as stale.
func (s *stock) highest(ctx context.Context, task orbit.Task) uint64 {
	err := s.guard.Transact(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		return s.guard.Raise(ctx, tx, resourceguard.Fence{Namespace: task.NamespaceID, Key: task.ConcurrencyKey, Token: 1})
	})
	var stale *resourceguard.StaleError
	switch {
	case errors.As(err, &stale):
		return stale.Highest
	case err == nil:
		return 1
	}
	return 0
}

// counts are what the database holds of a task.
type counts struct {
	rows, taken, attempt, operations int
}

func (s *stock) count(ctx context.Context, task orbit.Task) (c counts, err error) {
	const rows = "SELECT COUNT(*), COALESCE(SUM(quantity), 0), COALESCE(MAX(attempt), 0) FROM guarded_stock WHERE operation = ?"
	if err := s.db.QueryRowContext(ctx, rows, task.ID).Scan(&c.rows, &c.taken, &c.attempt); err != nil {
		return c, err
	}
	_, there, err := s.guard.Lookup(ctx, s.db, task.NamespaceID, task.ConcurrencyKey, task.ID)
	if there {
		c.operations = 1
	}
	return c, err
}

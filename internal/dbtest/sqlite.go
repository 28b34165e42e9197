package dbtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
)

// sqliteTemplates holds the bytes of a migrated file per list of sets.
var sqliteTemplates templates[[]byte]

// newSQLite writes a fresh migrated file and returns its address.
func newSQLite(t testing.TB, sets []migrations.Set) string {
	t.Helper()
	file := filepath.Join(folder(t), "orbit.db")
	content, err := sqliteTemplates.get(sets, makeSQLite)
	if err != nil {
		t.Fatalf("prepare SQLite template: %v", err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + file
}

// folder returns a folder that goes with the test. It prefers memory: the files are
// opened with synchronous=FULL as in production, and a test proves nothing about a disk.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "orbit-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func makeSQLite(sets []migrations.Set) ([]byte, error) {
	dir, err := os.MkdirTemp("", "orbit-test-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "template.db")
	if err := migrate("sqlite:"+file, sets); err != nil { // Close moves the log into the file
		return nil, err
	}
	return os.ReadFile(file)
}

func migrate(address string, sets []migrations.Set) error {
	ctx := context.Background()
	db, err := drivers.OpenForMigration(ctx, address)
	if err != nil {
		return err
	}
	err = applyAll(ctx, db, sets)
	if closeErr := db.Close(); err == nil {
		err = closeErr
	}
	return err
}

func applyAll(ctx context.Context, db *sqldb.DB, sets []migrations.Set) error {
	for _, set := range sets {
		if _, err := migrations.Up(ctx, db, set, migrations.Options{}); err != nil {
			return err
		}
	}
	return nil
}

// templates makes one template per process and list of sets.
type templates[T any] struct {
	mu   sync.Mutex
	made map[string]T
}

func (c *templates[T]) get(sets []migrations.Set, build func([]migrations.Set) (T, error), more ...string) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint(sets) + strings.Join(more, "|")
	if t, ok := c.made[key]; ok {
		return t, nil
	}
	t, err := build(sets)
	if err != nil {
		return t, err
	}
	if c.made == nil {
		c.made = map[string]T{}
	}
	c.made[key] = t
	return t, nil
}

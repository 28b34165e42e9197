package drivers_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
)

func openSQLite(t *testing.T, path string) *sqldb.DB {
	t.Helper()
	db, err := drivers.Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestANewSQLiteFileIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orbit.db")
	db := openSQLite(t, path)
	if _, err := db.Write().ExecContext(t.Context(), "CREATE TABLE a (x)"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("mode of %s = %o, want 600", filepath.Base(name), mode)
		}
	}
}

func TestSQLiteWritesAreDurableAndWait(t *testing.T) {
	db := openSQLite(t, filepath.Join(t.TempDir(), "orbit.db"))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000"} {
		var got string
		if err := db.Write().QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", pragma, got, err, want)
		}
	}
}

// A transaction holds the write lock from its beginning, so that it cannot fail half-way
// for another writer.
func TestSQLiteTransactionsBeginImmediate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orbit.db")
	first, second := openSQLite(t, path), openSQLite(t, path)
	if _, err := second.Write().ExecContext(t.Context(), "PRAGMA busy_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	tx, err := first.Write().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Write().BeginTx(t.Context(), nil); !sqldb.SQLite.Transient(err) {
		t.Errorf("second BEGIN = %v, want busy", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

func TestTheSQLiteReadPoolCannotWrite(t *testing.T) {
	db := openSQLite(t, filepath.Join(t.TempDir(), "orbit.db"))
	if _, err := db.Write().ExecContext(t.Context(), "CREATE TABLE a (x)"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"INSERT INTO a VALUES (1)", "CREATE TABLE b (x)"} {
		if _, err := db.Read().ExecContext(t.Context(), statement); err == nil {
			t.Errorf("%s succeeded through the read pool", statement)
		}
	}
	var n int
	if err := db.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM a").Scan(&n); err != nil {
		t.Errorf("read: %v", err)
	}
}

func TestASQLitePathMayHoldAnyCharacter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%20é&_txlock=x.db")
	openSQLite(t, path)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file is not where it was asked for: %v", err)
	}
}

func TestASQLitePathIsRelativeToTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	openSQLite(t, "orbit.db")
	if _, err := os.Stat(filepath.Join(dir, "orbit.db")); err != nil {
		t.Error(err)
	}
}

func TestManyProcessesMayCreateOneSQLiteFile(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "orbit.db")
		var openers sync.WaitGroup
		for range 8 {
			openers.Go(func() {
				db, err := drivers.Open(t.Context(), "sqlite:"+path)
				if err != nil {
					t.Errorf("Open: %v", err)
					return
				}
				db.Close()
			})
		}
		openers.Wait()
	}
}

func TestABadSQLiteAddressNamesTheRule(t *testing.T) {
	notADatabase := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(notADatabase, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"sqlite:":                     "needs the path of a file",
		"sqlite::memory:":             "not a memory database",
		"sqlite:file:x.db?mode=ro":    "not a memory database or a URI",
		"sqlite:a\x00b":               "NUL",
		"sqlite:/no/such/folder/x.db": "folder does not exist",
		"sqlite:" + t.TempDir():       "is a directory",
		"sqlite:" + notADatabase:      "not a database",
	}
	for address, want := range tests {
		if _, err := drivers.Open(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, want an error with %q", address, err, want)
		}
	}
}

func TestOpenExistingMakesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orbit.db")
	if _, err := drivers.OpenExisting(t.Context(), "sqlite:"+path); err == nil || !strings.Contains(err.Error(), "orbit-migrate up makes it") {
		t.Errorf("OpenExisting without a file = %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("a file was made")
	}
	openSQLite(t, path)
	db, err := drivers.OpenExisting(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
}

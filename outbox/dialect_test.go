package outbox_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/orbitkit/orbit/outbox"
)

func TestSQLiteDSNOpensThatFile(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("a folder", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"plain.db", "./dot.db", "with:colon.db", "a folder/100% #1?.db", filepath.Join(here, "absolute.db"), "//double.db",
	} {
		if path == "//double.db" {
			path = "/" + filepath.Join(here, "double.db")
		}
		pool, err := sql.Open("sqlite", outbox.SQLiteDSN(path))
		if err != nil {
			t.Fatal(err)
		}
		var mode string
		var timeout, synchronous int
		if err := pool.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := pool.QueryRow("PRAGMA busy_timeout").Scan(&timeout); err != nil {
			t.Fatal(err)
		}
		if err := pool.QueryRow("PRAGMA synchronous").Scan(&synchronous); err != nil {
			t.Fatal(err)
		}
		if mode != "wal" || timeout != 5000 || synchronous != 2 {
			t.Errorf("%s: journal mode %s, busy timeout %d, synchronous %d", path, mode, timeout, synchronous)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		pool.Close()
	}
}

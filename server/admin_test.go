package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

func create(t *testing.T, db *dbtest.DB, path string) (orbit.Credentials, error) {
	t.Helper()
	return server.CreateFile(t.Context(), db.DB, path, func() (orbit.Credentials, error) {
		return server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
			Application: "app", Namespace: "default", Environment: "test", Queue: "first", Actor: "test",
		})
	})
}

// CLI-016: mode 0600, whole or not at all, never over something.
func TestCreateFile(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	dir := t.TempDir()
	path := filepath.Join(dir, "c.json")
	made, err := create(t, db, path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	read, err := orbit.LoadCredentials(path)
	if err != nil || read.Token != made.Token {
		t.Errorf("file reads as %v, %v", read, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left, want one", len(left))
	}
}

func TestCreateFileMakesNothingWithoutAPlaceForIt(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, db, taken); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), taken) {
		t.Errorf("existing file: %v, want ErrExist and its name", err)
	}
	if text, _ := os.ReadFile(taken); string(text) != "mine" {
		t.Error("the existing file was changed")
	}
	missing := filepath.Join(dir, "no", "c.json")
	if _, err := create(t, db, missing); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing folder: %v, want ErrNotExist and its name", err)
	}
	var n int
	if err := db.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM application").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d applications were made, %v", n, err)
	}
}

// A file that turns up between the look and the name: the credential without a file is
// revoked.
func TestACredentialThatLosesItsFileIsRevoked(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	path := filepath.Join(t.TempDir(), "c.json")
	_, err := server.CreateFile(t.Context(), db.DB, path, func() (orbit.Credentials, error) {
		if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		return server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
			Application: "app", Namespace: "default", Environment: "test", Queue: "first", Actor: "test",
		})
	})
	if !errors.Is(err, os.ErrExist) {
		t.Errorf("CreateFile = %v, want ErrExist", err)
	}
	var n int
	if err := db.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM credential WHERE revoked_at IS NOT NULL").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d revoked credentials, %v; want 1", n, err)
	}
}

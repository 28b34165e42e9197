package postgres_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers/postgres"
	"github.com/orbitkit/orbit/internal/sqldb"
)

const canary = "s3cr3t-canary"

// CLI-017: whatever is wrong with an address, the password does not appear.
func TestABadAddressNamesTheRuleAndNeverThePassword(t *testing.T) {
	t.Setenv("PGDATABASE", "")
	for address, want := range map[string]string{
		"":                                     "want postgres://user:password@host:5432/database",
		"mysql:root@tcp(host)/db":              "want postgres://user:password@host:5432/database",
		"postgres:root:" + canary + "@host/db": "want postgres://user:password@host:5432/database",
		"postgres://root:" + canary + "@127.0.0.1:1/":                              "names no database",
		"postgres://root:" + canary + "@127.0.0.1:port/db":                         "not of the form",
		"postgres://root:" + canary + "%zz@127.0.0.1:1/db":                         "not of the form",
		"postgres://root:" + canary + "@127.0.0.1:1/db?sslmode=" + canary:          "not of the form",
		"postgres://root:" + canary + "@127.0.0.1:1/db?connect_timeout=" + canary:  "not of the form",
		"postgres://root:" + canary + "@127.0.0.1:1/db?sslmode=disable&timezone=x": "database at 127.0.0.1:1: ",
	} {
		_, err := postgres.Open(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v, want it to say %q", address, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("error shows the password or has several lines: %q", err)
		}
	}
}

// The server's own words come through, also those that quote a part of the address.
func TestAServersRefusalNeverShowsThePassword(t *testing.T) {
	db := dbtest.Open(t, dbtest.Postgres)
	address, err := url.Parse(db.Address)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(canary, canary)
	if _, err := postgres.Open(t.Context(), address.String()); err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("Open = %v, want a refusal without the password", err)
	}
}

// What Orbit's transactions rely on is set whatever the address says.
func TestTransactionsAreReadCommitted(t *testing.T) {
	db := dbtest.Open(t, dbtest.Postgres)
	other, err := postgres.Open(t.Context(), db.Address+"&default_transaction_isolation=serializable")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	err = other.Tx(t.Context(), func(tx *sqldb.Tx) error {
		var level string
		if err := tx.QueryRowContext(t.Context(), "SHOW transaction_isolation").Scan(&level); err != nil || level != "read committed" {
			t.Errorf("isolation level = %q, %v, want read committed", level, err)
		}
		now, err := tx.Now(t.Context())
		if err == nil && now < 1_700_000_000_000_000 {
			t.Errorf("clock = %d, want microseconds since 1970", now)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

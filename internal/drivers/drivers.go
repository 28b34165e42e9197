// Package drivers opens databases of Orbit's own by address. It is the one place that
// imports database drivers, so that a program which embeds the outbox, the guard or the
// worker carries only the driver that it chose itself.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Open opens the database at address, in one of the forms
//
//	mysql:user:password@tcp(host:3306)/database
//	sqlite:/path/to/file.db
//
// and proves that it can be reached. A SQLite file that does not exist is created with
// mode 0600. Errors never show the password.
func Open(ctx context.Context, address string) (*sqldb.DB, error) {
	return open(ctx, address, mode{create: true})
}

// OpenExisting is Open for a program that serves a database which orbit-migrate has made:
// a SQLite file that does not exist is an error, since its path is most likely mistyped.
func OpenExisting(ctx context.Context, address string) (*sqldb.DB, error) {
	return open(ctx, address, mode{})
}

// OpenForMigration is Open for a runner of migrations: an answer may take as long as the
// rebuild of a large table takes, so reads have no time limit unless the DSN sets one.
func OpenForMigration(ctx context.Context, address string) (*sqldb.DB, error) {
	return open(ctx, address, mode{create: true, patient: true})
}

type mode struct {
	create  bool // make a SQLite file that does not exist
	patient bool // wait for answers without a limit
}

func open(ctx context.Context, address string, m mode) (*sqldb.DB, error) {
	kind, rest, _ := strings.Cut(address, ":")
	switch kind {
	case "mysql":
		return openMySQL(ctx, rest, m.patient)
	case "sqlite":
		return openSQLite(ctx, rest, m.create)
	}
	return nil, errKind
}

// Validate reads an address without connecting to anything. Its error never shows the
// password.
func Validate(address string) error {
	kind, rest, _ := strings.Cut(address, ":")
	var err error
	switch kind {
	case "mysql":
		_, err = connectorOf(rest, false)
	case "sqlite":
		_, err = sqlitePath(rest)
	default:
		return errKind
	}
	if err != nil {
		return fmt.Errorf("database address: %w", err)
	}
	return nil
}

var errKind = errors.New("database address must begin with \"mysql:\" or \"sqlite:\"")

// FromEnvironment returns the address that the environment names (CLI-004): get reads a
// variable, databaseName is the variable that holds an address, dsnName the one that
// holds a plain MySQL DSN. Exactly one of the two must be set.
func FromEnvironment(get func(string) string, databaseName, dsnName string) (string, error) {
	database, dsn := get(databaseName), get(dsnName)
	switch {
	case database != "" && dsn != "":
		return "", fmt.Errorf("%s and %s are both set: set one of them", databaseName, dsnName)
	case database != "":
		return database, nil
	case dsn != "":
		return "mysql:" + dsn, nil
	}
	return "", fmt.Errorf("set %s to a MySQL DSN (user:password@tcp(host:3306)/database), or %s to mysql:<DSN> or sqlite:<path>", dsnName, databaseName)
}

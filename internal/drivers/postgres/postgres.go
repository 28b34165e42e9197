// Package postgres opens PostgreSQL databases by address, for the resource guard's tables.
// It stands apart from package drivers, so that the programs that never use PostgreSQL do
// not carry its driver.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/orbitkit/orbit/internal/sqldb"
)

const (
	maxConnections = 8
	maxLifetime    = 3 * time.Minute
	defaultDial    = 5 * time.Second
	oldest         = 15 // major version
)

// IsAddress reports whether an address is meant for this package.
func IsAddress(address string) bool { return strings.HasPrefix(address, "postgres:") }

// Open opens the database at address, a URL as libpq takes it,
//
//	postgres://user:password@host:5432/database?sslmode=require
//
// and proves that it can be reached and is of a version that Orbit knows. What the URL
// leaves out comes from the usual PG variables and files. Errors never show the password.
func Open(ctx context.Context, address string) (*sqldb.DB, error) {
	cfg, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	pool := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(prepare))
	pool.SetMaxOpenConns(maxConnections)
	pool.SetMaxIdleConns(maxConnections)
	pool.SetConnMaxLifetime(maxLifetime)
	if err := checkServer(ctx, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("database at %s:%d: %w", cfg.Host, cfg.Port, conceal(err, cfg.Password))
	}
	return sqldb.New(sqldb.PostgreSQL, pool, pool), nil
}

// parse reads an address. The driver quotes what it could not read, so its own words are
// left out.
func parse(address string) (*pgx.ConnConfig, error) {
	const form = "postgres://user:password@host:5432/database"
	if !strings.HasPrefix(address, "postgres://") {
		return nil, errors.New("want " + form)
	}
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, errors.New("the URL is not of the form " + form + ", or one of its parameters or files is not valid")
	}
	if cfg.Database == "" {
		return nil, errors.New("the URL names no database: want " + form)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = defaultDial
	}
	return cfg, nil
}

// prepare sets a new connection up for Orbit.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
	if err != nil {
		return fmt.Errorf("set isolation level: %w", err)
	}
	return nil
}

// checkServer refuses what Orbit's SQL was not made for. The comments of its tables need
// UTF-8.
func checkServer(ctx context.Context, pool *sql.DB) error {
	var version int
	var encoding string
	err := pool.QueryRowContext(ctx, "SELECT current_setting('server_version_num')::INTEGER, current_setting('server_encoding')").
		Scan(&version, &encoding)
	switch {
	case err != nil:
		return err
	case version/10000 < oldest:
		return fmt.Errorf("PostgreSQL %d is too old: Orbit needs %d or newer", version/10000, oldest)
	case encoding != "UTF8":
		return fmt.Errorf("the database's encoding is %s: Orbit needs UTF8", encoding)
	}
	return nil
}

// conceal returns err in one line and without the password, should the server or the
// driver quote it.
func conceal(err error, password string) error {
	text := err.Error()
	if password != "" {
		text = strings.ReplaceAll(text, password, "***")
	}
	text = strings.Join(strings.Fields(text), " ")
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/orbitkit/orbit/outbox"
)

// A database is that of the service. The outbox is in it, made by orbit-migrate.
type database struct {
	*sql.DB
	dialect *outbox.Dialect
}

var tables = []string{
	"CREATE TABLE IF NOT EXISTS orders (id VARCHAR(128) PRIMARY KEY, product VARCHAR(128) NOT NULL, quantity INTEGER NOT NULL)",
	"CREATE TABLE IF NOT EXISTS stock (product VARCHAR(128) PRIMARY KEY, quantity INTEGER NOT NULL)",
	"CREATE TABLE IF NOT EXISTS shipments (order_id VARCHAR(128) PRIMARY KEY, task_id CHAR(32) NOT NULL)",
}

// open opens an address of the form mysql:user:password@tcp(host:port)/database or sqlite:path.
func open(ctx context.Context, address string) (*database, error) {
	engine, dsn, _ := strings.Cut(address, ":")
	db := &database{dialect: outbox.MySQL}
	switch engine {
	case "mysql":
	case "sqlite":
		db.dialect, dsn = outbox.SQLite, outbox.SQLiteDSN(dsn)
	default:
		return nil, errors.New(databaseVariable + ` must begin with "mysql:" or "sqlite:"`)
	}
	var err error
	if db.DB, err = sql.Open(engine, dsn); err != nil {
		return nil, errors.New(databaseVariable + " is no valid " + engine + " address")
	}
	for _, create := range tables {
		if _, err := db.ExecContext(ctx, create); err != nil {
			return nil, errors.Join(fmt.Errorf("make the tables of the service: %w", err), db.Close())
		}
	}
	return db, nil
}

// inTx runs f in a transaction.
func (db *database) inTx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (db *database) stockUp(ctx context.Context, product string, quantity int) error {
	_, err := db.ExecContext(ctx, "INSERT INTO stock (product, quantity) VALUES (?, ?)", product, quantity)
	return err
}

// count reads one number.
func (db *database) count(ctx context.Context, query string, args ...any) (n int, err error) {
	err = db.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/orbitkit/orbit/resourceguard"
)

// A guardEngine is a database engine that guards run on, and what is written there.
type guardEngine struct {
	name    string
	dialect *resourceguard.Dialect
	floor   guardSQL

	business       string // makes the owner's table
	insertBusiness string // the owner's write

	open func(context.Context, options) (*guardYard, error)
}

// guardEngines are all of them.
var guardEngines = []guardEngine{
	{"MySQL", resourceguard.MySQL, mysqlGuard, mysqlBusiness, insertBusiness, func(ctx context.Context, o options) (*guardYard, error) {
		return openServer(ctx, o.dsn)
	}},
	{"MariaDB", resourceguard.MySQL, mysqlGuard, mysqlBusiness, insertBusiness, func(ctx context.Context, o options) (*guardYard, error) {
		if o.mariadb == "" || o.mariadb == "none" {
			return nil, fmt.Errorf("no -mariadb: %w", errMissing)
		}
		return openServer(ctx, o.mariadb)
	}},
	{"PostgreSQL", resourceguard.PostgreSQL, postgresGuard, postgresBusiness, "INSERT INTO business (note) VALUES ($1)", openPostgres},
	{"SQLite", resourceguard.SQLite, sqliteGuard, sqliteBusiness, insertBusiness, openFile},
}

const (
	postgresBusiness = "CREATE TABLE business (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note VARCHAR(64) NOT NULL)"
	mysqlBusiness    = "CREATE TABLE business (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(64) NOT NULL)"
	sqliteBusiness   = "CREATE TABLE business (id INTEGER PRIMARY KEY, note TEXT NOT NULL)"
)

// A guardYard is a database with the guard's tables, made for the bench.
type guardYard struct {
	*sql.DB
	close func() error
}

func openServer(ctx context.Context, dsn string) (*guardYard, error) {
	w, err := newWorkshop(ctx, dsn, "guard")
	if err != nil {
		return nil, err
	}
	return &guardYard{w.DB, func() error { w.close(); return nil }}, nil
}

// openPostgres starts a server of the bench's own.
func openPostgres(ctx context.Context, _ options) (*guardYard, error) {
	server, err := startPostgres(ctx, pingPostgres)
	if err != nil {
		return nil, err
	}
	if out, err := runOn(ctx, server.postgresURL(), "orbit-migrate", "up", "--set", "guard"); err != nil {
		server.close()
		return nil, fmt.Errorf("make the tables of guard: %w\n%s", err, out)
	}
	db, err := sql.Open("pgx", server.postgresURL())
	if err != nil {
		server.close()
		return nil, err
	}
	db.SetMaxIdleConns(guardClients)
	return &guardYard{db, func() error { defer server.close(); return db.Close() }}, nil
}

// openFile makes a SQLite file that flushes every commit, as the servers do.
func openFile(ctx context.Context, _ options) (*guardYard, error) {
	folder, err := os.MkdirTemp("", "orbit-bench-sqlite")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "guard.db")
	if out, err := runOn(ctx, "sqlite:"+path, "orbit-migrate", "up", "--set", "guard"); err != nil {
		return nil, errors.Join(fmt.Errorf("make the tables of guard: %w\n%s", err, out), os.RemoveAll(folder))
	}
	settings := url.Values{"_pragma": {"busy_timeout(60000)", "journal_mode(WAL)", "synchronous(FULL)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+settings.Encode())
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	db.SetMaxIdleConns(guardClients)
	return &guardYard{db, func() error { return errors.Join(db.Close(), os.RemoveAll(folder)) }}, nil
}

package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
)

//go:embed schema-mysql.sql
var mysqlSchema string

//go:embed schema-sqlite.sql
var sqliteSchema string

// An engine holds what MySQL and MariaDB do in another way than SQLite.
type engine struct {
	schema    string
	clock     string // expression: this instant by the database's clock, microseconds UTC
	lock      string // appended to the SELECT of the row that is to be changed
	isolation sql.IsolationLevel
	again     func(error) bool // the whole transaction is to be run again
}

var mysqlEngine = engine{
	schema:    mysqlSchema,
	clock:     "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))", // no session's time zone has a say
	lock:      " FOR UPDATE",
	isolation: sql.LevelReadCommitted, // no gap locks: Offers of different new keys do not meet
	again: func(err error) bool {
		var e *mysql.MySQLError
		if !errors.As(err, &e) {
			return false
		}
		switch e.Number {
		case 1062, 1213, 1205, 1020: // key just inserted by another, deadlock, lock wait timeout, changed since read
			return true
		}
		return false
	},
}

var sqliteEngine = engine{
	schema: sqliteSchema,
	clock:  "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
	lock:   "", // the transaction begins IMMEDIATE, and is alone
	again: func(err error) bool {
		var e *sqlite.Error
		const busy, locked = 5, 6
		return errors.As(err, &e) && (e.Code()&0xff == busy || e.Code()&0xff == locked)
	},
}

// openDatabase opens an address of the form mysql:user:password@tcp(host:port)/database or
// sqlite:/path/to/file. Its errors do not show the password.
func openDatabase(ctx context.Context, address string) (*sql.DB, engine, error) {
	kind, rest, _ := strings.Cut(address, ":")
	var db *sql.DB
	var e engine
	var err error
	switch kind {
	case "mysql":
		db, err = openMySQL(rest)
		e = mysqlEngine
	case "sqlite":
		db, err = openSQLite(rest)
		e = sqliteEngine
	default:
		err = errors.New(`database address must begin with "mysql:" or "sqlite:"`)
	}
	if err != nil {
		return nil, engine{}, err
	}
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, engine{}, fmt.Errorf("database cannot be reached: %w", err)
	}
	return db, e, nil
}

func openMySQL(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("database address must be mysql:user:password@tcp(host:port)/database")
	}
	cfg.Collation = "binary"     // keys and identities are bytes, not text
	cfg.InterpolateParams = true // one round trip for a statement, not three
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, errors.New("database address has an option that the driver does not take")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	db.SetConnMaxLifetime(3 * time.Minute)
	return db, nil
}

func openSQLite(path string) (*sql.DB, error) {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	const pragmas = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
	db, err := sql.Open("sqlite", file.String()+pragmas)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	return db, nil
}

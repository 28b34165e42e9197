package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/orbitkit/orbit/outbox"
)

// A database is one of the three that a real installation has: the business's, the
// task server's and the resource owner's. They share nothing.
type database struct {
	*sql.DB
	dialect *outbox.Dialect
	address string // as Orbit's programs take it in ORBIT_DATABASE
}

// An engine makes databases and removes them again.
type engine struct {
	name string
	open func(ctx context.Context, name string) (*database, error)
	drop func() error
}

func sqliteEngine(dir string) *engine {
	return &engine{
		name: "SQLite files in " + dir,
		open: func(ctx context.Context, name string) (*database, error) {
			path := filepath.Join(dir, name+".db")
			db, err := sql.Open("sqlite", outbox.SQLiteDSN(path))
			if err != nil {
				return nil, err
			}
			db.SetMaxOpenConns(1) // SQLite has one writer
			return &database{DB: db, dialect: outbox.SQLite, address: "sqlite:" + path}, db.PingContext(ctx)
		},
		drop: func() error { return nil }, // the folder goes with everything else
	}
}

// mysqlEngine makes databases with names of their own on a server and drops only
// those again.
func mysqlEngine(dsn string) (*engine, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("--mysql is not a valid DSN (user:password@tcp(host:port)/): %w", err)
	}
	cfg.DBName = ""
	admin, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return nil, err
	}
	suffix := make([]byte, 4)
	rand.Read(suffix)
	var made []string
	return &engine{
		name: "MySQL at " + cfg.Addr,
		open: func(ctx context.Context, name string) (*database, error) {
			own := *cfg
			own.DBName = "orbit_quickstart_" + name + "_" + hex.EncodeToString(suffix)
			if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+own.DBName); err != nil {
				return nil, err
			}
			made = append(made, own.DBName)
			db, err := sql.Open("mysql", own.FormatDSN())
			if err != nil {
				return nil, err
			}
			return &database{DB: db, dialect: outbox.MySQL, address: "mysql:" + own.FormatDSN()}, db.PingContext(ctx)
		},
		drop: func() error {
			defer admin.Close()
			for _, name := range made {
				if _, err := admin.Exec("DROP DATABASE " + name); err != nil {
					return err
				}
			}
			return nil
		},
	}, nil
}

// inTx runs f in a transaction and commits it if f returns nil.
func inTx(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no-op after Commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

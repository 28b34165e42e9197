package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

// The versions of the outbox schema that this program runs on (MIG-008).
const minSchema, maxSchema = 3, 3

// openSource opens the database of a source and makes sure that the outbox is there in a
// version that this program knows. Its error is one of [cli.Usage] if no repetition mends it.
func openSource(ctx context.Context, s config.Source) (*sqldb.DB, *outbox.Store, error) {
	if err := drivers.Validate(s.Database); err != nil {
		return nil, nil, cli.Usage(err)
	}
	db, store, err := tryOpen(ctx, s)
	if isWrongDatabase(err) {
		return nil, nil, cli.Usage(err)
	}
	return db, store, err
}

func tryOpen(ctx context.Context, s config.Source) (*sqldb.DB, *outbox.Store, error) {
	db, err := drivers.OpenExisting(ctx, s.Database)
	if err != nil {
		return nil, nil, err
	}
	if err := migrations.Check(ctx, db, migrations.Outbox, minSchema, maxSchema); err != nil {
		db.Close()
		return nil, nil, err
	}
	capConnections(db, s.Connections)
	store, err := outbox.Open(db.Dialect(), db.Write(), db.Read())
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	return db, store, nil
}

const defaultConnections = 32 // to a server; SQLite's pools have bounds of their own

// capConnections bounds what a source may take of its database. On SQLite one connection
// writes and the others read; elsewhere one pool does both.
func capConnections(db *sqldb.DB, most int) {
	switch {
	case most > 0:
	case db.Dialect() == sqldb.SQLite:
		return
	default:
		most = defaultConnections
	}
	if db.Read() != db.Write() {
		most--
	}
	db.Read().SetMaxOpenConns(most)
	db.Read().SetMaxIdleConns(most)
}

// openOutbox opens the outbox for an operator, who needs the database only.
func openOutbox(ctx context.Context, env environment) (*sqldb.DB, *outbox.Store, error) {
	s, err := env.chosen()
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	return openSource(ctx, s)
}

// chosen returns the source that an operator means.
func (env environment) chosen() (s config.Source, err error) {
	if env.place.config == "" {
		if env.place.source != "" {
			return s, fmt.Errorf("--source %q: goes with --config", env.place.source)
		}
		s.Name = config.Only
		s.Database, err = drivers.FromEnvironment(env.Get, envDatabase, envDSN)
		return s, err
	}
	cfg, mistakes := readFile(env)
	if len(mistakes) > 0 {
		return s, oneLine(mistakes...)
	}
	var names []string
	for _, s := range cfg.Sources {
		if s.Name == env.place.source || env.place.source == "" && len(cfg.Sources) == 1 {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return s, fmt.Errorf("--source %q: must be one of %s", env.place.source, strings.Join(names, ", "))
}

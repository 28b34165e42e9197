package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// A riverSystem is River on a PostgreSQL database of its own.
type riverSystem struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	config river.Config
	done   *counter
}

type riverArgs struct {
	Key     string `json:"key"`
	Payload string `json:"payload"`
}

func (riverArgs) Kind() string { return "bench_work" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	done *counter
}

func (w *riverWorker) Work(context.Context, *river.Job[riverArgs]) error {
	w.done.Add(1)
	return nil
}

// newRiverSystem makes a database and River's tables in it. Tuned polls and fetches as
// fast as pays, and runs 1,000 jobs at a time.
func newRiverSystem(ctx context.Context, server *privateServer, tuned bool) (*riverSystem, error) {
	name := "river_default"
	queue, config := river.QueueConfig{MaxWorkers: 100}, river.Config{Logger: slog.New(slog.DiscardHandler)}
	if tuned {
		name = "river_tuned"
		queue.MaxWorkers, config.FetchCooldown, config.FetchPollInterval = 1000, 2*time.Millisecond, 20*time.Millisecond
	}
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: queue}
	if err := makePostgresDatabase(ctx, server, name); err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, strings.Replace(server.postgresURL(), "/postgres?", "/"+name+"?", 1)+"&pool_max_conns=80")
	if err != nil {
		return nil, err
	}
	s := &riverSystem{pool: pool, config: config, done: &counter{}}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: config.Logger})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		err = s.renew()
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

func makePostgresDatabase(ctx context.Context, server *privateServer, name string) error {
	conn, err := pgx.Connect(ctx, server.postgresURL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	return err
}

// renew makes a client that has not been started.
func (s *riverSystem) renew() error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{done: s.done})
	config := s.config
	config.Workers = workers
	var err error
	s.client, err = river.NewClient(riverpgxv5.New(s.pool), &config)
	return err
}

func (s *riverSystem) close() { s.pool.Close() }

// padding is a payload of one KiB, as our requests have it.
var padding = strings.Repeat("x", 980)

func (s *riverSystem) fill(ctx context.Context, run string, n int) error {
	const batch = 1000
	for first := 0; first < n; first += batch {
		var jobs []river.InsertManyParams
		for i := first; i < min(first+batch, n); i++ {
			jobs = append(jobs, river.InsertManyParams{Args: riverArgs{fmt.Sprintf("%s-%d", run, i), padding}})
		}
		if _, err := s.client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	_, err := s.pool.Exec(ctx, "ANALYZE river_job")
	return err
}

func (s *riverSystem) submit(ctx context.Context, key string, _ int) error {
	_, err := s.client.Insert(ctx, riverArgs{key, padding}, nil)
	return err
}

func (s *riverSystem) work(ctx context.Context) (func() error, error) {
	s.done.begin()
	if err := s.client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error {
		return errors.Join(s.client.Stop(context.WithoutCancel(ctx)), s.renew())
	}, nil
}

func (s *riverSystem) ended(ctx context.Context, n int) error {
	if err := waitUntil(ctx, func() (bool, error) { return s.done.since() >= n, nil }); err != nil {
		return err
	}
	return waitUntil(ctx, func() (bool, error) {
		var id int64
		err := s.pool.QueryRow(ctx, "SELECT id FROM river_job WHERE state IN ('available', 'running') LIMIT 1").Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return true, nil
		}
		return false, err
	})
}

func pingPostgres(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// riverLacks is what River does not do of what ours does.
const riverLacks = "River writes: the job with its state; no identity with receipt, events, audit, attempt or receipt of a result; claim and start are one step; no network between client, server and worker"

package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// A sourceRun is the time that one source is served under one configuration.
type sourceRun struct {
	config   config.Source
	log      *slog.Logger
	metrics  *exposition
	spans    trace.TracerProvider
	labelled bool // metrics have the source's name
	stop     context.CancelFunc
	done     chan struct{}

	operations *semaphore.Weighted // calls of operators under way

	mu      sync.Mutex
	relay   *relay.Relay // nil until the database is open
	store   *outbox.Store
	lastErr string // why it is not open
}

// openTimeout bounds one try to open a database that does not answer.
const openTimeout = 15 * time.Second

// tryOnce opens the database of a source and closes it again.
func tryOnce(ctx context.Context, s config.Source) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	db, _, err := openSource(ctx, s)
	if err != nil {
		return err
	}
	return db.Close()
}

// run serves the source until ctx ends. A database that cannot be opened is tried again: a
// relay outlives its database.
func (r *sourceRun) run(ctx context.Context) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(200*time.Millisecond), backoff.WithMaxInterval(15*time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		opened, err := r.relayUntil(ctx)
		switch {
		case opened:
			return err
		case ctx.Err() != nil:
			return nil
		}
		if r.note(err) {
			r.log.Error("database cannot be opened, trying on", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
	return nil
}

// note remembers why the database is not open, and reports whether that is new.
func (r *sourceRun) note(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.lastErr == err.Error()
	r.lastErr = err.Error()
	return !known
}

// relayUntil opens the database and relays until ctx ends; opened tells whether it came to
// that.
func (r *sourceRun) relayUntil(ctx context.Context) (opened bool, err error) {
	limited, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	db, store, err := openSource(limited, r.config)
	if err != nil {
		return false, err
	}
	defer db.Close()
	cfg := r.config.Relay
	cfg.Log, cfg.TracerProvider = r.log, r.spans
	m, endMetrics := r.metrics.source(r.config.Name, r.labelled)
	defer endMetrics()
	if m != nil {
		cfg.Observer = m
	}
	forward, err := newRelay(store, r.config.Targets, cfg)
	if err != nil {
		return false, err
	}
	r.set(store, forward)
	defer r.set(nil, nil)
	if m != nil {
		m.Show(forward)
		watch, cancel := context.WithCancel(ctx)
		defer cancel()
		var watching sync.WaitGroup
		defer watching.Wait()
		watching.Go(func() { m.Watch(watch, store, r.log) })
	}
	err = forward.Run(ctx)
	if err != nil {
		r.log.Error("source left to its lease", "err", err)
	}
	return true, err
}

func newRelay(store *outbox.Store, targets []config.Target, cfg relay.Config) (*relay.Relay, error) {
	opened := make([]relay.Target, len(targets))
	for i, t := range targets {
		var err error
		if opened[i], err = t.Open(); err != nil {
			return nil, err
		}
	}
	return relay.New(store, opened, cfg)
}

func (r *sourceRun) set(store *outbox.Store, forward *relay.Relay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store, r.relay = store, forward
	if store != nil {
		r.lastErr = ""
	}
}

func (r *sourceRun) isOpen() bool {
	store, _, _ := r.opened()
	return store != nil
}

// opened returns store and relay, or nil and why the database is not open.
func (r *sourceRun) opened() (*outbox.Store, *relay.Relay, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store, r.relay, r.lastErr
}

package retention

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// MinAge is the shortest age that can be configured: people and reconcilers need some time
// to look at what has ended.
const MinAge = 24 * time.Hour

// firstRun is at most how long Run waits before its first run, so that nodes that are
// started together do not begin together.
const firstRun = time.Second

// Config tunes a Retention.
type Config struct {
	// Age is how long a task stays after its end, at least MinAge. Required.
	Age time.Duration
	// Actor is who deletes, for the audit: a node or a person, at most 128 bytes. Required.
	Actor string
	// Interval is how long Run rests between two runs. Default 10min.
	Interval time.Duration
	// Removed is called after each transaction that deleted something. Default: nobody is
	// told.
	Removed func(Counts)
	// Ran is called after each run that came to its end. Default: nobody is told.
	Ran func(Report)
	// Log gets a line for each run that deleted something, and what is swallowed. Default:
	// discarded.
	Log *slog.Logger
}

// A Retention deletes what is old in a database. It is safe for concurrent use.
type Retention struct {
	db    *sqldb.DB
	cfg   Config
	bound bound
}

// New returns a retention for db.
func New(db *sqldb.DB, cfg Config) (*Retention, error) {
	if err := CheckAge(cfg.Age); err != nil {
		return nil, err
	}
	if len(cfg.Actor) == 0 || len(cfg.Actor) > maxActor {
		return nil, fmt.Errorf("retention: actor has %d bytes, must have 1 to %d", len(cfg.Actor), maxActor)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = 10 * time.Minute
	}
	if cfg.Removed == nil {
		cfg.Removed = func(Counts) {}
	}
	if cfg.Ran == nil {
		cfg.Ran = func(Report) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Retention{db: db, cfg: cfg, bound: transactionBound}, nil
}

// CheckAge refuses an age below MinAge.
func CheckAge(age time.Duration) error {
	if age < MinAge {
		return fmt.Errorf("retention: age %v must be at least %v", age, MinAge)
	}
	return nil
}

// Run deletes until ctx is canceled and then returns nil. Failures of the database are
// logged and tried again with the next run. A failure that lasts is logged when it begins
// and when it has ended.
func (r *Retention) Run(ctx context.Context) error {
	failing := false
	for wait := rand.N(firstRun); rest(ctx, wait); wait = r.cfg.Interval - rand.N(r.cfg.Interval/5+1) {
		_, err := r.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			r.cfg.Log.ErrorContext(ctx, "retention fails", "err", err)
		case err == nil && failing:
			r.cfg.Log.InfoContext(ctx, "retention works again")
		}
		failing = err != nil
	}
	return nil
}

// rest reports false if ctx ended meanwhile.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/api"
	"github.com/orbitkit/orbit/server/internal/retention"
)

// MinRetention is the shortest age at which tasks can be deleted.
const MinRetention = retention.MinAge

// newRetention returns nil if nothing is to be deleted.
func (s *Server) newRetention() (*retention.Retention, error) {
	if s.cfg.Retention == 0 {
		return nil, nil
	}
	r, err := retention.New(s.db, retention.Config{
		Age: s.cfg.Retention, Actor: "node " + s.hub.Node(),
		Removed: s.metrics.Retention.Removed, Ran: s.metrics.Retention.Ran, Log: s.log,
	})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return r, nil
}

// A RetentionRequest asks for one run of the deletion of old tasks.
type RetentionRequest struct {
	Age    time.Duration // how long a task stays after its end; at least MinRetention
	DryRun bool          // count only, change nothing
	Actor  string        // who asks, for the audit: 1 to 128 bytes
	Log    *slog.Logger  // gets what the run deleted; default: nothing is logged
}

// A RetentionReport tells what a run deleted or, if it was a dry run, would have.
type RetentionReport = retention.Report

// A RetentionRun is an earlier run that deleted something.
type RetentionRun = retention.LastRun

// Retain deletes at once what is older than the age that r names: the work of a node whose
// retention is configured, see [Config]. Any number may run at one time, also beside nodes.
// With an error the report tells what was deleted before it.
func Retain(ctx context.Context, db *sqldb.DB, r RetentionRequest) (RetentionReport, error) {
	cfg := retention.Config{Age: r.Age, Actor: r.Actor}
	if r.Log != nil {
		cfg.Log = api.Quiet(r.Log, db.Dialect())
	}
	run, err := retention.New(db, cfg)
	switch {
	case err != nil:
		return RetentionReport{}, err
	case r.DryRun:
		return run.Preview(ctx)
	}
	return run.Sweep(ctx)
}

// LastRetention returns the newest run that deleted something, by any node or person; ok is
// false if there is none.
func LastRetention(ctx context.Context, db *sqldb.DB) (run RetentionRun, ok bool, err error) {
	return retention.Last(ctx, db)
}

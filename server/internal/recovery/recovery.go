package recovery

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

const (
	// batch is how many rows one transaction moves.
	batch = 100
	// heldByOthers is the wait when delayed tasks are due and others hold them.
	heldByOthers = 20 * time.Millisecond
)

// Config tunes a Recovery. The zero value is ready to use.
type Config struct {
	// Interval is how often leases and deadlines are looked at while nothing is found,
	// and the longest wait for a delayed task that another node has accepted. Default 1s.
	Interval time.Duration
	// StrandedInterval is how often a slice of the resource keys is looked at. Default 5s.
	StrandedInterval time.Duration
	// Wake is called after a commit with the lanes that have a READY task more. It must
	// not block. Default: nobody is told.
	Wake func(lanes []int64)
	// Watch is told what was done. Default: nobody is told.
	Watch Watch
	// Modes is what the node remembers of limits. Default: the recovery remembers alone.
	Modes *quota.Modes
	// Log gets what is swallowed. Default: discarded.
	Log *slog.Logger
}

// A Recovery sweeps a database. It is safe for concurrent use.
type Recovery struct {
	db    *sqldb.DB
	cfg   Config
	timer chan struct{} // a delayed task was added

	mu     sync.Mutex
	cursor settle.Digest // where the next slice of keys begins
}

// New returns a recovery for db.
func New(db *sqldb.DB, cfg Config) *Recovery {
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	if cfg.StrandedInterval <= 0 {
		cfg.StrandedInterval = 5 * time.Second
	}
	if cfg.Wake == nil {
		cfg.Wake = func([]int64) {}
	}
	cfg.Watch = cfg.Watch.orNobody()
	if cfg.Modes == nil {
		cfg.Modes = &quota.Modes{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Recovery{db: db, cfg: cfg, timer: make(chan struct{}, 1)}
}

// Wake tells that lanes have got tasks. It makes Run look at the timer again if that is
// among them, and never blocks.
func (r *Recovery) Wake(lanes []int64) {
	if !slices.Contains(lanes, task.TimerLane) {
		return
	}
	select {
	case r.timer <- struct{}{}:
	default:
	}
}

// Run sweeps until ctx is canceled and then returns nil. Failures of the database are
// logged and tried again: a recovery outlives its database.
func (r *Recovery) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { r.loop(ctx, StepLeases, nil, r.every(r.cfg.Interval, r.ExpireLeases)) })
	wg.Go(func() { r.loop(ctx, StepWaiting, nil, r.every(r.cfg.Interval, r.ExpireWaiting)) })
	wg.Go(func() { r.loop(ctx, StepDelayed, r.timer, r.promoteDue) })
	wg.Go(func() { r.loop(ctx, StepStranded, nil, r.sweepStranded) })
	wg.Wait()
	return nil
}

// A step moves one batch and tells how long to wait before the next.
type step func(context.Context) (wait time.Duration, err error)

// every goes on at once after a full batch and otherwise waits.
func (r *Recovery) every(interval time.Duration, f func(context.Context) (int, error)) step {
	return func(ctx context.Context) (time.Duration, error) {
		n, err := f(ctx)
		if n >= batch && err == nil {
			return 0, nil
		}
		return interval, err
	}
}

// promoteDue looks for the next delayed task by a plain read, and begins a transaction
// only when its time has come.
func (r *Recovery) promoteDue(ctx context.Context) (time.Duration, error) {
	next, err := r.nextDue(ctx)
	if err != nil || next > 0 {
		return min(next, r.cfg.Interval), err
	}
	n, err := r.PromoteDelayed(ctx)
	switch {
	case err != nil:
		return r.cfg.Interval, err
	case n == 0:
		return heldByOthers, nil
	}
	return 0, nil
}

func (r *Recovery) sweepStranded(ctx context.Context) (time.Duration, error) {
	return r.cfg.StrandedInterval, r.PromoteStranded(ctx)
}

// loop runs steps until ctx is canceled. A failure that lasts is logged when it begins
// and when it has ended, not at every try.
func (r *Recovery) loop(ctx context.Context, what string, nudge <-chan struct{}, next step) {
	failing := false
	for ctx.Err() == nil {
		began := time.Now()
		wait, err := next(ctx)
		r.cfg.Watch.Swept(what, time.Since(began), err)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			r.cfg.Log.ErrorContext(ctx, "recovery fails", "step", what, "err", err)
		case err == nil && failing:
			r.cfg.Log.InfoContext(ctx, "recovery works again", "step", what)
		}
		failing = err != nil
		if wait > 0 {
			pause(ctx, wait, nudge)
		}
	}
}

// pause waits, give or take a tenth, so that nodes do not sweep in step.
func pause(ctx context.Context, d time.Duration, nudge <-chan struct{}) {
	t := time.NewTimer(d - d/10 + rand.N(d/5+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-nudge:
	case <-t.C:
	}
}

// settle runs f in a transaction, flushes what it ended, and wakes the lanes that got a
// task. A second run after a commit of unknown outcome finds nothing left to do.
func (r *Recovery) settle(ctx context.Context, f func(*sqldb.Tx) (*settle.Settlement, error)) error {
	var (
		lanes []int64
		tally settle.Tally
	)
	err := r.tx(ctx, func(tx *sqldb.Tx) error {
		s, err := f(tx)
		if err != nil {
			return err
		}
		lanes, err = s.Flush(ctx)
		tally = s.Tally()
		return err
	})
	if err == nil {
		r.cfg.Watch.Settled(tally)
	}
	if err == nil && len(lanes) > 0 {
		r.Wake(lanes)
		r.cfg.Wake(lanes)
	}
	return err
}

func (r *Recovery) tx(ctx context.Context, f func(*sqldb.Tx) error) error {
	again := func(context.Context, sqldb.Querier) (bool, error) { return false, nil }
	return r.db.TxResolve(ctx, f, again)
}

// apart runs ids as one batch and, if the rows or the engine refuse it, one by one, so
// that one bad row does not hold up the others.
func (r *Recovery) apart(ctx context.Context, ids []sqldb.ID, run func(context.Context, []sqldb.ID) error) error {
	if len(ids) == 0 {
		return nil
	}
	err := run(ctx, ids)
	if err == nil || len(ids) == 1 || !r.refused(err) {
		return err
	}
	var errs []error
	for _, id := range ids {
		switch err := run(ctx, []sqldb.ID{id}); {
		case err == nil:
		case r.refused(err):
			errs = append(errs, err)
		default:
			return err
		}
	}
	return errors.Join(errs...)
}

func (r *Recovery) refused(err error) bool {
	return errors.Is(err, settle.ErrInconsistent) || r.db.Dialect().Refused(err) && !r.db.Dialect().Transient(err)
}

// readIDs runs a query of ids.
func (r *Recovery) readIDs(ctx context.Context, query string, args ...any) ([]sqldb.ID, error) {
	rows, err := r.db.Read().QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []sqldb.ID
	for rows.Next() {
		var id sqldb.ID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// MaxBatch is how many items one transaction takes; longer slices are cut (LIC-014).
const MaxBatch = 100

// Bounds of the lease (LIMIT-019).
const (
	DefaultLease = 15 * time.Second
	MinLease     = 5 * time.Second
	MaxLease     = 5 * time.Minute
)

// Config tunes a Dispatcher.
type Config struct {
	// Lease is how long an attempt is leased, counted anew at each renewal. Default 15s,
	// at least 5s, at most 5min.
	Lease time.Duration
	// ShortLease takes a Lease under the minimum. For tests.
	ShortLease bool
	// Wake is called after a commit with the lanes that have a READY task more, the
	// timer's (0) among them. It must not block. Default: nobody is told.
	Wake func(lanes []int64)
	// Watch is told what was done. Default: nobody is told.
	Watch Watch
	// Modes is what the node remembers of limits. Default: the dispatcher remembers alone.
	Modes *quota.Modes
	// Log gets what is swallowed. Default: discarded.
	Log *slog.Logger
}

func (c Config) validate() error {
	if c.Lease > MaxLease || c.Lease < MinLease && !c.ShortLease || c.Lease <= 0 {
		return fmt.Errorf("lease %v must be at least %v and at most %v", c.Lease, MinLease, MaxLease)
	}
	return nil
}

// A Dispatcher moves tasks through their attempts for one node. It is safe for
// concurrent use.
type Dispatcher struct {
	db     *sqldb.DB
	node   string
	lease  int64 // microseconds
	wake   func([]int64)
	watch  Watch
	log    *slog.Logger
	modes  *quota.Modes
	missed *missedKeys
	active quota.Modes   // which queues and applications limit live attempts
	turn   atomic.Uint32 // of claims: which half comes first
}

// New returns a dispatcher that writes node, 1 to 64 bytes, into what it claims.
func New(db *sqldb.DB, node string, cfg Config) (*Dispatcher, error) {
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Wake == nil {
		cfg.Wake = func([]int64) {}
	}
	if cfg.Modes == nil {
		cfg.Modes = &quota.Modes{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if node == "" || len(node) > 64 {
		return nil, fmt.Errorf("node id must be 1 to 64 bytes, has %d", len(node))
	}
	return &Dispatcher{db: db, node: node, lease: cfg.Lease.Microseconds(), wake: cfg.Wake, watch: cfg.Watch.orNobody(), log: cfg.Log, modes: cfg.Modes,
		missed: newMissedKeys(db)}, nil
}

// Lease returns how long an attempt is leased.
func (d *Dispatcher) Lease() time.Duration { return time.Duration(d.lease) * time.Microsecond }

// A Ref names an attempt and who speaks for it. Only the process that the attempt was
// given to, with a credential of its namespace, is heard.
type Ref struct {
	Attempt   sqldb.ID
	Epoch     int64
	Process   sqldb.ID
	Namespace sqldb.ID
	Hint      Hint // from the grant, if the node remembers it: saves a read
}

// A Hint is what a node remembers of an attempt that it gave away. It is never trusted.
type Hint = settle.Hint

// owns reports whether who speaks is who the attempt was given to.
func (r Ref) owns(a *settle.Attempt) bool {
	return a != nil && a.Process == r.Process && a.Namespace == r.Namespace && a.Epoch == r.Epoch
}

// A Refusal says why a message changed nothing. Code is one of the codes of the worker
// protocol or of the HTTP contract.
type Refusal struct {
	Code    string
	Message string
}

var (
	refuseUnknown     = &Refusal{orbit.CodeNotFound, "this process holds no such attempt"}
	refuseBarred      = &Refusal{orbit.CodeUnauthenticated, "the credential of the worker counts no more"}
	refuseUnavailable = &Refusal{orbit.CodeUnavailable, "the outcome is unknown: repeat the message"}
	refuseNotStarted  = &Refusal{orbit.CodeStateConflict, "the attempt has not been started"}
	refuseRunning     = &Refusal{orbit.CodeStateConflict, "the attempt is running: finish it"}
	refuseExpired     = &Refusal{wire.CodeLeaseExpired, "the lease has ended: execution is not authorised"}
	refuseSuperseded  = &Refusal{wire.CodeSuperseded, "a later attempt of the task exists"}
	refuseEnded       = &Refusal{wire.CodeEnded, "the attempt has ended"}
)

// refuseLate tells a message for an ended attempt why it comes too late. Epoch is that
// of the task's newest attempt.
func refuseLate(a *settle.Attempt, epoch int64) *Refusal {
	switch {
	case epoch > a.Epoch:
		return refuseSuperseded
	case expired(a):
		return refuseExpired
	}
	return refuseEnded
}

// tx runs f in a transaction. All that goes through it may be repeated: after a commit
// of unknown outcome f runs again and finds what it wrote.
func (d *Dispatcher) tx(ctx context.Context, f func(*sqldb.Tx) error) error {
	again := func(context.Context, sqldb.Querier) (bool, error) { return false, nil }
	return d.db.TxResolve(ctx, f, again)
}

// inBatches runs items by transactions of at most MaxBatch. If the engine or the rows
// refuse a batch, its items are run one by one, and fail marks the answer of each that is
// refused alone. Any other error ends the run: the outcome of all is unknown.
func inBatches[Q, A any](ctx context.Context, d *Dispatcher, items []Q, run func(context.Context, []Q) ([]A, error), fail func(*Refusal) A) ([]A, error) {
	answers := make([]A, 0, len(items))
	for len(items) > 0 {
		n := min(len(items), MaxBatch)
		batch, err := run(ctx, items[:n])
		if err != nil && d.refused(err) {
			batch, err = oneByOne(ctx, d, items[:n], run, fail)
		}
		if err != nil {
			return nil, err
		}
		answers, items = append(answers, batch...), items[n:]
	}
	return answers, nil
}

func oneByOne[Q, A any](ctx context.Context, d *Dispatcher, items []Q, run func(context.Context, []Q) ([]A, error), fail func(*Refusal) A) ([]A, error) {
	var answers []A
	for i := range items {
		one, err := run(ctx, items[i:i+1])
		switch {
		case err == nil:
			answers = append(answers, one[0])
		case d.refused(err):
			d.log.ErrorContext(ctx, "item of a batch failed", "err", err)
			answers = append(answers, fail(refuseUnavailable))
		default:
			return nil, err
		}
	}
	return answers, nil
}

// refused reports whether err is about the content of a batch, not about the database.
func (d *Dispatcher) refused(err error) bool {
	return errors.Is(err, settle.ErrInconsistent) || d.db.Dialect().Refused(err) && !d.db.Dialect().Transient(err)
}

func ids(refs []Ref) []sqldb.ID {
	list := make([]sqldb.ID, len(refs))
	for i, r := range refs {
		list[i] = r.Attempt
	}
	return list
}

func hints(refs []Ref) settle.Hints {
	known := make(settle.Hints, len(refs))
	for _, r := range refs {
		if !r.Hint.Task.IsZero() {
			known[r.Attempt] = r.Hint
		}
	}
	return known
}

// left is the time from now to at, never negative.
func left(at, now int64) time.Duration {
	return max(0, time.Duration(at-now)*time.Microsecond)
}

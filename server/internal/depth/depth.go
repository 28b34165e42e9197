package depth

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Bounds of a reading.
const (
	Cap       = 10_000 // tasks of one state that are counted in a queue, and of delayed ones
	MaxQueues = 500    // queues that are looked at, the oldest first
	maxLanes  = 1000   // kinds of task whose next one is looked at
)

// States are the states of tasks that are counted.
var States = []task.State{task.Waiting, task.Leased, task.Running, task.NeedsReview}

// A Queue is what a reading tells of one queue.
type Queue struct {
	Application, Namespace, Name string
	Tasks                        map[task.State]int // at most Cap each
	// OldestReady is for how long the task that is next in line could have been claimed, the
	// longest of all kinds of task in the queue. Zero if none is in line.
	OldestReady time.Duration
}

// A Reading is what was found at one time.
type Reading struct {
	At      time.Time // of its end
	Took    time.Duration
	Queues  []Queue // in order of their making
	More    bool    // there are queues beyond MaxQueues
	Delayed int     // tasks of all queues whose time has not come, or just now; at most Cap
}

// Config tunes a Reader. The zero value is ready to use.
type Config struct {
	Interval time.Duration // between readings. Default 15s
	Log      *slog.Logger  // gets what is swallowed. Default: nothing is logged
}

// A Reader takes readings while Run runs. It is safe for concurrent use.
type Reader struct {
	db  *sqldb.DB
	cfg Config

	mu   sync.Mutex
	last Reading
}

// New returns a reader of db.
func New(db *sqldb.DB, cfg Config) *Reader {
	if cfg.Interval <= 0 {
		cfg.Interval = 15 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reader{db: db, cfg: cfg}
}

const (
	readTimeout = 30 * time.Second
	staleAfter  = 8 // intervals, or as much longer as a reading takes
)

// Last returns the last reading. It reports false if there is none, or only one that is
// too old to say anything about now: readings fail.
func (r *Reader) Last() (Reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, !r.last.At.IsZero() && time.Since(r.last.At) < staleAfter*max(r.cfg.Interval, r.last.Took)+readTimeout
}

// Run takes readings until ctx is canceled and then returns nil. Between two it waits for
// Interval, and nine times as long as the last one took.
func (r *Reader) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		began := time.Now()
		reading, err := r.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			r.cfg.Log.ErrorContext(ctx, "depth of queues could not be read", "err", err)
		case err == nil:
			r.keep(reading)
		}
		failing = err != nil
		wait(ctx, max(r.cfg.Interval, 9*time.Since(began)))
	}
	return nil
}

func (r *Reader) keep(reading Reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = reading
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Read takes one reading.
func (r *Reader) Read(ctx context.Context) (Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := time.Now()
	queues, err := r.queues(ctx)
	if err != nil {
		return Reading{}, err
	}
	var reading Reading
	if reading.More = len(queues) > MaxQueues; reading.More {
		queues = queues[:MaxQueues]
	}
	if err := r.count(ctx, queues); err != nil {
		return Reading{}, err
	}
	if err := r.ages(ctx, queues); err != nil {
		return Reading{}, err
	}
	if reading.Delayed, err = r.delayed(ctx); err != nil {
		return Reading{}, err
	}
	for _, q := range queues {
		reading.Queues = append(reading.Queues, q.Queue)
	}
	reading.At, reading.Took = time.Now(), time.Since(began)
	return reading, nil
}

type queue struct {
	id sqldb.ID
	Queue
}

const selectQueues = `
SELECT q.id, a.name, n.name, q.name
FROM (SELECT id, namespace_id, name FROM queue ORDER BY id LIMIT ?) q
JOIN namespace n ON n.id = q.namespace_id
JOIN application a ON a.id = n.application_id
ORDER BY q.id`

func (r *Reader) queues(ctx context.Context) ([]queue, error) {
	var list []queue
	err := sqldb.EachRow(ctx, r.db.Read(), selectQueues, []any{MaxQueues + 1}, func(scan func(...any) error) error {
		q := queue{Queue: Queue{Tasks: make(map[task.State]int, len(States))}}
		err := scan(&q.id, &q.Application, &q.Namespace, &q.Name)
		list = append(list, q)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	return list, nil
}

const countState = `
SELECT COUNT(*)
FROM (SELECT 1 FROM task%s WHERE queue_id = ? AND state = ? LIMIT ?) t`

// count counts each state of each queue, up to the cap.
func (r *Reader) count(ctx context.Context, queues []queue) error {
	query := fmt.Sprintf(countState, r.db.Dialect().ByIndex("task_state"))
	for i := range queues {
		for _, state := range States {
			n := 0
			if err := r.db.Read().QueryRowContext(ctx, query, queues[i].id, state, Cap).Scan(&n); err != nil {
				return fmt.Errorf("count tasks of queues: %w", err)
			}
			queues[i].Tasks[state] = n
		}
	}
	return nil
}

const selectNextLane = `
SELECT dispatch_lane, queue_id, available_at
FROM task%s
WHERE dispatch_lane > ?
ORDER BY dispatch_lane, order_value, id
LIMIT 1`

// ages looks at the head of each lane in turn, by one seek each.
func (r *Reader) ages(ctx context.Context, queues []queue) error {
	byID := make(map[sqldb.ID]*queue, len(queues))
	for i := range queues {
		byID[queues[i].id] = &queues[i]
	}
	now, err := r.db.Now(ctx)
	if err != nil {
		return fmt.Errorf("read database clock: %w", err)
	}
	query, lane := fmt.Sprintf(selectNextLane, r.db.Dialect().ByIndex("task_claim")), int64(math.MinInt64)
	for range maxLanes {
		var (
			id        sqldb.ID
			available int64
			found     bool
		)
		err := sqldb.EachRow(ctx, r.db.Read(), query, []any{lane}, func(scan func(...any) error) error {
			found = true
			return scan(&lane, &id, &available)
		})
		if err != nil {
			return fmt.Errorf("read heads of lanes: %w", err)
		}
		if !found {
			return nil
		}
		if q := byID[id]; q != nil && lane != task.TimerLane {
			q.OldestReady = max(q.OldestReady, time.Duration(now-available)*time.Microsecond)
		}
	}
	return nil
}

const countDelayed = `
SELECT COUNT(*)
FROM (SELECT 1 FROM task%s WHERE dispatch_lane = ? LIMIT ?) t`

func (r *Reader) delayed(ctx context.Context) (n int, err error) {
	query := fmt.Sprintf(countDelayed, r.db.Dialect().ByIndex("task_claim"))
	if err := r.db.Read().QueryRowContext(ctx, query, task.TimerLane, Cap).Scan(&n); err != nil {
		return 0, fmt.Errorf("count delayed tasks: %w", err)
	}
	return n, nil
}

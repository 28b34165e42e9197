//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A traffic is load of every kind: tasks with and without keys, that may and may not be
// repeated, delayed, urgent, and cancelled; and a person who reviews what has to be.
type traffic struct {
	s       *scene
	client  *orbit.Client
	stop    context.CancelFunc // of the submits
	finish  context.CancelFunc // of the reviews
	submits sync.WaitGroup
	reviews sync.WaitGroup

	backlog  atomic.Int64
	repeats  atomic.Int64 // requests that were said again
	reviewed atomic.Int64
	state    atomic.Pointer[[len(stateNames)]int64]

	mu    sync.Mutex
	kinds map[string]kind // of the tasks that were accepted
}

// A kind is what a task may come to.
type kind struct {
	repeatable, cancelled bool
}

const (
	submitters = 3
	maxBacklog = 150 // more is not submitted until some have ended
)

func startTraffic(s *scene, url string, seed uint64) *traffic {
	s.Helper()
	client, err := orbit.NewClient(url, s.creds.Token, orbit.ClientConfig{AllowInsecure: true})
	if err != nil {
		s.Fatal(err)
	}
	submitting, stop := context.WithCancel(context.Background())
	reviewing, finish := context.WithCancel(context.Background())
	l := &traffic{s: s, client: client, stop: stop, finish: finish, kinds: map[string]kind{}}
	for i := range submitters {
		l.submits.Go(func() {
			for r := rand.New(rand.NewPCG(seed, uint64(i+1))); submitting.Err() == nil; time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond) {
				if l.backlog.Load() < maxBacklog {
					l.submit(r)
				}
			}
		})
	}
	l.reviews.Go(func() {
		for reviewing.Err() == nil {
			l.look(reviewing)
			time.Sleep(200 * time.Millisecond)
		}
	})
	s.Cleanup(func() {
		l.end()
		l.close()
		client.CloseIdleConnections()
	})
	return l
}

// end ends the submits; the reviews go on.
func (l *traffic) end() {
	l.stop()
	l.submits.Wait()
}

func (l *traffic) close() {
	l.finish()
	l.reviews.Wait()
}

// insist says something until it is answered. What is refused has certainly not happened: a
// state that does not allow it, or a time that has come to lie in the past meanwhile.
func (l *traffic) insist(what string, say func(context.Context) error) error {
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := say(ctx)
		cancel()
		refused := (*orbit.APIError)(nil)
		if err == nil || errors.As(err, &refused) && (refused.Code == orbit.CodeStateConflict || refused.Code == orbit.CodeInvalidArgument) {
			return err
		}
		if l.repeats.Add(1); time.Now().After(end) {
			l.s.Errorf("%s is not answered: %v", what, err)
			return err
		}
	}
}

// submit submits a task of a random kind, and cancels some.
func (l *traffic) submit(r *rand.Rand) {
	o := order{reconcil: r.IntN(3) == 0, attempts: 100, work: work{MS: r.IntN(200), Late: r.IntN(3) == 0}}
	if r.IntN(2) == 0 {
		o.key, o.Write = fmt.Sprintf("key-%d", r.IntN(6)), true
	}
	request := l.s.request(o)
	if o.reconcil {
		request.Retry = orbit.RetryPolicy{}
	}
	request.Priority = r.IntN(10)
	if r.IntN(4) == 0 {
		at := time.Now().Add(time.Duration(r.IntN(3000)) * time.Millisecond).Truncate(time.Millisecond)
		request.AvailableAt = &at
	}
	key := sqldb.NewID().String()
	var accepted orbit.Accepted
	err := l.insist("a submit", func(ctx context.Context) (err error) {
		accepted, err = l.client.SubmitTask(ctx, key, request)
		return err
	})
	if err != nil {
		return
	}
	k := kind{repeatable: !o.reconcil, cancelled: r.IntN(12) == 0}
	l.mu.Lock()
	l.kinds[accepted.Task.ID] = k
	l.mu.Unlock()
	if k.cancelled {
		l.cancel(accepted.Task.ID, r)
	}
}

// cancel cancels a task in the state that it has then, if it has not ended.
func (l *traffic) cancel(id string, r *rand.Rand) {
	time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
	for {
		var seen orbit.Task
		l.insist("a look", func(ctx context.Context) (err error) {
			seen, err = l.client.GetTask(ctx, id)
			return err
		})
		if slices.Contains([]string{orbit.StateSucceeded, orbit.StateCancelled, orbit.StateFailed, orbit.StateNeedsReview}, seen.State) || l.s.Failed() {
			return
		}
		key := sqldb.NewID().String()
		err := l.insist("a cancel", func(ctx context.Context) error {
			_, err := l.client.CancelTask(ctx, id, key, orbit.CancelTaskRequest{ExpectedRevision: uint64(seen.Revision), Reason: "soak"})
			return err
		})
		if err == nil {
			return
		}
	}
}

// look counts the tasks by state and reviews those that need it. A database that is away is
// asked again.
func (l *traffic) look(ctx context.Context) {
	var counts [len(stateNames)]int64
	err := sqldb.EachRow(ctx, l.s.db.Read(), "SELECT state, COUNT(*) FROM task GROUP BY state", nil, func(scan func(...any) error) error {
		var state int
		var n int64
		err := scan(&state, &n)
		counts[state] = n
		return err
	})
	if err != nil {
		return
	}
	l.state.Store(&counts)
	l.backlog.Store(counts[1] + counts[2] + counts[3])
	if counts[4] == 0 {
		return
	}
	var ids []sqldb.ID
	sqldb.EachRow(ctx, l.s.db.Read(), "SELECT id FROM task WHERE state = 4", nil, func(scan func(...any) error) error {
		var id sqldb.ID
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	for _, id := range ids {
		l.review(id.String())
	}
}

// review decides that a task has succeeded, as a person may.
func (l *traffic) review(id string) {
	var seen orbit.Task
	l.insist("a look", func(ctx context.Context) (err error) {
		seen, err = l.client.GetTask(ctx, id)
		return err
	})
	if seen.State != orbit.StateNeedsReview {
		return
	}
	err := l.insist("a review", func(ctx context.Context) error {
		_, err := l.client.ReviewTask(ctx, id, id, orbit.ReviewTaskRequest{ExpectedRevision: uint64(seen.Revision), Decision: orbit.StateSucceeded, Note: "soak"})
		return err
	})
	if err == nil {
		l.reviewed.Add(1)
	}
}

func (l *traffic) figures() string {
	l.mu.Lock()
	n := len(l.kinds)
	l.mu.Unlock()
	text := fmt.Sprintf("%d accepted", n)
	if counts := l.state.Load(); counts != nil {
		for state, c := range counts {
			if c > 0 {
				text += fmt.Sprintf(", %d %s", c, stateNames[state])
			}
		}
	}
	return text + fmt.Sprintf("; %d reviewed, %d requests said again", l.reviewed.Load(), l.repeats.Load())
}

// check holds every task to what its kind may come to, and to its runs: a started attempt
// runs its handler once at most, and a task that must not be repeated has one such attempt.
func (l *traffic) check(runs map[string]map[string]int) {
	l.s.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	const query = `
SELECT t.id, t.state, t.started_count, t.cancel_requested_at IS NOT NULL, (SELECT COUNT(*) FROM review r WHERE r.task_id = t.id) FROM task t`
	l.s.rows(query, nil, func(scan func(...any) error) error {
		var id sqldb.ID
		var state, reviews int
		var started int64
		var asked bool
		if err := scan(&id, &state, &started, &asked, &reviews); err != nil {
			return err
		}
		k, known := l.kinds[id.String()]
		name := stateNames[state]
		switch {
		case !known:
			l.s.Errorf("task %s was accepted by nobody", id)
		case name == orbit.StateSucceeded:
		case name == orbit.StateCancelled && k.cancelled:
		case name == orbit.StateFailed && !k.repeatable && len(runs[id.String()]) == 0: // its only attempt was lost between start and run
		default:
			l.s.Errorf("task %s (%+v) ended %s", id, k, name)
		}
		if reviews > 0 && k.repeatable && !k.cancelled {
			l.s.Errorf("task %s, which may be repeated, had to be reviewed", id)
		}
		for attempt, n := range runs[id.String()] {
			if n != 1 {
				l.s.Errorf("attempt %s of task %s ran %d times", attempt, id, n)
			}
		}
		if n := len(runs[id.String()]); int64(n) > started || !k.repeatable && n > 1 {
			l.s.Errorf("task %s (%+v) ran in %d attempts, %d were started", id, k, n, started)
		}
		l.s.expect(id.String(), name)
		return nil
	})
	if n := l.s.count("SELECT COUNT(*) FROM task"); n != int64(len(l.kinds)) {
		l.s.Errorf("%d tasks are stored, %d were accepted", n, len(l.kinds))
	}
}

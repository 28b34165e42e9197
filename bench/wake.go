package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// benchWake tells how long a row is under way at a fixed rate of business transactions, each of
// which wakes the relay, and whether a relay with a slow receiver gets in their way.
func benchWake(ctx context.Context, o options) error {
	w, err := newWorkshop(ctx, o.dsn, "outbox")
	if err != nil {
		return err
	}
	defer w.close()
	for _, q := range []string{
		"CREATE TABLE business (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(64) NOT NULL)",
		"CREATE TABLE floor_relay (id BIGINT PRIMARY KEY AUTO_INCREMENT, idempotency_key VARBINARY(128) NOT NULL, body MEDIUMBLOB NOT NULL, state TINYINT NOT NULL, KEY pending (state, id))",
	} {
		if _, err := w.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	run := 0
	for _, perSecond := range []int{10, 200} {
		var p50, p99 ratio
		p50.name, p99.name = fmt.Sprintf("wake, %d/s, p50", perSecond), fmt.Sprintf("wake, %d/s, p99", perSecond)
		for range o.pairs {
			run++
			ours, err := wakeOurs(ctx, w, run, perSecond, o.pace, sinkKind{instant: true})
			if err != nil {
				return err
			}
			floor, err := wakeFloor(ctx, w, run, perSecond, o.pace)
			if err != nil {
				return err
			}
			p50.add(quantile(ours.arrival, 0.5), quantile(floor.arrival, 0.5))
			p99.add(quantile(ours.arrival, 0.99), quantile(floor.arrival, 0.99))
		}
		p50.printAs("ms")
		p99.printAs("ms")
	}
	return benchBeside(ctx, w, o, run)
}

// benchBeside compares business transactions beside a relay, whose receiver takes 3 ms for each
// POST, with the same ones without a relay.
func benchBeside(ctx context.Context, w *workshop, o options, run int) error {
	const perSecond = 200
	r := ratio{name: "business beside a relay, p99"}
	for range o.pairs {
		run++
		beside, err := wakeOurs(ctx, w, run, perSecond, o.pace, sinkKind{instant: true, delay: 3 * time.Millisecond})
		if err != nil {
			return err
		}
		run++
		p := newPaced(run)
		if err := p.play(ctx, perSecond, o.pace, ourBusiness(ctx, w, run, func() {})); err != nil {
			return err
		}
		r.add(quantile(beside.business, 0.99), quantile(p.business, 0.99))
		if _, err := w.ExecContext(ctx, "DELETE FROM orbit_outbox WHERE state = 1"); err != nil {
			return err
		}
	}
	r.printAs("ms")
	return nil
}

// A paced run notes, in milliseconds, how long business transactions took and how long it was
// from the end of their commit to the arrival.
type paced struct {
	run      int
	mu       sync.Mutex
	commits  map[string]time.Time
	arrivals map[string]time.Time

	business, arrival []float64
}

func newPaced(run int) *paced {
	return &paced{run: run, commits: map[string]time.Time{}, arrivals: map[string]time.Time{}}
}

func (p *paced) arrived(key string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arrivals[key].IsZero() {
		p.arrivals[key] = at
	}
}

// play runs business transactions at a fixed rate, whatever they take.
func (p *paced) play(ctx context.Context, perSecond int, length time.Duration, business func(i int) error) error {
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	var wg sync.WaitGroup
	var failed error
	for i := range int(length.Seconds() * float64(perSecond)) {
		<-ticker.C
		wg.Go(func() {
			begin := time.Now()
			err := business(i)
			end := time.Now()
			p.mu.Lock()
			defer p.mu.Unlock()
			failed = errors.Join(failed, err)
			p.commits[message(p.run, i).Key] = end
			p.business = append(p.business, float64(end.Sub(begin).Microseconds())/1000)
		})
	}
	wg.Wait()
	return errors.Join(failed, ctx.Err())
}

// await waits for the last arrivals and sums up.
func (p *paced) await(ctx context.Context) error {
	deadline := time.Now().Add(time.Minute)
	for {
		p.mu.Lock()
		missing := len(p.commits) - len(p.arrivals)
		p.mu.Unlock()
		if missing <= 0 {
			break
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%d rows have not arrived", missing)
		}
		time.Sleep(5 * time.Millisecond)
	}
	for key, commit := range p.commits {
		p.arrival = append(p.arrival, max(0, float64(p.arrivals[key].Sub(commit).Microseconds())/1000))
	}
	return nil
}

// answersOf prepares what the sink says to the rows of a run.
func (p *paced) answersOf(n int) (map[string]prepared, error) {
	answers := make(map[string]prepared, n)
	for i := range n {
		r, err := freeze(p.run, i)
		if err != nil {
			return nil, err
		}
		answers[r.key] = prepare(orbitDigest(r))
	}
	return answers, nil
}

func orbitDigest(r frozenRow) string { return orbit.Digest(r.digest).String() }

func ourBusiness(ctx context.Context, w *workshop, run int, notify func()) func(int) error {
	box, err := outbox.New(outbox.MySQL, outbox.Config{})
	return func(i int) error {
		if err != nil {
			return err
		}
		m := message(run, i)
		err := inTx(ctx, w.DB, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertBusiness, m.Key); err != nil {
				return err
			}
			_, err := box.Enqueue(ctx, tx, m)
			return err
		})
		notify()
		return err
	}
}

func wakeOurs(ctx context.Context, w *workshop, run, perSecond int, length time.Duration, kind sinkKind) (*paced, error) {
	var hook outbox.Hook
	start := func(ctx context.Context, url string) error {
		store, err := outbox.Open(outbox.MySQL, w.DB, w.DB)
		if err != nil {
			return err
		}
		client, err := orbit.NewClient(url, "bench", orbit.ClientConfig{MinimalBatchAnswers: true})
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		r, err := relay.New(store, []relay.Target{{Name: "bench", Client: client}}, relay.Config{Hook: &hook})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	return wakeRun(ctx, w, run, perSecond, length, kind, start, ourBusiness(ctx, w, run, hook.Notify))
}

// wakeFloor has the hand-written loop, woken in the same way.
func wakeFloor(ctx context.Context, w *workshop, run, perSecond int, length time.Duration) (*paced, error) {
	wake := make(chan struct{}, 1)
	business := func(i int) error {
		r, err := freeze(run, i)
		if err != nil {
			return err
		}
		err = inTx(ctx, w.DB, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertBusiness, r.key); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO floor_relay (idempotency_key, body, state) VALUES (?, ?, 1)", []byte(r.key), r.body)
			return err
		})
		select {
		case wake <- struct{}{}:
		default:
		}
		return err
	}
	start := func(ctx context.Context, url string) error {
		return (&floorRelay{db: w.DB, url: url, senders: 4, wake: wake}).run(ctx)
	}
	return wakeRun(ctx, w, run, perSecond, length, sinkKind{instant: true}, start, business)
}

func wakeRun(ctx context.Context, w *workshop, run, perSecond int, length time.Duration, kind sinkKind, start func(context.Context, string) error, business func(int) error) (*paced, error) {
	p := newPaced(run)
	answers, err := p.answersOf(int(length.Seconds()*float64(perSecond)) + 1)
	if err != nil {
		return nil, err
	}
	kind.arrived = p.arrived
	s, err := startSink(w.DB, answers, kind)
	if err != nil {
		return nil, err
	}
	defer s.close()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- start(running, s.url) }()
	time.Sleep(time.Second) // the relay has found its shard and its target
	if err := p.play(ctx, perSecond, length, business); err != nil {
		return nil, err
	}
	if err := p.await(ctx); err != nil {
		return nil, err
	}
	cancel()
	return p, <-ended
}

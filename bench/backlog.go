package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// A backlog is a kind of task that cannot be claimed, and must not make claims dearer.
type backlog struct {
	name string
	make func(b *backlogged, ctx context.Context) (sample string, err error) // one, by the server itself
}

var backlogs = []backlog{
	{"behind a busy key", (*backlogged).makeParked},
	{"of an unserved handler", (*backlogged).makeUnserved},
	{"delayed, of priority 9", (*backlogged).makeDelayed},
	{"done", (*backlogged).makeDone},
}

const (
	claimOf      = 10 // tasks of a claim whose time is taken
	claimSamples = 50 // claims in a round
)

// benchBacklog compares claims and drains with many tasks that cannot be claimed with
// those of an empty database.
func benchBacklog(ctx context.Context, o options) error {
	for _, kind := range backlogs {
		if o.kind != "" && !strings.Contains(kind.name, o.kind) {
			continue
		}
		if err := benchKind(ctx, o, kind); err != nil {
			return fmt.Errorf("backlog %s: %w", kind.name, err)
		}
	}
	return nil
}

func benchKind(ctx context.Context, o options, kind backlog) error {
	sizes := []int{0, o.backlog, 10 * o.backlog}
	list := make([]*backlogged, len(sizes))
	for i, n := range sizes {
		b, err := newBacklogged(ctx, o)
		if err != nil {
			return err
		}
		defer b.close()
		if err := b.grow(ctx, kind, n); err != nil {
			return err
		}
		list[i] = b
	}
	took, rates := make([][]float64, len(sizes)), make([][]float64, len(sizes))
	for round := range o.pairs {
		for i := range list {
			b := list[(i+round)%len(list)]
			at := (i + round) % len(list)
			b.w.settle(ctx)
			samples, err := b.claims(ctx, round)
			if err != nil {
				return err
			}
			took[at] = append(took[at], samples...)
			per, err := drainRate(ctx, b.orbitSystem, fmt.Sprintf("drain-%d", round), max(100, o.tasks/500*100), atOnce)
			if err != nil {
				return err
			}
			rates[at] = append(rates[at], per)
		}
	}
	for i, n := range sizes {
		fmt.Printf("%-28s claims of %d: p50 %.2f ms, p90 %.2f ms, p99 %.2f ms (%d claims)   drain %.0f/s\n", fmt.Sprintf("%d %s", n, kind.name),
			claimOf, quantile(took[i], 0.5), quantile(took[i], 0.9), quantile(took[i], 0.99), len(took[i]), quantile(rates[i], 0.5))
	}
	compare := func(what string, a, b int) {
		drains := ratio{name: fmt.Sprintf("%s, drain of %s", kind.name, what), ours: rates[a], floors: rates[b]}
		drains.print()
		fmt.Printf("%-28s p50 %.2f, p90 %.2f, p99 %.2f\n", fmt.Sprintf("%s, claims, %s", kind.name, what), quantile(took[a], 0.5)/quantile(took[b], 0.5),
			quantile(took[a], 0.9)/quantile(took[b], 0.9), quantile(took[a], 0.99)/quantile(took[b], 0.99))
	}
	compare(fmt.Sprintf("%d to none", sizes[1]), 1, 0)
	compare(fmt.Sprintf("%d to %d", sizes[2], sizes[1]), 2, 1)
	if !o.verify {
		return nil
	}
	return list[1].verify(ctx)
}

// backlogged is our server on a database with a backlog, and a worker connection of which
// claims are timed.
type backlogged struct {
	*orbitSystem
	conn *worker.Conn
	busy *worker.Conn // holds the busy key
	stop context.CancelFunc
	wait sync.WaitGroup
}

func newBacklogged(ctx context.Context, o options) (*backlogged, error) {
	s, err := newOrbitSystem(ctx, o, server.Config{})
	if err != nil {
		return nil, err
	}
	b := &backlogged{orbitSystem: s, stop: func() {}}
	if b.conn, err = b.dial(ctx, "bench.work"); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *backlogged) dial(ctx context.Context, handler string) (*worker.Conn, error) {
	n := b.nodes[0]
	return worker.Dial(ctx, n.url, n.creds.Token, worker.Registration{
		ProcessID: worker.NewProcessID(), Handlers: []worker.Handler{{Name: handler, Version: "v1"}},
		Queues: []string{n.creds.QueueID}, Capacity: claimOf, ConcurrencyKeys: true,
	}, worker.Network{})
}

func (b *backlogged) close() {
	b.stop()
	b.wait.Wait()
	for _, c := range []*worker.Conn{b.conn, b.busy} {
		if c != nil {
			c.Close()
		}
	}
	b.orbitSystem.close()
}

// claims times some claims: from the credit to the last assignment.
func (b *backlogged) claims(ctx context.Context, round int) (took []float64, err error) {
	if err := b.fill(ctx, fmt.Sprintf("claims-%d", round), claimOf*claimSamples); err != nil {
		return nil, err
	}
	for range claimSamples {
		begin := time.Now()
		if err := b.conn.Credit(ctx, claimOf); err != nil {
			return nil, err
		}
		got, err := b.assigned(ctx, b.conn, claimOf)
		if err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(begin).Microseconds())/1000)
		if err := b.end(ctx, got); err != nil {
			return nil, err
		}
	}
	return took, nil
}

func (b *backlogged) assigned(ctx context.Context, c *worker.Conn, n int) (got []*worker.Assignment, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for len(got) < n {
		event, err := c.Next(ctx)
		if err != nil {
			return nil, err
		}
		if a, ok := event.(*worker.Assignment); ok {
			got = append(got, a)
		}
	}
	return got, nil
}

// end starts and finishes attempts.
func (b *backlogged) end(ctx context.Context, list []*worker.Assignment) error {
	_, err := rate(len(list), len(list), func(i int) error {
		a := list[i].Attempt
		if _, err := b.conn.Start(ctx, a); err != nil {
			return err
		}
		_, err := b.conn.Finish(ctx, a, worker.Report{Receipt: worker.NewProcessID(), Outcome: orbit.OutcomeSucceeded})
		return err
	})
	return err
}

// grow has the server make one task of the kind, and copies it.
func (b *backlogged) grow(ctx context.Context, kind backlog, n int) error {
	if n == 0 {
		return nil
	}
	sample, err := kind.make(b, ctx)
	if err != nil {
		return err
	}
	return b.copyTask(ctx, sample, n)
}

func (b *backlogged) accept(ctx context.Context, key string, change func(*orbit.SubmitTaskRequest)) (string, error) {
	r := request(0)
	r.QueueID, r.Payload = b.nodes[0].creds.QueueID, json.RawMessage(`{}`)
	change(&r)
	receipt, err := b.nodes[0].client.SubmitTask(ctx, key, r)
	if err != nil {
		return "", err
	}
	return receipt.Task.ID, nil
}

func (b *backlogged) makeUnserved(ctx context.Context) (string, error) {
	return b.accept(ctx, "unserved", func(r *orbit.SubmitTaskRequest) { r.Handler = "bench.unserved" })
}

func (b *backlogged) makeDelayed(ctx context.Context) (string, error) {
	return b.accept(ctx, "delayed", func(r *orbit.SubmitTaskRequest) {
		at := time.Now().Add(6 * time.Hour).Truncate(time.Second)
		r.AvailableAt, r.Priority = &at, 9
	})
}

func (b *backlogged) makeDone(ctx context.Context) (string, error) {
	id, err := b.accept(ctx, "done", func(*orbit.SubmitTaskRequest) {})
	if err != nil {
		return "", err
	}
	if err := b.conn.Credit(ctx, 1); err != nil {
		return "", err
	}
	got, err := b.assigned(ctx, b.conn, 1)
	if err != nil {
		return "", err
	}
	return id, b.end(ctx, got)
}

const busyKey = "busy"

// makeParked has a worker hold a key, and a task wait behind it.
func (b *backlogged) makeParked(ctx context.Context) (string, error) {
	var err error
	if b.busy, err = b.dial(ctx, "bench.hold"); err != nil {
		return "", err
	}
	_, err = b.accept(ctx, "holder", func(r *orbit.SubmitTaskRequest) {
		r.Handler, r.ConcurrencyKey, r.Retry.AttemptTimeoutMS = "bench.hold", busyKey, 6*3600*1000
	})
	if err != nil {
		return "", err
	}
	if err := b.busy.Credit(ctx, 1); err != nil {
		return "", err
	}
	got, err := b.assigned(ctx, b.busy, 1)
	if err != nil {
		return "", err
	}
	if _, err := b.busy.Start(ctx, got[0].Attempt); err != nil {
		return "", err
	}
	b.held = 1
	holding, stop := context.WithCancel(ctx)
	b.stop = stop
	b.wait.Go(func() { b.hold(holding, got[0].Attempt) })
	return b.accept(ctx, "parked", func(r *orbit.SubmitTaskRequest) { r.ConcurrencyKey = busyKey })
}

// hold renews an attempt until ctx ends.
func (b *backlogged) hold(ctx context.Context, a worker.Attempt) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(3 * time.Second):
		}
		if _, err := b.busy.Renew(ctx, a, ""); err != nil && ctx.Err() == nil {
			fmt.Println("the busy key is not held any more:", err)
			return
		}
	}
}

// copyTask copies a task with its attempts and events n times. Identities and audit rows,
// which no claim ever reads, are left out.
func (b *backlogged) copyTask(ctx context.Context, sample string, n int) error {
	const chunk = 20_000
	if err := b.makeNumbers(ctx, chunk); err != nil {
		return err
	}
	// A copy's id is the sample's with the number as its second half.
	id := func(column string) string {
		return "CONCAT(SUBSTRING(s." + column + ", 1, 8), UNHEX(LPAD(HEX(? + q.n), 16, '0')))"
	}
	tables := []struct {
		name, where string
		changed     map[string]string
	}{
		{"task", "s.id = ?", map[string]string{"id": id("id")}},
		{"attempt", "s.task_id = ?", map[string]string{"id": id("id"), "task_id": id("task_id")}},
		{"task_event", "s.task_id = ?", map[string]string{"seq": "", "task_id": id("task_id"),
			"attempt_id": "CASE WHEN s.attempt_id IS NULL THEN NULL ELSE " + id("attempt_id") + " END"}},
	}
	raw := make([]byte, 16)
	if _, err := fmt.Sscanf(sample, "%x", &raw); err != nil {
		return err
	}
	for first := 0; first < n; first += chunk {
		for _, t := range tables {
			query, numbers, err := b.copyQuery(ctx, t.name, t.changed)
			if err != nil {
				return err
			}
			var args []any
			for range numbers {
				args = append(args, first)
			}
			if _, err := b.w.ExecContext(ctx, query+" WHERE "+t.where+" AND q.n <= ?", append(args, raw, min(chunk, n-first))...); err != nil {
				return fmt.Errorf("copy %s: %w", t.name, err)
			}
		}
	}
	return nil
}

// copyQuery copies all columns, some changed or left out. It returns how often the first
// number is bound.
func (b *backlogged) copyQuery(ctx context.Context, table string, changed map[string]string) (query string, numbers int, err error) {
	rows, err := b.w.QueryContext(ctx, "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position", table)
	if err != nil {
		return "", 0, err
	}
	defer rows.Close()
	var columns, values []string
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			return "", 0, err
		}
		value, special := changed[column]
		switch {
		case special && value == "":
			continue
		case !special:
			value = "s." + column
		}
		columns, values = append(columns, column), append(values, value)
		numbers += strings.Count(value, "?")
	}
	if err := rows.Err(); err != nil {
		return "", 0, err
	}
	if len(columns) == 0 {
		return "", 0, errors.New("table " + table + " has no columns")
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") SELECT " + strings.Join(values, ", ") +
		" FROM " + table + " s CROSS JOIN bench_number q", numbers, nil
}

// makeNumbers makes a table of the numbers 1 to n.
func (b *backlogged) makeNumbers(ctx context.Context, n int) error {
	for _, q := range []string{
		"CREATE TABLE bench_number (n BIGINT PRIMARY KEY)",
		"INSERT INTO bench_number VALUES (1)",
	} {
		if _, err := b.w.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	for have := 1; have < n; have *= 2 {
		if _, err := b.w.ExecContext(ctx, "INSERT INTO bench_number SELECT n + ? FROM bench_number", have); err != nil {
			return err
		}
	}
	return nil
}

// verify holds the database to the invariants: the copies are what the server would have
// made.
func (b *backlogged) verify(ctx context.Context) error {
	out, err := b.w.run(ctx, "orbit-admin", "verify")
	fmt.Printf("%-28s %s\n", "verify", strings.TrimSpace(out))
	return err
}

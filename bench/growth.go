package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

// A filler is a kind of row that a relay must not be slowed down by.
type filler struct {
	queue  string
	change string // of the rows as they were enqueued
	rows   int
}

// benchGrowth compares drains of a filled outbox with those of an empty one.
func benchGrowth(ctx context.Context, o options) error {
	filled, err := newWorkshop(ctx, o.dsn, "outbox")
	if err != nil {
		return err
	}
	defer filled.close()
	empty, err := newWorkshop(ctx, o.dsn, "outbox")
	if err != nil {
		return err
	}
	defer empty.close()
	const held = "22222222222222222222222222222222"
	future := time.Now().Add(365 * 24 * time.Hour).UnixMicro()
	for i, f := range []filler{
		{queue, "state = 2, due_at = 0, outcome = 1, settled_at = created_at, accepted_at = created_at", o.growth},
		{queue, fmt.Sprintf("due_at = %d, not_before = %[1]d", future), o.growth},
		{held, "state = state", o.growth / 10},
	} {
		if err := filled.fill(ctx, -1-i, f); err != nil {
			return err
		}
	}
	store, err := outbox.Open(outbox.MySQL, filled.DB, filled.DB)
	if err != nil {
		return err
	}
	if err := store.Hold(ctx, "bench", held, outbox.Act{Operator: "bench", Reason: "bench"}); err != nil {
		return err
	}
	r := ratio{name: fmt.Sprintf("growth, %d done, %[1]d not due, %d held", o.growth, o.growth/10)}
	for pair := range o.pairs {
		var rates [2]float64
		for i, w := range []*workshop{filled, empty} {
			answers, err := enqueueRun(ctx, w, pair, o.rows, queue)
			if err != nil {
				return err
			}
			rates[i], _, err = timeDrain(ctx, w, answers, sinkKind{instant: true}, func(ctx context.Context, url string) error { return runOrbit(ctx, w, url, o.senders) })
			if err != nil {
				return err
			}
		}
		r.add(rates[0], rates[1])
	}
	r.print()
	return nil
}

// fill makes rows of one kind: some by Enqueue, changed, and the rest as copies of them.
func (w *workshop) fill(ctx context.Context, run int, f filler) error {
	const seeds = 1000
	var first int64
	if err := w.QueryRowContext(ctx, "SELECT COALESCE(MAX(seq), 0) + 1 FROM orbit_outbox").Scan(&first); err != nil {
		return err
	}
	if _, err := enqueueRun(ctx, w, run, min(seeds, f.rows), f.queue); err != nil {
		return err
	}
	if _, err := w.ExecContext(ctx, "UPDATE orbit_outbox SET "+f.change+" WHERE seq >= ?", first); err != nil {
		return err
	}
	const same = "operation, operation_task_id, shard, lane, size, target, idempotency_key, queue_id, handler, request, request_sha256, " +
		"content_algorithm, content_digest, traceparent, created_at, not_before, not_after, state, due_at, window_from, outcome, settled_at, accepted_at"
	copies := strings.Join([]string{
		"INSERT INTO orbit_outbox (identity, " + same + ")",
		"SELECT UNHEX(SHA2(CONCAT(HEX(identity), ?), 256)), " + same,
		"FROM orbit_outbox WHERE seq >= ? ORDER BY seq LIMIT ?",
	}, "\n")
	for have := min(seeds, f.rows); have < f.rows; {
		n := min(have, f.rows-have, 50_000)
		if _, err := w.ExecContext(ctx, copies, have, first, n); err != nil {
			return err
		}
		have += n
	}
	return nil
}

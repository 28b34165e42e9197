package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
	"github.com/orbitkit/orbit/server"
)

// benchForward drains an outbox into a real server, and compares with what clients reach that
// submit batches of 100 of the same requests to it, as many at one time as the relay has senders.
func benchForward(ctx context.Context, o options) error {
	business, err := newWorkshop(ctx, o.dsn, "outbox")
	if err != nil {
		return err
	}
	defer business.close()
	platform, err := newWorkshop(ctx, o.dsn, "server")
	if err != nil {
		return err
	}
	defer platform.close()
	n, err := startNode(ctx, platform, orbit.Credentials{}, server.Config{})
	if err != nil {
		return err
	}
	defer n.stop()
	bodies, err := frozenBodies(n.creds.QueueID)
	if err != nil {
		return err
	}
	r := ratio{name: fmt.Sprintf("forward, %d rows", o.rows)}
	for pair := range o.pairs {
		if _, err := enqueueRun(ctx, business, pair, o.rows, n.creds.QueueID); err != nil {
			return err
		}
		ours, err := forward(ctx, business, n, o)
		if err != nil {
			return err
		}
		floor, err := rate(o.senders, o.rows/100, func(i int) error { return n.submitBatch(ctx, fmt.Sprintf("floor-%d-%d", pair, i), bodies) })
		if err != nil {
			return err
		}
		r.add(ours, 100*floor)
	}
	r.print()
	return nil
}

// enqueueRun enqueues rows with keys of this run and returns what a sink answers to them.
func enqueueRun(ctx context.Context, w *workshop, run, rows int, queueID string) (map[string]prepared, error) {
	box, err := outbox.New(outbox.MySQL, outbox.Config{})
	if err != nil {
		return nil, err
	}
	answers := make(map[string]prepared, rows)
	for first := 0; first < rows; first += outbox.MaxBatch {
		var batch []outbox.Message
		for i := first; i < min(first+outbox.MaxBatch, rows); i++ {
			m := message(run, i)
			m.Request.QueueID = queueID
			batch = append(batch, m)
		}
		tx, err := w.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		receipts, err := box.EnqueueBatch(ctx, tx, batch)
		if err != nil {
			tx.Rollback()
			return nil, err
		}
		if err := tx.Commit(); err != nil {
			return nil, err
		}
		for i, receipt := range receipts {
			answers[batch[i].Key] = prepare(receipt.Digest.String())
		}
	}
	return answers, nil
}

// forward runs a relay until the server has accepted all rows.
func forward(ctx context.Context, w *workshop, n *node, o options) (float64, error) {
	store, err := outbox.Open(outbox.MySQL, w.DB, w.DB)
	if err != nil {
		return 0, err
	}
	r, err := relay.New(store, []relay.Target{{Name: "bench", Client: n.client}}, relay.Config{Senders: o.senders})
	if err != nil {
		return 0, err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- r.Run(running) }()
	for r.Stats().Accepted < int64(o.rows) {
		select {
		case err := <-ended:
			return 0, fmt.Errorf("relay ended before everything was accepted: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
	took := time.Since(begin)
	cancel()
	return float64(o.rows) / took.Seconds(), <-ended
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// benchPurge tells how fast a relay deletes delivered rows, and compares business transactions
// beside that with the same ones beside a relay that has nothing to delete.
func benchPurge(ctx context.Context, o options) error {
	w, err := newWorkshop(ctx, o.dsn, "outbox")
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := w.ExecContext(ctx, "CREATE TABLE business (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(64) NOT NULL)"); err != nil {
		return err
	}
	const perSecond = 200
	r := ratio{name: "enqueue beside deletion, p99"}
	var rates []float64
	for pair := range o.pairs {
		run := 3 * pair
		// More than are deleted while the transactions last.
		old := filler{queue, "state = 2, due_at = 0, outcome = 1, settled_at = created_at - 86400000000, accepted_at = created_at", int(o.pace.Seconds()) * 6000}
		if err := w.fill(ctx, run, old); err != nil {
			return err
		}
		var p99 [2]float64
		for i, retain := range []time.Duration{time.Hour, -1} {
			stats, stop, err := purging(ctx, w, retain)
			if err != nil {
				return err
			}
			begin := time.Now()
			p := newPaced(run + 1 + i)
			if err := p.play(ctx, perSecond, o.pace, ourBusiness(ctx, w, p.run, func() {})); err != nil {
				return err
			}
			if retain > 0 {
				rates = append(rates, float64(stats().Purged)/time.Since(begin).Seconds())
			}
			p99[i] = quantile(p.business, 0.99)
			if err := stop(); err != nil {
				return err
			}
		}
		r.add(p99[0], p99[1])
		if _, err := w.ExecContext(ctx, "TRUNCATE TABLE orbit_outbox"); err != nil {
			return err
		}
	}
	r.printAs("ms")
	fmt.Printf("%-28s %.0f delivered rows per second, beside %d enqueues per second (median)\n", "deletion", quantile(rates, 0.5), perSecond)
	return nil
}

// purging runs a relay that sends nothing.
func purging(ctx context.Context, w *workshop, retain time.Duration) (stats func() relay.Stats, stop func() error, err error) {
	store, err := outbox.Open(outbox.MySQL, w.DB, w.DB)
	if err != nil {
		return nil, nil, err
	}
	client, err := orbit.NewClient("http://127.0.0.1:1", "bench", orbit.ClientConfig{})
	if err != nil {
		return nil, nil, err
	}
	r, err := relay.New(store, []relay.Target{{Name: "bench", Client: client}}, relay.Config{Retain: retain})
	if err != nil {
		return nil, nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	return r.Stats, func() error { cancel(); return <-ended }, nil
}

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server"
)

// benchSubmit compares a server that gathers concurrent submits into common transactions
// with the same server that gives each its own, at 64 clients over HTTP, and tells how
// long a lone submit takes on both.
func benchSubmit(ctx context.Context, o options) error {
	w, err := newWorkshop(ctx, o.dsn, "server")
	if err != nil {
		return err
	}
	defer w.close()
	grouped, err := startNode(ctx, w, orbit.Credentials{}, server.Config{})
	if err != nil {
		return err
	}
	defer grouped.stop()
	alone, err := startNode(ctx, w, grouped.creds, server.Config{Ungrouped: true})
	if err != nil {
		return err
	}
	defer alone.stop()

	const clients = 64
	tasks := clients * o.each / 4
	r := ratio{name: fmt.Sprintf("submit, %d clients", clients)}
	var commits []float64
	for pair := range o.pairs {
		before := w.commits(ctx)
		ours, err := grouped.submitRate(ctx, fmt.Sprintf("g%d", pair), clients, tasks)
		if err != nil {
			return err
		}
		commits = append(commits, float64(w.commits(ctx)-before)/float64(tasks))
		floor, err := alone.submitRate(ctx, fmt.Sprintf("a%d", pair), clients, tasks)
		if err != nil {
			return err
		}
		r.add(ours, floor)
	}
	r.print()
	fmt.Printf("%-28s %.3f commits per accepted task (median of %d runs)\n", "submit, grouped", quantile(commits, 0.5), len(commits))
	for _, n := range []struct {
		name string
		*node
	}{{"grouped", grouped}, {"ungrouped", alone}} {
		if err := n.lone(ctx, n.name, o.each); err != nil {
			return err
		}
	}
	return nil
}

// commits reads how many transactions the server has committed so far.
func (w *workshop) commits(ctx context.Context) int64 {
	var name string
	var n int64
	if err := w.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Com_commit'").Scan(&name, &n); err != nil {
		return 0
	}
	return n
}

func (n *node) submitRate(ctx context.Context, run string, clients, tasks int) (float64, error) {
	return rate(clients, tasks, func(i int) error { return n.submit(ctx, fmt.Sprintf("%s-%d", run, i), i) })
}

func (n *node) submit(ctx context.Context, key string, i int) error {
	r := request(i)
	r.QueueID = n.creds.QueueID
	_, err := n.client.SubmitTask(ctx, key, r)
	return err
}

// lone prints the latency of submits that come one after the other.
func (n *node) lone(ctx context.Context, name string, count int) error {
	took := make([]float64, count)
	for i := range took {
		begin := time.Now()
		if err := n.submit(ctx, fmt.Sprintf("lone-%s-%d", name, i), i); err != nil {
			return err
		}
		took[i] = float64(time.Since(begin).Microseconds()) / 1000
	}
	slices.Sort(took)
	fmt.Printf("%-28s p50 %.2f ms, p99 %.2f ms of %d submits, one at a time\n", "submit, lone, "+name, quantile(took, 0.5), quantile(took, 0.99), count)
	return nil
}

// benchBatch compares batches of 100 over HTTP with a hand-written loop that inserts the
// same rows into the same tables, one transaction for 100.
func benchBatch(ctx context.Context, o options) error {
	w, err := newWorkshop(ctx, o.dsn, "server")
	if err != nil {
		return err
	}
	defer w.close()
	n, err := startNode(ctx, w, orbit.Credentials{}, server.Config{})
	if err != nil {
		return err
	}
	defer n.stop()
	f, err := newFloorAcceptance(w.DB, n.creds)
	if err != nil {
		return err
	}
	bodies, err := frozenBodies(n.creds.QueueID)
	if err != nil {
		return err
	}
	for _, clients := range []int{1, 4} {
		batches := max(clients, o.each*clients/8)
		r := ratio{name: fmt.Sprintf("batch of 100, %d clients", clients)}
		for pair := range o.pairs {
			run := fmt.Sprintf("b%d-%d", clients, pair)
			ours, err := rate(clients, batches, func(i int) error { return n.submitBatch(ctx, fmt.Sprintf("%s-%d", run, i), bodies) })
			if err != nil {
				return err
			}
			floor, err := rate(clients, batches, func(i int) error { return f.accept(ctx, fmt.Sprintf("f%s-%d", run, i)) })
			if err != nil {
				return err
			}
			r.add(100*ours, 100*floor)
		}
		r.print()
	}
	return nil
}

// submitBatch sends 100 frozen requests, as a relay does.
func (n *node) submitBatch(ctx context.Context, key string, bodies [][]byte) error {
	items := make([]orbit.FrozenItem, len(bodies))
	for i, body := range bodies {
		items[i] = orbit.FrozenItem{Key: fmt.Sprintf("%s-%d", key, i), Body: body}
	}
	answer, err := n.client.SubmitFrozenBatch(ctx, items)
	switch {
	case err != nil:
		return err
	case answer.Items == nil:
		return fmt.Errorf("batch answered with status %d: %v", answer.Status, answer.Err)
	}
	for _, a := range answer.Items {
		if a.Accepted == nil {
			return fmt.Errorf("item answered with status %d: %v", a.Status, a.Err)
		}
	}
	return nil
}

// frozenBodies are the requests of a batch, frozen as an outbox holds them.
func frozenBodies(queue string) ([][]byte, error) {
	bodies := make([][]byte, 100)
	for i := range bodies {
		r := request(i)
		r.QueueID = queue
		var err error
		if bodies[i], _, err = r.Freeze(); err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

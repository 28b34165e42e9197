package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

const insertBusiness = "INSERT INTO business (note) VALUES (?)"

// insertFloor writes the same bytes into a table of the same shape and indexes. What
// the outbox computes (validation, digests) is computed before the clock starts.
const insertFloor = `
INSERT INTO floor_outbox
  (identity, operation, operation_task_id, shard, lane, size, target, idempotency_key,
   queue_id, handler, request, request_sha256, content_algorithm, content_digest, traceparent,
   created_at, state, due_at, window_from)
VALUES (?, 1, '', 0, 1, ?, 'bench', ?, ?, 'bench.work', ?, ?, 'orbit-json-v1', ?, '', ?, 1, ?, ?)`

// A frozenRow is what the floor inserts.
type frozenRow struct {
	identity, sum, digest [32]byte
	key                   string
	body                  []byte
}

func freeze(run, i int) (frozenRow, error) {
	m := message(run, i)
	body, s, err := m.Request.Freeze()
	if err != nil {
		return frozenRow{}, err
	}
	return frozenRow{identity: sha256.Sum256([]byte(m.Key)), sum: sha256.Sum256(body), digest: s.Digest, key: m.Key, body: body}, nil
}

// benchEnqueue compares business transactions per second.
func benchEnqueue(ctx context.Context, o options) error {
	w, err := newWorkshop(ctx, o.dsn, "outbox")
	if err != nil {
		return err
	}
	defer w.close()
	for _, q := range []string{
		"CREATE TABLE business (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(64) NOT NULL)",
		"CREATE TABLE floor_outbox LIKE orbit_outbox",
	} {
		if _, err := w.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	box, err := outbox.New(outbox.MySQL, outbox.Config{})
	if err != nil {
		return err
	}
	peer, err := newWatermill(ctx, w)
	if err != nil {
		return err
	}
	defer peer.Close()
	run := 0
	for _, clients := range o.clients {
		r := ratio{name: fmt.Sprintf("enqueue, %d clients", clients)}
		published := ratio{name: "  to the watermill-sql publisher"}
		for pair := range o.pairs {
			run++
			ours, err := enqueueOurs(ctx, w, box, run, clients, o.each)
			if err != nil {
				return err
			}
			floor, err := enqueueFloor(ctx, w, run, clients, o.each)
			if err != nil {
				return err
			}
			r.add(ours, floor)
			if pair < o.peers {
				theirs, err := peer.enqueueRate(ctx, clients, o.each)
				if err != nil {
					return fmt.Errorf("watermill: %w", err)
				}
				published.add(ours, theirs)
			}
		}
		r.print()
		if len(published.ours) > 0 {
			published.print()
		}
	}
	return nil
}

func enqueueOurs(ctx context.Context, w *workshop, box *outbox.Outbox, run, clients, each int) (float64, error) {
	messages := make([]outbox.Message, clients*each)
	for i := range messages {
		messages[i] = message(run, i)
	}
	return rate(clients, len(messages), func(i int) error {
		return inTx(ctx, w.DB, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertBusiness, messages[i].Key); err != nil {
				return err
			}
			_, err := box.Enqueue(ctx, tx, messages[i])
			return err
		})
	})
}

func enqueueFloor(ctx context.Context, w *workshop, run, clients, each int) (float64, error) {
	rows := make([]frozenRow, clients*each)
	for i := range rows {
		var err error
		if rows[i], err = freeze(run, i); err != nil {
			return 0, err
		}
	}
	queueID := make([]byte, 16)
	return rate(clients, len(rows), func(i int) error {
		r, now := &rows[i], time.Now().UnixMicro()
		return inTx(ctx, w.DB, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertBusiness, r.key); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, insertFloor, r.identity[:], len(r.body), []byte(r.key), queueID, r.body, r.sum[:], r.digest[:], now, now, now)
			return err
		})
	})
}

// rate runs f for 0 … n-1 on several clients and returns how many ended per second.
func rate(clients, n int, f func(int) error) (float64, error) {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() != nil {
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

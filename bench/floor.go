package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A floorRelay is a hand-written relay of the best kind known for one leader: reader,
// senders and acknowledger overlap, no row is written to claim it, rows in flight are
// known in memory only, and what was sent is marked in batches. It has none of what
// makes a relay safe: no lease, no classification, no retry, no digest.
type floorRelay struct {
	db      *sql.DB
	url     string
	senders int
	wake    <-chan struct{} // nil: it polls

	mu     sync.Mutex
	flight map[int64]bool
}

type floorRow struct {
	id   int64
	key  string
	body []byte
}

const (
	floorRead  = 1000 // rows of one read
	floorBatch = 100  // rows of one request
)

// run drains until ctx ends.
func (f *floorRelay) run(ctx context.Context) error {
	f.flight = make(map[int64]bool)
	work, acks := make(chan []floorRow, 2*f.senders), make(chan []int64, 64)
	failed := make(chan error, f.senders+1)
	var senders, acker sync.WaitGroup
	for range f.senders {
		senders.Go(func() { failed <- f.send(ctx, work, acks) })
	}
	acker.Go(func() { failed <- f.acknowledge(acks) })
	err := f.read(ctx, work)
	close(work)
	senders.Wait()
	close(acks)
	acker.Wait()
	for range f.senders + 1 {
		if e := <-failed; err == nil {
			err = e
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *floorRelay) read(ctx context.Context, work chan<- []floorRow) error {
	var cursor int64
	for ctx.Err() == nil {
		rows, err := f.readRows(ctx, cursor)
		if err != nil {
			return err
		}
		if len(rows) < floorRead {
			cursor = 0 // begin again: lower ids may have committed late
		} else {
			cursor = rows[len(rows)-1].id
		}
		fresh := f.take(rows)
		for len(fresh) > 0 {
			n := min(floorBatch, len(fresh))
			select {
			case work <- fresh[:n]:
			case <-ctx.Done():
				return nil
			}
			fresh = fresh[n:]
		}
		if len(rows) < floorRead {
			f.rest(ctx)
		}
	}
	return nil
}

// rest waits for the next look.
func (f *floorRelay) rest(ctx context.Context) {
	poll := 2 * time.Millisecond
	if f.wake != nil {
		poll = time.Second
	}
	select {
	case <-ctx.Done():
	case <-f.wake:
	case <-time.After(poll):
	}
}

func (f *floorRelay) readRows(ctx context.Context, cursor int64) ([]floorRow, error) {
	rows, err := f.db.QueryContext(ctx, "SELECT id, idempotency_key, body FROM floor_relay WHERE state = 1 AND id > ? ORDER BY id LIMIT ?", cursor, floorRead)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var read []floorRow
	for rows.Next() {
		var r floorRow
		if err := rows.Scan(&r.id, &r.key, &r.body); err != nil {
			return nil, err
		}
		read = append(read, r)
	}
	return read, rows.Err()
}

// take leaves out what is in flight and notes the rest as being so.
func (f *floorRelay) take(rows []floorRow) []floorRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh := rows[:0]
	for _, r := range rows {
		if !f.flight[r.id] {
			f.flight[r.id] = true
			fresh = append(fresh, r)
		}
	}
	return fresh
}

func (f *floorRelay) send(ctx context.Context, work <-chan []floorRow, acks chan<- []int64) error {
	for batch := range work {
		if err := f.post(ctx, batch); err != nil {
			return err
		}
		ids := make([]int64, len(batch))
		for i, r := range batch {
			ids[i] = r.id
		}
		acks <- ids
	}
	return nil
}

func (f *floorRelay) post(ctx context.Context, batch []floorRow) error {
	var body bytes.Buffer
	body.WriteString(`{"items":[`)
	for i, r := range batch {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"idempotency_key":%q,"task":`, r.key)
		body.Write(r.body)
		body.WriteByte('}')
	}
	body.WriteString("]}")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/tasks:batch", &body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer bench")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("sink answered %s", resp.Status)
	}
	return nil
}

// acknowledge marks what gathered while its last statement ran.
func (f *floorRelay) acknowledge(acks <-chan []int64) error {
	for ids := range acks {
		ids = append(gather(acks, len(ids)), ids...)
		marks := strings.TrimSuffix(strings.Repeat("?,", len(ids)), ",")
		args := make([]any, len(ids))
		for i, id := range ids {
			args[i] = id
		}
		if _, err := f.db.Exec("UPDATE floor_relay SET state = 2 WHERE id IN ("+marks+")", args...); err != nil {
			return err
		}
	}
	return nil
}

func gather(acks <-chan []int64, have int) (ids []int64) {
	for have+len(ids) < floorRead {
		select {
		case more, ok := <-acks:
			if !ok {
				return ids
			}
			ids = append(ids, more...)
		default:
			return ids
		}
	}
	return ids
}

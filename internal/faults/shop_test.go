//go:build linux

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

// A shop is a scene with a business database beside it, whose outbox relays forward.
type shop struct {
	*scene
	business   *dbtest.DB
	box        *outbox.Outbox
	store      *outbox.Store
	relayLease time.Duration // of its relays; default 2s

	mu     sync.Mutex
	frozen map[string]frozenRow // what was committed, by key
	made   int                  // keys
}

// A frozenRow is a request that a business transaction has committed.
type frozenRow struct {
	seq     int64
	body    []byte // as it was frozen
	payload []byte
	digest  orbit.Digest
	state   outbox.State // in which the row has to end
}

// inShops runs f at the same time on every engine, each with a shop of its own.
func inShops(t *testing.T, f func(s *shop)) {
	t.Helper()
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			f(newShop(newScene(t, dbtest.Open(t, engine, migrations.Server)), dbtest.Open(t, engine, migrations.Outbox), 1))
		})
	}
}

func newShop(sc *scene, business *dbtest.DB, shards int) *shop {
	sc.Helper()
	s := &shop{scene: sc, business: business, frozen: map[string]frozenRow{}}
	var err error
	if s.box, err = outbox.New(business.Dialect(), outbox.Config{Shards: shards}); err != nil {
		sc.Fatal(err)
	}
	if s.store, err = outbox.Open(business.Dialect(), business.Write(), business.Read()); err != nil {
		sc.Fatal(err)
	}
	return s
}

// noQueue is an id of no queue: what is meant for it is answered with 404.
var noQueue = strings.Repeat("e", 32)

// message makes a message with a key of its own.
func (s *shop) message(queue string, size int) outbox.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	payload := fmt.Sprintf(`{"n": %d, "exact": 9007199254740993.10, "pad": %q}`, s.made, strings.Repeat("x", size))
	return outbox.Message{Key: fmt.Sprintf("order-%d", s.made), Target: targetName, Request: orbit.SubmitTaskRequest{
		QueueID: queue, Handler: handlerName, HandlerVersion: handlerVersion, PayloadVersion: "v1", Payload: json.RawMessage(payload),
	}}
}

// good and stray make a message that is accepted, and one that a person has to look after.
func (s *shop) good() outbox.Message  { return s.message(s.creds.QueueID, 0) }
func (s *shop) stray() outbox.Message { return s.message(noQueue, 0) }

// enqueue commits messages in one business transaction. It says the same again until the
// outcome is known.
func (s *shop) enqueue(messages ...outbox.Message) {
	s.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		rows, err := s.tryEnqueue(ctx, messages)
		cancel()
		if err == nil {
			s.mu.Lock()
			maps.Copy(s.frozen, rows)
			s.mu.Unlock()
			return
		}
		if time.Now().After(end) {
			s.Errorf("enqueue: %v", err)
			return
		}
	}
}

func (s *shop) tryEnqueue(ctx context.Context, messages []outbox.Message) (rows map[string]frozenRow, err error) {
	err = s.business.Tx(ctx, func(tx *sqldb.Tx) error {
		rows = map[string]frozenRow{}
		for _, m := range messages {
			r, err := s.box.Enqueue(ctx, tx.Tx, m)
			if err != nil {
				return err
			}
			body, sub, err := m.Request.Freeze()
			if err != nil {
				return err
			}
			row := frozenRow{seq: r.Seq, body: body, payload: m.Request.Payload, digest: sub.Digest, state: outbox.Delivered}
			if m.Request.QueueID == noQueue {
				row.state = outbox.Blocked
			}
			rows[m.Key] = row
		}
		return nil
	})
	return rows, err
}

// rollBack enqueues a message in a transaction that does not commit.
func (s *shop) rollBack(m outbox.Message) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tx, err := s.business.Write().BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer tx.Rollback()
	s.box.Enqueue(ctx, tx, m)
}

// businessRows reads rows of the business database directly.
func (s *shop) businessRows(query string, each func(scan func(...any) error) error, args ...any) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := sqldb.EachRow(ctx, s.business.Read(), query, args, each); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
}

// businessCount reads one number of the business database.
func (s *shop) businessCount(query string, args ...any) (n int64) {
	s.Helper()
	s.businessRows(query, func(scan func(...any) error) error { return scan(&n) }, args...)
	return n
}

func (s *shop) change(query string, args ...any) {
	s.Helper()
	if _, err := s.business.Write().ExecContext(s.Context(), query, args...); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
}

// endLeases lets the time pass that the leases of dead and stopped relays have left.
func (s *shop) endLeases() {
	s.Helper()
	s.change("UPDATE orbit_outbox_lease SET expires_at = 1 WHERE expires_at > 1")
}

// settled waits until every row that was committed has its final state.
func (s *shop) settled() {
	s.Helper()
	poll(s.T, "every row to be settled", func() bool {
		return s.businessCount("SELECT COUNT(*) FROM orbit_outbox WHERE state = 1") == 0
	})
}

// check holds outbox and server to the promise: each committed row is exactly one task that
// was accepted as it was frozen, nothing else is a task, and verify is clean. Whoever calls
// it expects that no worker has run.
func (s *shop) check() {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks := s.checkRows()
	s.checkReceipts(tasks)
	s.checkPayloads(tasks)
	for next, last := int64(0), false; !last; last = next == 0 {
		v, err := s.store.Verify(context.Background(), next, outbox.MaxRows)
		if err != nil || len(v.Faults) > 0 {
			s.Errorf("verify: %v %+v", err, v.Faults)
			return
		}
		next = v.Next
	}
}

// checkRows holds the outbox to what was committed, and returns the keys of delivered rows
// by task.
func (s *shop) checkRows() map[sqldb.ID]string {
	s.Helper()
	tasks, seen := map[sqldb.ID]string{}, 0
	query := "SELECT idempotency_key, request, state, task_id FROM orbit_outbox WHERE idempotency_key >= ?"
	s.businessRows(query, func(scan func(...any) error) error {
		var key, request []byte
		var state int64
		var task sqldb.ID
		if err := scan(&key, &request, &state, &task); err != nil {
			return err
		}
		seen++
		want, committed := s.frozen[string(key)]
		switch {
		case !committed:
			s.Errorf("row %s was rolled back and is there", key)
		case !bytes.Equal(request, want.body):
			s.Errorf("row %s has other bytes than were frozen", key)
		case outbox.State(state) != want.state:
			s.Errorf("row %s ended %v, want %v", key, outbox.State(state), want.state)
		case want.state == outbox.Delivered && tasks[task] != "":
			s.Errorf("rows %s and %s have the same task", key, tasks[task])
		case want.state == outbox.Delivered:
			tasks[task] = string(key)
		}
		return nil
	}, []byte("order-"))
	if seen != len(s.frozen) {
		s.Errorf("%d rows are stored, %d were committed", seen, len(s.frozen))
	}
	return tasks
}

// checkReceipts holds the server's receipts of submits to the rows: one for each, for the
// task that the row names, with its digest.
func (s *shop) checkReceipts(tasks map[sqldb.ID]string) {
	s.Helper()
	receipts := 0
	s.rows("SELECT idempotency_key, task_id, content_digest FROM idempotency WHERE operation = 1", nil, func(scan func(...any) error) error {
		var key, digest []byte
		var task sqldb.ID
		if err := scan(&key, &task, &digest); err != nil {
			return err
		}
		receipts++
		if row := s.frozen[string(key)]; tasks[task] != string(key) || !bytes.Equal(digest, row.digest[:]) {
			s.Errorf("the server accepted %s as task %v, the rows say that this is the task of %q", key, task, tasks[task])
		}
		return nil
	})
	if receipts != len(tasks) {
		s.Errorf("the server has %d receipts, the outbox %d delivered rows", receipts, len(tasks))
	}
}

func (s *shop) checkPayloads(tasks map[sqldb.ID]string) {
	s.Helper()
	s.rows("SELECT id, payload FROM task", nil, func(scan func(...any) error) error {
		var task sqldb.ID
		var payload []byte
		if err := scan(&task, &payload); err != nil {
			return err
		}
		s.expect(task.String(), orbit.StateWaiting) // the scene counts them
		if !bytes.Equal(payload, s.frozen[tasks[task]].payload) {
			s.Errorf("task %v of row %q has another payload than was frozen", task, tasks[task])
		}
		return nil
	})
	if n := s.count("SELECT COUNT(*) FROM task"); n != int64(len(tasks)) {
		s.Errorf("%d tasks are stored, the outbox has %d delivered rows", n, len(tasks))
	}
}

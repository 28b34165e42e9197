package everycall_test

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/command"
)

func (s *sweep) item(key string) accept.Item {
	s.Helper()
	_, frozen, err := orbit.SubmitTaskRequest{
		QueueID: s.x.Queue.String(), Handler: "h", HandlerVersion: "v1", PayloadVersion: "p1", Payload: json.RawMessage(`{}`), ConcurrencyKey: s.x.Key,
	}.Freeze()
	if err != nil {
		s.Fatal(err)
	}
	return accept.Item{Namespace: s.w.Namespace, Queue: s.x.Queue, Credential: s.w.Credential, Request: sqldb.NewID(), Key: key, Submission: frozen}
}

// submit submits items of the sweep's queue by their keys, at once.
func submit(keys ...string) func(*sweep, *node) error {
	return func(s *sweep, n *node) (err error) {
		var items []accept.Item
		for _, key := range keys {
			items = append(items, s.item(s.name+key))
		}
		for _, o := range n.accept.Submit(s.Context(), items) {
			err = errors.Join(err, o.Err)
		}
		return err
	}
}

// accepted holds the queue to n tasks, each with one event, one record and one audit row.
func accepted(n int64) func(*sweep) error {
	return func(s *sweep) error {
		const rows = " x JOIN task t ON t.id = x.task_id WHERE t.queue_id = ?"
		return errors.Join(
			s.expectCount(n, "SELECT COUNT(*) FROM task WHERE queue_id = ?", s.x.Queue),
			s.expectCount(n, "SELECT COUNT(*) FROM task_event"+rows, s.x.Queue),
			s.expectCount(n, "SELECT COUNT(*) FROM idempotency"+rows, s.x.Queue),
			s.expectCount(n, "SELECT COUNT(*) FROM audit WHERE queue_id = ?", s.x.Queue))
	}
}

func (s *sweep) caller() command.Caller {
	return command.Caller{Namespace: s.w.Namespace, Application: s.w.Application, Credential: s.w.Credential, Key: s.name}
}

func failed(s *sweep) {
	s.first = s.w.Submit(s.x)
	s.w.Exec("UPDATE task SET expire_at = 1, deadline_at = 1 WHERE id = ?", s.first)
	if _, err := s.whole.recovery.ExpireWaiting(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// acceptance are the transactions by which tasks come to be.
var acceptance = []act{
	{
		name: "submit", calls: 8,
		before: func(*sweep) {},
		do:     submit("k"),
		check:  accepted(1),
	},
	{
		name: "submit of a batch", calls: 8,
		before: func(*sweep) {},
		do:     submit("a", "b", "c"),
		check:  accepted(3),
	},
	{
		name: "submit to a limited queue", calls: 9,
		before: func(s *sweep) {
			if _, err := s.whole.command.UpdateQueue(s.Context(), s.caller(), s.x.Queue, orbit.UpdateQueueRequest{ExpectedRevision: 1, MaxBacklog: new(uint64(1))}, orbit.Digest{}); err != nil {
				s.Fatal(err)
			}
			s.w.Exec("DELETE FROM audit WHERE target_id = ?", s.x.Queue)
		},
		do:    submit("k"),
		check: accepted(1),
	},
	{
		name: "retry by hand", calls: 8,
		before: failed,
		do: func(s *sweep, n *node) error {
			item, err := n.command.Retry(s.Context(), s.caller(), s.first, orbit.RetryTaskRequest{ExpectedRevision: 2, Reason: "why"}, orbit.Digest{})
			if err != nil {
				return err
			}
			return n.accept.Submit(s.Context(), []accept.Item{item})[0].Err
		},
		check: func(s *sweep) error {
			if err := s.expectCount(1, "SELECT COUNT(*) FROM task WHERE queue_id = ? AND id <> ?", s.x.Queue, s.first); err != nil {
				return err
			}
			if n := s.w.Int("SELECT COUNT(*) FROM task WHERE queue_id = ? AND state = 1", s.x.Queue); n != 1 {
				return fmt.Errorf("%d waiting tasks, want 1", n)
			}
			return nil
		},
	},
}

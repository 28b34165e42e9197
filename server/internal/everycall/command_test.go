package everycall_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/admin"
	"github.com/orbitkit/orbit/server/internal/keyrow"
	"github.com/orbitkit/orbit/server/internal/task"
)

func cancel(revision uint64) func(*sweep, *node) error {
	return func(s *sweep, n *node) error {
		_, err := n.command.Cancel(s.Context(), s.caller(), s.first, orbit.CancelTaskRequest{ExpectedRevision: revision, Reason: "why"}, orbit.Digest{})
		return err
	}
}

// audited holds a command to one audit row.
func (s *sweep) audited(target any) error {
	return s.expectCount(1, "SELECT COUNT(*) FROM audit WHERE target_id = ?", target)
}

// namespace is the name of a namespace of the sweep's own.
func (s *sweep) namespace() string { return strings.NewReplacer(" ", "-", ":", "").Replace(s.name) }

// commands are the transactions of people.
var commands = []act{
	{
		name: "cancel of a waiting task", calls: 8,
		before: func(s *sweep) { s.first, s.next = s.w.Submit(s.x), s.w.Submit(s.x) },
		do:     cancel(1),
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "CANCELLED", 2, task.DispatchNone), s.expect(s.next, "WAITING", 1, task.DispatchReady), s.audited(s.first))
		},
	},
	{
		name: "cancel of a leased task", calls: 8,
		before: func(s *sweep) { s.lease(false) },
		do:     cancel(2),
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "CANCELLED", 3, task.DispatchNone), s.nextIsReady(), s.audited(s.first))
		},
	},
	{
		name: "cancel of a running task", calls: 8,
		before: func(s *sweep) { s.lease(true) },
		do:     cancel(3),
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "RUNNING", 4, task.DispatchNone), s.audited(s.first))
		},
	},
	{
		name: "review", calls: 8,
		before: func(s *sweep) {
			s.lease(true)
			s.w.Exec("UPDATE attempt SET lease_until = 1 WHERE id = ?", s.ref.Attempt)
			if _, err := s.whole.recovery.ExpireLeases(s.Context()); err != nil {
				s.Fatal(err)
			}
		},
		do: func(s *sweep, n *node) error {
			_, err := n.command.Review(s.Context(), s.caller(), s.first, orbit.ReviewTaskRequest{ExpectedRevision: 4, Decision: "SUCCEEDED", Note: "seen"}, orbit.Digest{})
			return err
		},
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "SUCCEEDED", 5, task.DispatchNone), s.audited(s.first),
				s.expectCount(1, "SELECT COUNT(*) FROM review WHERE task_id = ?", s.first))
		},
	},
	{
		name: "make a queue", calls: 5,
		before: func(*sweep) {},
		do: func(s *sweep, n *node) error {
			_, err := n.command.CreateQueue(s.Context(), s.caller(), orbit.CreateQueueRequest{Name: s.name + " made"}, orbit.Digest{})
			return err
		},
		check: func(s *sweep) error {
			return s.expectCount(1, "SELECT COUNT(*) FROM queue q JOIN audit a ON a.target_id = q.id WHERE q.name = ?", []byte(s.name+" made"))
		},
	},
	{
		name: "change a queue", calls: 5,
		before: func(*sweep) {},
		do: func(s *sweep, n *node) error {
			_, err := n.command.UpdateQueue(s.Context(), s.caller(), s.x.Queue, orbit.UpdateQueueRequest{ExpectedRevision: 1, MaxBacklog: new(uint64(9))}, orbit.Digest{})
			return err
		},
		check: func(s *sweep) error {
			return errors.Join(s.audited(s.x.Queue), s.expectCount(2, "SELECT revision FROM queue WHERE id = ?", s.x.Queue))
		},
	},
	{
		name: "raise tokens", calls: 10,
		before: func(s *sweep) {
			s.x.Namespace = s.w.NewNamespace(s.namespace())
			digest := task.KeyDigest(s.x.Namespace, s.x.Key)
			if err := keyrow.Make(s.Context(), s.w.DB, map[[32]byte]keyrow.Key{digest: {Namespace: s.x.Namespace, Text: s.x.Key}}); err != nil {
				s.Fatal(err)
			}
		},
		do: func(s *sweep, n *node) error {
			_, err := n.operator.RaiseTokens(s.Context(), admin.TokenRaise{Place: admin.Place{Application: "app", Namespace: s.namespace()}, Min: 100, Reason: "restored"})
			return err
		},
		check: func(s *sweep) error {
			if version, _ := s.w.Key(s.x.Namespace, s.x.Key); version != 100 {
				return fmt.Errorf("key has version %d, want 100", version)
			}
			return s.expectCount(1, "SELECT COUNT(*) FROM token_floor WHERE namespace_id = ? AND version = ?", s.x.Namespace, s.w.DB.Dialect().Uint64(100))
		},
	},
}

package everycall_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/server/internal/keyrow"
	"github.com/orbitkit/orbit/server/internal/task"
)

// sweepers are the transactions that a node begins by itself. Package retention has the
// same test of its own.
var sweepers = []act{
	{ // the first of all: it looks at so many keys at a time
		name: "promote a stranded task", calls: 5,
		before: func(s *sweep) {
			s.first = s.w.Submit(s.x)
			s.w.Exec("UPDATE task SET dispatch_state = ?, dispatch_lane = NULL WHERE id = ?", task.DispatchKeyBlocked, s.first)
		},
		do:    func(s *sweep, n *node) error { return n.recovery.PromoteStranded(s.Context()) },
		check: func(s *sweep) error { return s.expect(s.first, "WAITING", 1, task.DispatchReady) },
	},
	{
		name: "expire a lease", calls: 6,
		before: func(s *sweep) {
			s.lease(true)
			s.w.Exec("UPDATE attempt SET lease_until = ? WHERE id = ?", s.w.Now()-1, s.ref.Attempt)
		},
		do: func(s *sweep, n *node) error {
			_, err := n.recovery.ExpireLeases(s.Context())
			return err
		},
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "NEEDS_REVIEW", 4, task.DispatchNone), s.nextIsReady())
		},
	},
	{
		name: "expire a waiting task", calls: 6,
		before: func(s *sweep) {
			x := s.x
			x.StartWithin, x.Delay = -time.Second, -time.Minute
			s.first, s.next = s.w.Submit(x), s.w.Submit(s.x)
		},
		do: func(s *sweep, n *node) error {
			_, err := n.recovery.ExpireWaiting(s.Context())
			return err
		},
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "FAILED", 2, task.DispatchNone), s.expect(s.next, "WAITING", 1, task.DispatchReady))
		},
	},
	{
		name: "promote a delayed task", calls: 5,
		before: func(s *sweep) {
			x := s.x
			x.Delay = time.Hour
			s.first = s.w.Submit(x)
			s.w.Exec("UPDATE task SET available_at = 1, order_value = 1 WHERE id = ?", s.first)
		},
		do: func(s *sweep, n *node) error {
			moved, err := n.recovery.PromoteDelayed(s.Context())
			if err == nil && moved == 0 {
				err = errNothing
			}
			return err
		},
		check: func(s *sweep) error { return s.expect(s.first, "WAITING", 1, task.DispatchReady) },
	},
	{
		name: "make a lost key again", calls: 7,
		before: func(s *sweep) {
			s.lease(true)
			digest := task.KeyDigest(s.w.Namespace, s.x.Key)
			s.w.Exec("DELETE FROM resource WHERE digest = ?", digest[:])
		},
		do: func(s *sweep, n *node) error {
			digest := task.KeyDigest(s.w.Namespace, s.x.Key)
			return keyrow.Remake(s.Context(), n.db, map[[32]byte]keyrow.Key{digest: {Namespace: s.w.Namespace, Text: s.x.Key}})
		},
		check: func(s *sweep) error {
			if version, holder := s.w.Key(s.w.Namespace, s.x.Key); version < 1 || holder != s.first {
				return fmt.Errorf("key has version %d and holder %v, want its token and %v", version, holder, s.first)
			}
			return nil
		},
	},
}

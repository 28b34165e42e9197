package settle

import (
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Hint is what a node remembers of an attempt that it gave away. The rows that stand
// above it in the order of locks never change, so they save the read that would find them.
// None of it is trusted: it is compared with the rows, when they are locked or when they
// are written. The zero Hint means that nothing is known.
type Hint struct {
	Task  sqldb.ID
	Queue sqldb.ID // of the task
	Key   Digest   // of the task, if Keyed
	Keyed bool
	Rows  *Rows // task and attempt; nil if they are not remembered. Not to be changed
}

// Hints are by attempt. Those without one are looked up.
type Hints map[sqldb.ID]Hint

// NewHint remembers a task and its live attempt as they are once the transaction at hand
// has committed.
func NewHint(t *Task, a *Attempt) Hint {
	r := &Rows{Task: *t, Attempt: *a}
	return Hint{Task: t.ID, Queue: t.Queue, Key: t.Key, Keyed: t.Keyed, Rows: r}
}

// split returns what hints say of attempts, and the attempts they do not know.
func (hints Hints) split(ids []sqldb.ID) (above owners, unknown []sqldb.ID) {
	for _, id := range SortedIDs(ids) {
		h := hints[id]
		if h.Task.IsZero() {
			unknown = append(unknown, id)
			continue
		}
		above.tasks, above.queues = append(above.tasks, h.Task), append(above.queues, h.Queue)
		if h.Keyed {
			above.keys = append(above.keys, h.Key)
		}
	}
	return above, unknown
}

// verify compares hints with the locked rows. Where they differ, other rows are locked
// than should be: the transaction runs anew, without hints.
func (hints Hints) verify(s *Settlement) error {
	for id, h := range hints {
		a := s.attempts[id]
		if a == nil || h.Task.IsZero() {
			continue
		}
		t := s.tasks[a.Task]
		if t == nil || h.Task != t.ID || h.Queue != t.Queue || h.Key != t.Key || h.Keyed != t.Keyed {
			return fmt.Errorf("what is remembered of attempt %v is wrong: %w", id, sqldb.ErrAgain)
		}
	}
	return nil
}

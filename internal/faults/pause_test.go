//go:build linux

package faults

import (
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// Issue C, "worker paused past its lease, then continued": while it sleeps others get its
// keys; when it wakes its handlers are told, the server answers it precisely, what it
// reports is kept as evidence and decides nothing, and the resource refuses its writes.
func TestWorkerPausedPastItsLease(t *testing.T) { // WRK-025, WRK-015, LIC-005, LIC-011, TEST-009, RG-002
	onEngines(t, func(s *scene) {
		s.openGuard()
		n := s.startNode("node-a")
		c := s.client(n)
		sleeper := s.startWorker("sleeper", n.url, tapping)
		late := work{Hold: true, Write: true, Late: true}
		again := s.submit(c, order{key: "idempotent", work: late})
		review := s.submit(c, order{key: "reconcile", reconcil: true, work: late})
		s.expect(review, orbit.StateNeedsReview)
		sleeper.awaitStart(s, again)
		sleeper.awaitStart(s, review)
		sleeper.pause(s.T)
		asleep := now()

		heir := s.startWorker("heir", n.url)
		next := s.submit(c, order{key: "reconcile", work: work{Early: true, Hold: true}})
		heir.awaitStart(s, next)
		heir.awaitStart(s, again)
		heir.release(s, again)
		s.awaitState(c, again, orbit.StateSucceeded)
		heir.await(s.T, "the heir's write", of(evWrite, next))

		if !sleeper.stopped() || len(sleeper.all(func(e event) bool { return e.At > asleep })) > 0 {
			s.Fatal("the sleeper did not sleep")
		}
		sleeper.resume(s.T)
		s.refused(c, sleeper, again, wire.FinishReplaced)
		s.refused(c, sleeper, review, wire.FinishExpired)

		// Its late words have freed nothing: the key is still the next task's.
		behind := s.submit(c, order{key: "reconcile"})
		if task := s.awaitState(c, behind, orbit.StateWaiting); task.AttemptCount != 0 || s.awaitState(c, next, orbit.StateRunning).AttemptCount != 1 {
			s.Errorf("the task behind has %d attempts while the key is held, want 0", task.AttemptCount)
		}
		heir.release(s, next)
		s.awaitState(c, next, orbit.StateSucceeded)
		s.awaitState(c, behind, orbit.StateSucceeded)
		if task := s.awaitState(c, again, orbit.StateSucceeded); task.AttemptCount != 2 {
			s.Errorf("the repeated task has %d attempts, want 2", task.AttemptCount)
		}
		if got := s.checkWrites(); len(got) != 2 {
			s.Errorf("the resource took %v, want a write of each heir", got)
		}
	})
}

// refused holds the end of a sleeper's attempt to what it must be: the handler was told
// first, its write was stale, the server called the report what it is, and kept it.
func (s *scene) refused(c *orbit.Client, sleeper *workerProcess, task, status string) {
	s.Helper()
	attempt := sleeper.awaitStart(s, task).Attempt
	answer := sleeper.await(s.T, "the answer to the late report of task "+task, func(e event) bool {
		return e.What == evGot && e.Attempt == attempt && e.Kind == wire.TypeFinished
	})
	if answer.Text != status {
		s.Errorf("the late report of task %s was answered %q, want %q", task, answer.Text, status)
	}
	if got := sleeper.all(of(evCancel, task)); len(got) != 1 || !strings.Contains(got[0].Text, worker.ErrLeaseLost.Error()) {
		s.Errorf("the handler of task %s was told %v, want that the right is lost", task, got)
	}
	if got := sleeper.all(of(evWrite, task)); len(got) != 1 || got[0].Text != "stale" {
		s.Errorf("the late write of task %s was answered %v, want stale", task, got)
	}
	// A renewal that it still sent has the same answer.
	for _, e := range sleeper.all(ofKind(evGot, wire.TypeError)) {
		if e.Attempt == attempt && e.Text != status {
			s.Errorf("a late message about task %s was refused as %q, want %q", task, e.Text, status)
		}
	}
	page, err := c.ListEvidence(s.Context(), task, orbit.PageRequest{})
	if err != nil || len(page.Items) != 1 || page.Items[0].Kind != orbit.EvidenceLateFinish || page.Items[0].AttemptID != attempt {
		s.Errorf("evidence of task %s is %+v, %v, want the late report", task, page.Items, err)
	}
}

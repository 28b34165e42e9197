//go:build linux

package faults

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// Issue C, "a handler that never returns": it is reported, its slot is shown with the
// reason, its attempt ends at its timeout whatever the handler does, the other slots work
// on, and the process stops within its bound and says what it leaves behind.
func TestHandlerThatNeverReturns(t *testing.T) { // LIC-008, WRK-018, WRK-025
	onEngines(t, func(s *scene) {
		n := s.startNode("node-a")
		c := s.client(n)
		w := s.startWorker("worker", n.url, tapping, capacity(2), func(c *workerConfig, _ *launch) { c.Drain = time.Second })
		const timeout = 4 * time.Second // longer than a lease: it is renewed at first
		stuck := s.submit(c, order{key: "k", reconcil: true, timeout: timeout, work: work{Hold: true, Ignore: true}})
		s.expect(stuck, orbit.StateNeedsReview)
		attempt := w.awaitStart(s, stuck).Attempt
		reported := w.await(s.T, "the handler to be reported", func(e event) bool { return e.Kind == "stuck" })
		if reported.Task != stuck || !strings.Contains(reported.Text, worker.ErrAttemptTimeout.Error()) {
			s.Errorf("reported was %v, want the stuck handler and its timeout", reported)
		}

		if task := s.awaitState(c, stuck, orbit.StateNeedsReview); task.AttemptCount != 1 || !task.EffectUncertain {
			s.Errorf("task of the stuck handler has %d attempts, uncertain %v; want 1, true", task.AttemptCount, task.EffectUncertain)
		}
		a := s.attempts(c, stuck)[0]
		if a.Reason != "attempt_timeout" || a.Outcome != orbit.OutcomeUnknown {
			s.Errorf("attempt ended %s because of %q, want UNKNOWN because of attempt_timeout", a.Outcome, a.Reason)
		}
		s.renewedWithinItsTimeout(w, attempt, timeout)
		s.slotIsStuck(w, stuck)
		for range 3 { // of the same key, one after the other
			s.ranOnce(c, w, s.submit(c, order{key: "k"}))
		}

		w.terminate(s.T)
		drained := w.await(s.T, "the worker to say how it ended", of(evDrained, ""))
		if !strings.Contains(drained.Text, attempt) || !strings.Contains(drained.Text, "1 handlers still run") {
			s.Errorf("the drain ended with %q, want the stuck attempt %s", drained.Text, attempt)
		}
		if ws := w.ProcessState.Sys().(syscall.WaitStatus); !ws.Exited() {
			s.Errorf("the process ended with %v, want its own end", w.ProcessState)
		}
	})
}

// renewedWithinItsTimeout holds the renewals of an attempt to what was allowed: there are
// some, and none after the timeout, which began when the start was asked for at the
// earliest.
func (s *scene) renewedWithinItsTimeout(w *workerProcess, attempt string, timeout time.Duration) {
	s.Helper()
	about := func(kind string) []event {
		return w.all(func(e event) bool { return e.What == evSent && e.Kind == kind && e.Attempt == attempt })
	}
	started, renewals := about(wire.TypeStart), about(wire.TypeRenew)
	if len(started) == 0 || len(renewals) == 0 {
		s.Errorf("%d starts and %d renewals were sent, want some of each", len(started), len(renewals))
		return
	}
	if last := renewals[len(renewals)-1]; last.At >= started[0].At+timeout {
		s.Errorf("a renewal was sent %v after the start, past the timeout of %v", last.At-started[0].At, timeout)
	}
}

// slotIsStuck holds what the worker shows of its slots to the one stuck handler.
func (s *scene) slotIsStuck(w *workerProcess, task string) {
	s.Helper()
	w.say(s.T, "slots")
	var slots []slot
	if err := json.Unmarshal([]byte(w.await(s.T, "the slots", of(evSlots, "")).Text), &slots); err != nil {
		s.Fatal(err)
	}
	want := slot{Task: task, Phase: worker.SlotRunning, Cause: worker.ErrAttemptTimeout.Error()}
	if len(slots) != 1 || slots[0] != want {
		s.Errorf("slots are %+v, want %+v", slots, want)
	}
}

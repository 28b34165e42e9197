//go:build linux

package faults

import (
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// Issue C, "Start committed, ACK lost": the worker takes the attempt up on its next
// connection, and the handler runs once. The task may not be repeated, so any doubt would
// make it a person's matter.
func TestAnswerToAStartIsLost(t *testing.T) { // WRK-012, WRK-013, TEST-019, TOK-010
	onEngines(t, func(s *scene) {
		n := s.startNode("node-a")
		c := s.client(n)
		p := startProxy(s.T, n.addr)
		p.loseAnswersTo(wire.TypeStart)
		w := s.startWorker("worker", p.url)
		id := s.submit(c, order{key: "k", reconcil: true, work: work{Hold: true}})
		s.awaitState(c, id, orbit.StateRunning) // it is committed
		a := s.attempts(c, id)[0]
		poll(s.T, "the answer to be lost", func() bool { return p.hasLost(wire.TypeStarted, a.ID) })
		if w.count(evStart, id) != 0 {
			s.Error("the handler ran though no start was confirmed to it")
		}
		p.heal()
		started := w.awaitStart(s, id)
		if started.Attempt != a.ID || started.Token != a.ConcurrencyToken {
			s.Errorf("the handler has attempt %s and token %d, want %s and %d", started.Attempt, started.Token, a.ID, a.ConcurrencyToken)
		}
		w.release(s, id)
		s.ranOnce(c, w, id)
	})
}

// Issue C, "Finish committed, ACK lost": the worker reports the same result again until it
// is confirmed; it counts once, and the key of the next task is left alone.
func TestAnswerToAFinishIsLost(t *testing.T) { // WRK-015, LIC-005, STATE-026
	onEngines(t, func(s *scene) {
		n := s.startNode("node-a")
		c := s.client(n)
		p := startProxy(s.T, n.addr)
		w := s.startWorker("worker", p.url, tapping, capacity(1))
		first := s.submit(c, order{key: "k", reconcil: true, work: work{Hold: true}})
		w.awaitStart(s, first)
		p.loseAnswersTo(wire.TypeFinish)
		w.release(s, first)
		s.awaitState(c, first, orbit.StateSucceeded) // it is committed
		a := s.attempts(c, first)[0]
		poll(s.T, "the answer to be lost", func() bool { return p.hasLost(wire.TypeFinished, a.ID) })
		confirmed := func(e event) bool { return e.Kind == wire.TypeFinished && e.Attempt == a.ID }
		if len(w.all(confirmed)) != 0 {
			s.Fatal("the worker has its answer")
		}

		other := s.startWorker("other", n.url, capacity(1))
		next := s.submit(c, order{key: "k", work: work{Hold: true}})
		token := other.awaitStart(s, next).Token
		p.heal()
		if e := w.await(s.T, "the result to be confirmed", confirmed); e.Text != wire.FinishRecorded {
			s.Errorf("the repeated result was answered %q, want %q", e.Text, wire.FinishRecorded)
		}
		if held := s.attempts(c, next); len(held) != 1 || held[0].State != orbit.AttemptRunning || token <= a.ConcurrencyToken {
			s.Errorf("after the repeat the next attempt is %+v, its token after %d is %d", held, a.ConcurrencyToken, token)
		}
		other.release(s, next)
		s.ranOnce(c, other, next)
		s.ranOnce(c, w, first)
	})
}

// ranOnce waits for the success of a task and holds it to one attempt, one run and one
// result.
func (s *scene) ranOnce(c *orbit.Client, w *workerProcess, id string) {
	s.Helper()
	task := s.awaitState(c, id, orbit.StateSucceeded)
	if task.AttemptCount != 1 || w.count(evStart, id) != 1 || w.count(evEnd, id) != 1 || task.EffectUncertain {
		s.Errorf("task %s has %d attempts and ran %d times; want 1 and 1", id, task.AttemptCount, w.count(evStart, id))
	}
	page, err := c.ListEvidence(s.Context(), id, orbit.PageRequest{})
	if err != nil || len(page.Items) != 0 {
		s.Errorf("evidence of task %s is %+v, %v, want none: its one result was recorded", id, page.Items, err)
	}
}

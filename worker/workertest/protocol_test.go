package workertest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// A peer speaks the protocol word by word and notes the answers.
type peer struct {
	t     *testing.T
	s     *workertest.Server
	c     *worker.Conn
	r     worker.Registration
	notes []string
}

func (p *peer) dial(held ...worker.Attempt) {
	p.t.Helper()
	c, err := worker.Dial(p.t.Context(), p.s.URL(), p.s.Token, p.r, p.s.Network(), held...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	p.c = c
}

func (p *peer) note(act string, answer any, err error) {
	if refused := (*worker.RefusedError)(nil); errors.As(err, &refused) {
		answer = refused.Code
	} else if err != nil {
		answer = err
	}
	p.notes = append(p.notes, fmt.Sprintf("%s: %v", act, answer))
}

func (p *peer) next() worker.Attempt {
	p.t.Helper()
	if err := p.c.Credit(p.t.Context(), 1); err != nil {
		p.t.Fatal(err)
	}
	e, err := p.c.Next(p.t.Context())
	a, ok := e.(*worker.Assignment)
	if !ok {
		p.t.Fatalf("event %v, %v", e, err)
	}
	return a.Attempt
}

func (p *peer) start(a worker.Attempt) {
	g, err := p.c.Start(p.t.Context(), a)
	p.note("start", g.Lease > 0 && g.Timeout > 0, err)
}

func (p *peer) renew(a worker.Attempt) {
	g, err := p.c.Renew(p.t.Context(), a, "half")
	p.note("renew", g.Lease > 0, err)
}

func (p *peer) finish(a worker.Attempt, receipt, outcome string) {
	got, err := p.c.Finish(p.t.Context(), a, worker.Report{Receipt: receipt, Outcome: outcome})
	p.note("finish "+receipt, got.Status+" "+got.TaskState, err)
}

func (p *peer) giveBack(a worker.Attempt) { p.note("return", "ok", p.c.Return(p.t.Context(), a)) }

func (p *peer) resume(a worker.Attempt) {
	got, err := p.c.Resume(p.t.Context(), a)
	p.note("resume", fmt.Sprintf("kept=%t running=%t finished=%t", got.Kept, got.Running, got.Finished), err)
}

// Every message in every state of an attempt has
// the answer that a task server gives. The example worker-protocol has the same from a real one.
func TestServerAnswersPrecisely(t *testing.T) {
	p := &peer{t: t, s: workertest.NewServer(t, workertest.ServerConfig{})}
	p.r = worker.Registration{
		ProcessID: worker.NewProcessID(), Handlers: []worker.Handler{update}, Queues: []string{p.s.QueueID}, Capacity: 1, ConcurrencyKeys: true,
	}
	p.dial()
	task := p.s.Submit(repeatable())
	returned := p.next()
	p.renew(returned)
	p.finish(returned, "early", orbit.OutcomeSucceeded)
	p.resume(returned)
	p.giveBack(returned)
	p.giveBack(returned)
	expired := p.next()
	p.start(returned)
	p.start(expired)
	p.start(expired)
	p.renew(expired)
	p.giveBack(expired)
	p.resume(expired)
	p.s.Expire(task)
	p.start(expired)
	p.renew(expired)
	p.finish(expired, "late", orbit.OutcomeSucceeded)
	last := p.next()
	p.finish(expired, "later", orbit.OutcomeSucceeded)
	p.resume(expired)
	p.start(last)
	p.c.Close()
	p.dial(last)
	if held := p.c.Session().Attempts; len(held) != 1 || held[0] != last {
		t.Errorf("the server knows %v", held)
	}
	p.resume(last)
	p.finish(last, "asked", orbit.OutcomeCancelled)
	p.finish(last, "good", orbit.OutcomeSucceeded)
	p.finish(last, "good", orbit.OutcomeSucceeded)
	p.finish(last, "other", orbit.OutcomeUnknown)
	p.renew(last)
	p.resume(last)
	p.start(worker.Attempt{ID: worker.NewProcessID(), Epoch: 1})
	want := []string{
		"renew: true", "finish early: STATE_CONFLICT", "resume: kept=true running=false finished=false",
		"return: ok", "return: ok", "start: superseded", "start: true", "start: true", "renew: true",
		"return: STATE_CONFLICT", "resume: kept=true running=true finished=false",
		"start: lease_expired", "renew: lease_expired", "finish late: lease_expired WAITING",
		"finish later: superseded LEASED", "resume: kept=false running=false finished=false", "start: true",
		"resume: kept=true running=true finished=false", "finish asked: STATE_CONFLICT",
		"finish good: recorded SUCCEEDED", "finish good: recorded SUCCEEDED", "finish other: already_finished SUCCEEDED",
		"renew: already_finished", "resume: kept=false running=false finished=true", "start: NOT_FOUND",
	}
	if !slices.Equal(p.notes, want) {
		for i := range max(len(want), len(p.notes)) {
			got, wanted := "", ""
			if i < len(p.notes) {
				got = p.notes[i]
			}
			if i < len(want) {
				wanted = want[i]
			}
			if got != wanted {
				t.Errorf("%d: %q, want %q", i, got, wanted)
			}
		}
	}
}

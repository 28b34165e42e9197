package wiretest

import (
	"strings"

	"github.com/orbitkit/orbit/internal/wire"
)

// The parts of the conversation. Each goes on where the one before it has ended.

// offers: an assignment before its start, handed back, and offered again.
func (p *peer) offers() {
	p.register()
	p.n.Submit(`{ "n": 1.50, "deep": [null] }`, "object/42")
	first, _ := p.take()
	p.renew(first)
	p.finish(first, "early", wire.OutcomeSucceeded)
	p.ask(wire.TypeResume, first)
	p.ask(wire.TypeReturn, first)
	p.ask(wire.TypeReturn, first)
	second, task := p.take()
	p.ask(wire.TypeStart, first)
	p.ask(wire.TypeResume, first)
	p.ask(wire.TypeStart, second)
	p.ask(wire.TypeStart, second)
	p.renew(second)
	p.ask(wire.TypeReturn, second)
	p.ask(wire.TypeResume, second)
	p.finish(second, "unasked", wire.OutcomeCancelled)
	p.ask(wire.TypeFinish, wire.Finish{
		AttemptID: second.AttemptID, Epoch: second.Epoch, Receipt: "good", Outcome: wire.OutcomeSucceeded, Result: []byte(`{"pages":8}`),
	})
	p.ask(wire.TypeFinish, wire.Finish{
		AttemptID: second.AttemptID, Epoch: second.Epoch, Receipt: "good", Outcome: wire.OutcomeSucceeded, Result: []byte(`{"pages":8}`),
	})
	p.finish(second, "good", wire.OutcomeUnknown)
	p.finish(second, "other", wire.OutcomeFailed)
	p.finish(first, "old", wire.OutcomeSucceeded)
	p.renew(second)
	p.ask(wire.TypeStart, second)
	p.ask(wire.TypeResume, second)
	nobody := wire.Attempt{AttemptID: strings.Repeat("0", 32), Epoch: 1}
	p.names[nobody.AttemptID], p.names[task] = "nobody", "first-task"
	p.ask(wire.TypeStart, nobody)
	p.renew(nobody)
	p.finish(nobody, "r", wire.OutcomeSucceeded)
	p.ask(wire.TypeReturn, nobody)
	p.ask(wire.TypeResume, nobody)
	p.ask(wire.TypeStart, wire.Attempt{AttemptID: second.AttemptID, Epoch: second.Epoch + 1})
}

// resumes: the same process on a new connection settles what is open before it gets more.
func (p *peer) resumes() {
	p.n.Submit(`1`, "")
	kept, _ := p.take()
	p.ask(wire.TypeStart, kept)
	old := p.ws
	p.register(kept)
	p.ended(old)
	p.tell(wire.TypeCredit, wire.Credit{Slots: 2})
	p.n.Submit(`2`, "")
	p.ask(wire.TypeResume, kept) // its answer comes first
	second, _ := p.offered()
	p.ask(wire.TypeReturn, second)
	again, _ := p.offered()
	p.ask(wire.TypeStart, again)
	p.finish(again, "again", wire.OutcomeFailed)
	p.finish(kept, "kept", wire.OutcomeUnknown)
}

// cancels: before and after the start.
func (p *peer) cancels() {
	task := p.n.Submit(`3`, "object/42")
	a, _ := p.take()
	p.n.Cancel(task, "not yet begun")
	p.ask(wire.TypeStart, a)
	p.ask(wire.TypeResume, a)
	p.finish(a, "r", wire.OutcomeCancelled)
	p.ask(wire.TypeReturn, a)
	task = p.n.Submit(`4`, "object/42")
	a, _ = p.take()
	p.ask(wire.TypeStart, a)
	p.n.Cancel(task, "ordered twice")
	p.hear(nil)
	p.ask(wire.TypeStart, a)
	p.renew(a)
	p.register(a)
	p.ask(wire.TypeResume, a)
	p.finish(a, "stopped", wire.OutcomeCancelled)
	p.finish(a, "stopped", wire.OutcomeCancelled)
}

// expires: the lease ends before and after the start.
func (p *peer) expires() {
	task := p.n.Submit(`5`, "object/42")
	a, _ := p.take()
	p.ask(wire.TypeStart, a)
	p.n.Expire(task, a.AttemptID)
	p.renew(a)
	p.ask(wire.TypeStart, a)
	p.ask(wire.TypeResume, a)
	p.finish(a, "late", wire.OutcomeSucceeded)
	p.ask(wire.TypeReturn, a)
}

// registers: what a registration may not be.
func (p *peer) registers() {
	for _, change := range []func(*wire.Hello){
		func(h *wire.Hello) { h.Capacity++ },
		func(h *wire.Hello) {
			h.Queues = []string{strings.Repeat("ab", 16)}
			h.ProcessID = strings.Repeat("cd", 16)
		},
	} {
		h := p.hello
		h.Held = nil
		change(&h)
		p.dial()
		p.ask(wire.TypeHello, h)
		p.ended(p.ws)
	}
}

// drains: the last words.
func (p *peer) drains() {
	p.register()
	p.ask(wire.TypeDrain, struct{}{})
	p.ask(wire.TypeDrain, struct{}{})
	p.ask(wire.TypeStart, wire.Attempt{AttemptID: strings.Repeat("0", 32), Epoch: 1})
}

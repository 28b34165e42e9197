//go:build linux

package faults

import (
	"database/sql"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
)

// What an operation on a key does or shows.
const (
	opClaim = "claim" // the permit is given
	opHolds = "holds" // it is valid: the server says so, or the worker may rely on it
	opOver  = "over"  // it is not: the server says so
	opEnd   = "end"   // it is taken away or given back
)

// An operation concerns one permit of a key. It took effect at one moment between its call
// and its return.
type operation struct {
	what         string
	key          string
	token        uint64
	call, finish time.Duration
	source       string // for people
}

// A permit is an attempt of a keyed task as the database and the journals know it.
type permit struct {
	key            string
	token          uint64
	claimed, ended time.Duration // by the database's clock
	reported       bool          // a report of the worker has ended it

	seen       time.Duration // a worker was told of it
	asked      time.Duration // the worker said that it is over: a report or return was sent
	answered   time.Duration // it was confirmed
	believed   time.Duration // the worker may rely on it until then
	lapsed     time.Duration // the server said that its lease is over
	operations []operation
}

const (
	never = time.Duration(math.MaxInt64)
	// slack is for what lies between reading the database's clock and ours.
	slack = 50 * time.Millisecond
)

// A history is what happened to the keys since some time.
type history struct {
	permits map[string]*permit // by attempt
	older   map[string]bool    // attempts of before: of them late words may still arrive
}

const selectPermits = `
SELECT a.id, t.concurrency_key, a.concurrency_token, a.claimed_at, a.ended_at, LENGTH(a.receipt)
FROM attempt a
JOIN task t ON t.id = a.task_id`

// history puts together what the database and the journals say of every permit given since
// then. Every attempt has ended.
func (u *unrest) history(since time.Duration) *history {
	u.Helper()
	h := &history{permits: map[string]*permit{}, older: map[string]bool{}}
	begin := sqldb.Micros(wall(since))
	u.rows(selectPermits, nil, func(scan func(...any) error) error {
		var id sqldb.ID
		var key []byte
		var claimed, receipt int64
		var ended sql.NullInt64
		p := &permit{seen: never, asked: never, answered: never, lapsed: never}
		err := scan(&id, &key, u.db.Dialect().ScanUint64(&p.token), &claimed, &ended, &receipt)
		if err == nil && !ended.Valid {
			u.Errorf("attempt %v has not ended", id)
		}
		p.key, p.claimed, p.ended, p.reported = string(key), since+micros(claimed-begin), since+micros(ended.Int64-begin), receipt > 0
		if claimed < begin {
			h.older[id.String()] = true
		} else {
			h.permits[id.String()] = p
		}
		return err
	})
	for _, b := range u.books {
		h.read(u.T, b.all(func(e event) bool { return e.At >= since && e.Attempt != "" && (e.What == evSent || e.What == evGot) }))
	}
	return h
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// read takes the messages of one process, in order.
func (h *history) read(t *testing.T, events []event) {
	t.Helper()
	type question struct {
		conn int
		id   string
	}
	asked := map[question]event{}
	for _, e := range events {
		p := h.permits[e.Attempt]
		if p == nil {
			if !h.older[e.Attempt] {
				t.Errorf("the database knows no attempt of %v", e)
			}
			continue
		}
		if e.What == evSent {
			asked[question{e.Conn, e.ID}] = e
			p.sent(e)
			continue
		}
		p.seen = min(p.seen, e.At)
		if q, known := asked[question{e.Conn, e.Ref}]; known && e.Ref != "" {
			p.answer(q, e)
		}
	}
}

// sent notes what a worker is about to say.
func (p *permit) sent(e event) {
	if e.Kind == wire.TypeFinish || e.Kind == wire.TypeReturn {
		p.asked = min(p.asked, e.At)
	}
}

// answer takes the answer got to the question q.
func (p *permit) answer(q, got event) {
	show := func(what string) {
		p.operations = append(p.operations, operation{what: what, key: p.key, token: p.token, call: q.At, finish: got.At, source: got.Kind + " " + got.Text + " in " + got.Name})
	}
	switch {
	case got.Kind == wire.TypeStarted, got.Kind == wire.TypeRenewed, got.Kind == wire.TypeResumed && got.Text == wire.ResumeKeep:
		show(opHolds)
		if got.Kind != wire.TypeResumed || got.Lease > 0 {
			p.believed = max(p.believed, q.At+got.Lease-min(got.Lease/10, time.Second))
		}
	case got.Kind == wire.TypeFinished && got.Text == wire.FinishRecorded, got.Kind == wire.TypeReturned:
		p.answered = min(p.answered, got.At)
	case got.Kind == wire.TypeError && got.Text == wire.CodeLeaseExpired, got.Kind == wire.TypeResumed && got.Text == wire.ResumeLost:
		// Nobody may act on it any more, but the key is held until the attempt is ended.
		p.lapsed = min(p.lapsed, got.At)
	case got.Kind == wire.TypeResumed, got.Kind == wire.TypeFinished,
		got.Kind == wire.TypeError && (got.Text == wire.CodeSuperseded || got.Text == wire.CodeEnded):
		show(opOver)
	}
}

// all returns the operations of p. Next is when somebody first saw a later permit of the
// key: this one had been given and had ended by then, if all is well.
func (p *permit) all(next time.Duration) []operation {
	about := func(what string, call, finish time.Duration, source string) operation {
		return operation{what: what, key: p.key, token: p.token, call: call, finish: finish, source: source}
	}
	ended := about(opEnd, p.ended-slack, next, "the lease ended")
	if p.reported {
		ended = about(opEnd, p.asked, min(next, p.answered), "reported")
	}
	list := append(p.operations, about(opClaim, p.claimed-slack, min(next, p.seen), "claim"), ended)
	if p.believed > 0 && p.believed < p.asked {
		// The worker was granted so much, by its own clock: the server must grant it too.
		list = append(list, about(opHolds, p.believed-1, p.believed, "the worker's own deadline"))
	}
	return list
}

// operations returns the operations on each key.
func (h *history) operations() map[string][]operation {
	all := map[string][]operation{}
	for _, p := range h.permits {
		next := never
		for _, other := range h.permits {
			if other.key == p.key && other.token > p.token {
				next = min(next, other.seen)
			}
		}
		all[p.key] = append(all[p.key], p.all(next)...)
	}
	return all
}

func (h *history) size() (n int) {
	for _, list := range h.operations() {
		n += len(list)
	}
	return n
}

// A holder is the state of a key: who holds it, and the highest token given so far.
type holder struct{ token, highest uint64 }

// step tells whether an operation fits the state, and the state after it.
func (k holder) step(o operation) (bool, holder) {
	holds := k.token == o.token
	switch o.what {
	case opClaim:
		return k.token == 0 && o.token > k.highest, holder{o.token, o.token}
	case opHolds:
		return holds, k
	case opOver:
		return !holds, k
	case opEnd:
		return holds, holder{0, k.highest}
	}
	panic(o.what)
}

var permitModel = porcupine.Model{
	Init: func() any { return holder{} },
	Step: func(state, input, _ any) (bool, any) { return state.(holder).step(input.(operation)) },
}

// check holds the operations on each key to one order in which they fit.
func (h *history) check(t *testing.T) {
	t.Helper()
	for attempt, p := range h.permits {
		if p.lapsed < p.believed {
			t.Errorf("the server called the lease of attempt %s over %v before the worker had to", attempt, p.believed-p.lapsed)
		}
	}
	for key, list := range h.operations() {
		var ops []porcupine.Operation
		for i, o := range list {
			if o.finish < o.call {
				t.Errorf("%s of token %d of %s was not before %v, but a later permit was seen at %v", o.what, o.token, key, o.call, o.finish)
			}
			ops = append(ops, porcupine.Operation{ClientId: i, Input: o, Call: int64(o.call), Return: int64(o.finish)})
		}
		if result := porcupine.CheckOperationsTimeout(permitModel, ops, time.Minute); result != porcupine.Ok {
			t.Errorf("permits of %s are not linearizable (%s):\n%s", key, result, described(list))
		}
	}
}

func described(list []operation) (text string) {
	for _, o := range list {
		text += fmt.Sprintf("%6d %-5s %v … %v %s\n", o.token, o.what, o.call, o.finish, o.source)
	}
	return text
}

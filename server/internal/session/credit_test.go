package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/worker"
)

// A kind is a handler in a queue.
type kind struct{ queue, handler string }

// A ledger is what a worker has said that it takes, and got since.
type ledger struct {
	credit wire.Credit
	total  int
	got    map[kind]int
}

func (l *ledger) say(c wire.Credit) { *l = ledger{credit: c, got: map[kind]int{}} }

// take counts an assignment and tells what it breaks.
func (l *ledger) take(a wire.Assign) error {
	l.total++
	l.got[kind{a.Task.QueueID, a.Task.Handler}]++
	if l.total > l.credit.Slots {
		return fmt.Errorf("assignment %d for %d slots", l.total, l.credit.Slots)
	}
	for _, limit := range l.credit.Limits {
		n := 0
		for k, got := range l.got {
			if (limit.QueueID == "" || limit.QueueID == k.queue) && (limit.Handler == "" || limit.Handler == k.handler) {
				n += got
			}
		}
		if n > limit.Slots {
			return fmt.Errorf("%d assignments for %+v", n, limit)
		}
	}
	return nil
}

// limitedTo is the hello of a worker of two handlers.
func limitedTo(capacity int, queues ...sqldb.ID) wire.Hello {
	h := helloFor(capacity, queues...)
	h.Handlers = []wire.Handler{{Name: "a", Version: dispatchtest.Version}, {Name: "b", Version: dispatchtest.Version}}
	return h
}

// A worker says how many it takes of which queue and handler, and never gets more; a
// second one gets what the first leaves.
func TestNoMoreIsAssignedThanEveryLimitAllows(t *testing.T) { // WRK-017, REF-WRK-003
	run(t, func(s scene) {
		q, r := s.w.NewQueue("q"), s.w.NewQueue("r")
		s.submit(spec{Queue: r, Handler: "b", Key: "k"}, s.n)
		for _, x := range []spec{{Queue: q, Handler: "a"}, {Queue: q, Handler: "b"}, {Queue: r, Handler: "a"}, {Queue: r, Handler: "b", Key: "k"}} {
			s.w.Flood(8, x)
			s.n.hub.Wake([]int64{x.Lane().ID()})
		}
		limits := []wire.CreditLimit{
			{Handler: "a", Slots: 3}, {QueueID: q.String(), Slots: 4}, {QueueID: q.String(), Handler: "a", HandlerVersion: "v1", Slots: 2}, {QueueID: r.String(), Handler: "b", Slots: 0},
		}
		c := s.n.connect(s.T, s.worker())
		c.hello(limitedTo(100, q, r))
		var l ledger
		l.say(wire.Credit{Slots: 10, Limits: limits})
		c.say(wire.TypeCredit, l.credit)
		for range 5 { // 3 of a, at least one of them in r, and so 2 of b in q
			if err := l.take(want[wire.Assign](c, wire.TypeAssign, "")); err != nil {
				s.Fatal(err)
			}
		}
		if a := l.got[kind{q.String(), "a"}] + l.got[kind{r.String(), "a"}]; a != 3 {
			s.Errorf("got %v, want 3 of handler a", l.got)
		}
		s.until("every lane is empty or set aside", func() bool { return s.n.hub.HotLanes() == 0 })
		if n := s.w.Int("SELECT COUNT(*) FROM attempt"); n != 5 {
			s.Errorf("%d attempts: more was claimed than assigned", n)
		}
		other := s.n.connect(s.T, s.worker())
		other.hello(limitedTo(100, q, r))
		other.say(wire.TypeCredit, wire.Credit{Slots: 100})
		for range 8 + 8 + 8 + 1 - 5 {
			want[wire.Assign](other, wire.TypeAssign, "")
		}
		c.silence()
		// A credit replaces all of the earlier one.
		s.submit(spec{Queue: q, Handler: "a"}, s.n)
		s.until("the other has it", func() bool { return s.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1") == 26 })
		other.ws.Close()
	})
}

// allows reports whether another task of a kind may come.
func (l *ledger) allows(k kind) bool {
	more := ledger{credit: l.credit, total: l.total, got: maps.Clone(l.got)}
	return more.take(wire.Assign{Task: wire.Task{QueueID: k.queue, Handler: k.handler}}) == nil
}

// more is a credit for what is left of the last one and perhaps a little more.
func (l *ledger) more(dice *rand.Rand, queue string) wire.Credit {
	ofA, ofQueue := 0, 0
	for k, n := range l.got {
		if k.handler == "a" {
			ofA += n
		}
		if k.queue == queue {
			ofQueue += n
		}
	}
	c := wire.Credit{Slots: l.credit.Slots - l.total + dice.IntN(6), Limits: []wire.CreditLimit{{Handler: "a"}, {QueueID: queue}}}
	if len(l.credit.Limits) > 0 {
		c.Limits[0].Slots, c.Limits[1].Slots = l.credit.Limits[0].Slots-ofA, l.credit.Limits[1].Slots-ofQueue
	}
	c.Limits[0].Slots += dice.IntN(3)
	c.Limits[1].Slots += dice.IntN(3)
	return c
}

// A worker gives credit anew all the time, as slots become free, while assignments are on
// their way. If it says what it has seen, it gets no more than it asked for, and it gets
// everything in the end.
func TestLimitsChangeWhileTasksFlow(t *testing.T) { // WRK-017
	run(t, func(s scene) {
		q, r := s.w.NewQueue("q"), s.w.NewQueue("r")
		left := map[kind]int{}
		for _, x := range []spec{{Queue: q, Handler: "a"}, {Queue: q, Handler: "b"}, {Queue: r, Handler: "a"}, {Queue: r, Handler: "b"}} {
			s.w.Flood(30, x)
			left[kind{x.Queue.String(), x.Handler}] = 30
		}
		c := s.n.connect(s.T, s.worker())
		c.hello(limitedTo(1000, q, r))
		dice := rand.New(rand.NewPCG(1, 2))
		l := ledger{got: map[kind]int{}}
		for seen := uint64(0); seen < 120; seen++ {
			may := func() bool {
				return slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(k kind) bool { return left[k] > 0 && l.allows(k) })
			}
			for again := dice.IntN(3) == 0; again || !may(); again = false {
				credit, n := l.more(dice, q.String()), seen
				credit.Seen = &n
				l.say(credit)
				c.say(wire.TypeCredit, credit)
			}
			a := want[wire.Assign](c, wire.TypeAssign, "")
			left[kind{a.Task.QueueID, a.Task.Handler}]--
			if err := l.take(a); err != nil {
				s.Fatalf("assignment %d: %v", seen, err)
			}
			if n := s.w.Int("SELECT COUNT(*) FROM attempt") - int64(seen) - 1; n > int64(l.credit.Slots-l.total) {
				s.Fatalf("assignment %d: %d are on their way for %d slots", seen, n, l.credit.Slots-l.total)
			}
		}
	})
}

// A worker of one slow handler does not wait for it with what others can do.
func TestBusyHandlersTasksGoToAnotherWorker(t *testing.T) { // WRK-017
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		busy := s.n.connect(s.T, s.worker())
		busy.hello(limitedTo(4, q))
		busy.say(wire.TypeCredit, wire.Credit{Slots: 4, Limits: []wire.CreditLimit{{Handler: "a", Slots: 0}}})
		s.submit(spec{Queue: q, Handler: "a"}, s.n)
		s.until("the lane is set aside, not asked for again and again", func() bool { return s.n.hub.HotLanes() == 0 })
		if n := s.w.Int("SELECT COUNT(*) FROM attempt"); n != 0 {
			s.Errorf("%d attempts of a handler without credit", n)
		}
		free := s.n.connect(s.T, s.worker())
		free.hello(limitedTo(1, q))
		free.say(wire.TypeCredit, wire.Credit{Slots: 1})
		want[wire.Assign](free, wire.TypeAssign, "")
		s.submit(spec{Queue: q, Handler: "a"}, s.n)
		s.submit(spec{Queue: q, Handler: "b"}, s.n)
		if a := want[wire.Assign](busy, wire.TypeAssign, ""); a.Task.Handler != "b" {
			s.Errorf("busy worker got a task of %s", a.Task.Handler)
		}
		busy.say(wire.TypeCredit, wire.Credit{Slots: 3, Limits: []wire.CreditLimit{{Handler: "a", Slots: 1}}})
		if a := want[wire.Assign](busy, wire.TypeAssign, ""); a.Task.Handler != "a" {
			s.Errorf("worker with a free slot again got a task of %s", a.Task.Handler)
		}
	})
}

func TestCreditThatNamesWhatIsNotRegisteredBreaksTheProtocol(t *testing.T) { // WRK-017, WRK-023
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		unregistered := s.w.NewQueue("r")
		many := `{"handler":"a","slots":1}` + strings.Repeat(`,{"handler":"a","slots":1}`, 256)
		token := s.worker()
		for said, limits := range map[string]string{
			"credit: limits[0].queue_id: must be one of the registered queues":               `{"queue_id":"` + unregistered.String() + `","slots":1}`,
			"credit: limits[0].queue_id: must be one of":                                     `{"queue_id":"q","slots":1}`,
			"credit: limits[1].handler: must be one of the registered handlers":              `{"handler":"a","slots":1},{"handler":"c","slots":1}`,
			"credit: limits[0].handler_version: must be a registered version of the handler": `{"handler":"a","handler_version":"v2","slots":1}`,
			"credit: limits[0].handler_version: is only for a handler":                       `{"queue_id":"` + q.String() + `","handler_version":"v1","slots":1}`,
			"credit: limits[0]: must name queue_id or handler":                               `{"slots":1}`,
			"credit: limits[1]: must not be about the same queue and handler as another":     `{"handler":"a","slots":1},{"handler":"a","slots":2}`,
			"credit: limits[0].slots: must be at most 1000":                                  `{"handler":"a","slots":1001}`,
			"credit: limits: must be at most 256":                                            many,
			"credit: seen: must be at most 0, so many were assigned on this connection":      `{"handler":"a","slots":1}],"seen":1,"limits":[`,
		} {
			c := s.n.connect(s.T, token)
			c.hello(limitedTo(1, q))
			frame := `{"type":"credit","id":"9","data":{"slots":1,"limits":[` + limits + `]}}`
			if strings.HasSuffix(limits, "[") {
				frame = `{"type":"credit","id":"9","data":{"slots":1,"limits":[{"handler":"a","slots":1}],"seen":1}}`
			}
			c.raw(frame)
			if code, e := c.closed(); code != wire.CloseProtocolError || e.Code != "INVALID_ARGUMENT" || !strings.Contains(e.Message, said) {
				s.Errorf("%s: closed with %d after %+v, want %q", frame[:min(len(frame), 150)], code, e, said)
			}
		}
	})
}

// Automatic workers with a bounded handler: it never runs more often than bounded in one
// worker, everything gets done, and nothing is handed back on the way.
func TestHandlerCapacityOfAutomaticWorkers(t *testing.T) { // WRK-017
	const each, bound = 100, 2
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		s.w.Flood(each, spec{Queue: q, Handler: "h"})
		s.w.Flood(each, spec{Queue: q, Handler: "narrow"})
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(context.Background())
		defer wg.Wait()
		defer stop()
		narrow := worker.Handler{Name: "narrow", Version: dispatchtest.Version}
		for range 2 {
			var now, most atomic.Int32
			w, err := worker.NewWorker(s.n.srv.URL, s.worker(), worker.Config{
				Queues: []string{q.String()}, Capacity: 6, HandlerCapacity: map[worker.Handler]int{narrow: bound},
				Handlers: map[worker.Handler]worker.HandlerFunc{
					{Name: "h", Version: dispatchtest.Version}: func(context.Context, worker.Execution) (json.RawMessage, error) { return nil, nil },
					narrow: func(context.Context, worker.Execution) (json.RawMessage, error) {
						if n := now.Add(1); n > bound {
							most.Store(n)
						}
						defer now.Add(-1)
						runtime.Gosched()
						return nil, nil
					},
				},
				Network: worker.Network{TLS: s.n.srv.Client().Transport.(*http.Transport).TLSClientConfig},
				OnError: func(error) {}, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				s.Fatal(err)
			}
			wg.Go(func() {
				if err := w.Run(ctx); err != nil {
					s.Errorf("worker: %v", err)
				}
				if n := most.Load(); n > 0 {
					s.Errorf("%d narrow handlers ran at once in a worker, want at most %d", n, bound)
				}
			})
		}
		s.until("all tasks succeed", func() bool { return s.w.Int("SELECT COUNT(*) FROM task WHERE state = 5") == 2*each })
		if n := s.w.Int("SELECT COUNT(*) FROM attempt"); n != 2*each {
			s.Errorf("%d attempts for %d tasks: some were handed back", n, 2*each)
		}
	})
}

// What a worker says of an epoch that it does not hold makes no room for more than its
// capacity.
func TestAWordAboutAnotherEpochMakesNoRoom(t *testing.T) {
	s := sqliteScene(t)
	q := s.w.NewQueue("q")
	s.submit(spec{Queue: q})
	s.submit(spec{Queue: q})
	c := s.n.connect(t, s.worker())
	c.hello(helloFor(1, q))
	c.say(wire.TypeCredit, wire.Credit{Slots: 10})
	a := want[wire.Assign](c, wire.TypeAssign, "")
	other := wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch + 1}
	for _, message := range []string{wire.TypeStart, wire.TypeRenew, wire.TypeReturn} {
		if e := want[wire.Error](c, wire.TypeError, c.say(message, other)); e.Code != orbit.CodeNotFound {
			t.Errorf("%s = %+v", message, e)
		}
	}
	if got := want[wire.Resumed](c, wire.TypeResumed, c.say(wire.TypeResume, other)); got.Status != wire.ResumeLost {
		t.Errorf("task.resumed = %+v", got)
	}
	s.stays(1, "the only slot is taken")
	c.start(a)
	c.finish(a)
	want[wire.Assign](c, wire.TypeAssign, "")
}

package handofftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/orbitkit/orbit/handoff"
)

// A history is what several clients at the same time got from commands on one key, and on
// the clock.
type history struct {
	trial *trial
	key   handoff.Key
	from  moment

	ticks      atomic.Int64 // orders calls and returns, also where the clock is virtual
	mu         sync.Mutex
	operations []porcupine.Operation
	tokens     []string // minted so far
}

// A moment is the state of the model: one ticket and the clock.
type moment struct {
	ticket ticket
	now    time.Duration
}

func (t *trial) history(key handoff.Key) *history {
	h := &history{trial: t, key: key, from: moment{t.tickets[key], t.now}}
	if token := h.from.ticket.token; token != "" {
		h.tokens = append(h.tokens, token)
	}
	return h
}

// record lets each client run the commands that it draws, all from one starting line.
func (h *history) record(ctx context.Context, clients []func() (command, bool)) error {
	start := make(chan struct{})
	faults := make([]error, len(clients))
	var running, ready sync.WaitGroup
	ready.Add(len(clients))
	for i, draw := range clients {
		running.Go(func() {
			ready.Done()
			<-start
			for c, more := draw(); more && faults[i] == nil; c, more = draw() {
				faults[i] = h.run(ctx, i, c)
			}
		})
	}
	ready.Wait()
	close(start)
	running.Wait()
	return errors.Join(faults...)
}

func (h *history) run(ctx context.Context, client int, c command) error {
	called := h.ticks.Add(1)
	a, err := c.run(ctx, h.trial.host.Store, h.trial)
	returned := h.ticks.Add(1)
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: client, Input: c, Output: a, Call: called, Return: returned,
	})
	if a.token != "" {
		if slices.Contains(h.tokens, a.token) {
			return errors.New("got a token that was minted before")
		}
		h.tokens = append(h.tokens, a.token)
	}
	return nil
}

// judge looks for the order, the ticket as it stands at the end included, and lets the
// model go on from there.
func (h *history) judge(ctx context.Context) error {
	if err := h.run(ctx, len(h.operations), command{act: look, key: h.key}); err != nil {
		return err
	}
	var end moment
	model := porcupine.Model{
		Init: func() any { return h.from },
		Step: func(state, input, output any) (bool, any) {
			ok, next := state.(moment).step(input.(command), output.(answer))
			return ok, next
		},
	}
	if porcupine.CheckOperations(model, h.operations) {
		end = h.end()
		h.trial.tickets[h.key], h.trial.now = end.ticket, end.now
		return nil
	}
	return fmt.Errorf("there is no order in which one after the other would have got these answers:\n%s", h)
}

// step is the model for porcupine.
func (m moment) step(c command, got answer) (ok bool, next moment) {
	switch c.act {
	case advance:
		m.now += c.by
		return true, m
	case look:
		return m.ticket.shownAs(got.ticket, m.now) || !m.ticket.exists() && got.ticket == view{}, m
	}
	want, ticket := m.ticket.step(m.now, c, got.token)
	m.ticket = ticket
	return got == want, m
}

// end is the moment after the last operation, which is a look at the ticket: a ticket is
// what it shows, with the token of its generation.
func (h *history) end() moment {
	m := h.from
	for _, o := range h.operations {
		c, a := o.Input.(command), o.Output.(answer)
		if c.act == advance {
			m.now += c.by
		}
		if c.act == look {
			m.ticket.view = a.ticket
		}
	}
	if m.ticket.generation != h.from.ticket.generation {
		m.ticket.token = ""
	}
	for _, o := range h.operations {
		if a := o.Output.(answer); a.token != "" && a.fence == m.ticket.generation {
			m.ticket.token = a.token
		}
	}
	return m
}

// String lists the operations in the order of their calls.
func (h *history) String() string {
	slices.SortFunc(h.operations, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range h.operations {
		fmt.Fprintf(&b, "client %d, %d to %d: %v got %v\n", o.ClientId, o.Call, o.Return, o.Input, o.Output)
	}
	return b.String()
}

// linearizable lets clients run random commands on one key, and one of them the clock. The
// key has had a ticket: a first Offer has nothing yet to hold while it reads the clock, and
// may be seen only when the clock has gone on.
func linearizable(ctx context.Context, t *trial) error {
	for round := range 4 {
		key := handoff.Key(fmt.Sprint("history/", round))
		if err := t.play(ctx, offering(key), canceling(key)); err != nil {
			return err
		}
		h := t.history(key)
		clients := []func() (command, bool){h.clock(8)}
		for range 4 {
			clients = append(clients, h.client(10))
		}
		if err := h.record(ctx, clients); err != nil {
			return err
		}
		if err := h.judge(ctx); err != nil {
			return err
		}
	}
	return nil
}

// clock turns the clock by steps of which three are more than a hand-over's time.
func (h *history) clock(steps int) func() (command, bool) {
	return func() (command, bool) {
		steps--
		return advancing(4 * time.Second), steps >= 0
	}
}

func (h *history) client(calls int) func() (command, bool) {
	return func() (command, bool) {
		calls--
		return h.draw(), calls >= 0
	}
}

func (h *history) draw() command {
	switch rand.IntN(8) {
	case 0, 1:
		return offering(h.key)
	case 2, 3, 4:
		return taking(h.key)
	case 5, 6:
		return replying(h.key).holding(h.drawToken())
	default:
		return canceling(h.key)
	}
}

// drawToken prefers the youngest.
func (h *history) drawToken() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch n := len(h.tokens); {
	case n == 0:
		return "none was minted"
	case rand.IntN(4) == 0:
		return h.tokens[rand.IntN(n)]
	default:
		return h.tokens[n-1]
	}
}

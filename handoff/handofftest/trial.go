package handofftest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// A trial plays commands on a host, one after the other, and holds each answer and the
// snapshot after it to the model.
type trial struct {
	host    Host
	other   handoff.Store // reopened, or nil
	base    time.Time     // what the store's clock showed at the beginning
	now     time.Duration // since then
	tickets map[handoff.Key]ticket
	minted  map[mint]string
	tokens  map[string]bool // all that were ever minted
	blind   bool            // no snapshot after each command
}

// A mint is a Take that succeeded.
type mint struct {
	key        handoff.Key
	generation uint64
}

// probe is the key by which the trial learns what the store's clock shows.
const probe handoff.Key = "probe of the clock"

func begin(ctx context.Context, open Open) (*trial, error) {
	host, err := open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open host: %w", err)
	}
	t := &trial{host: host, tickets: map[handoff.Key]ticket{}, minted: map[mint]string{}, tokens: map[string]bool{}}
	if err := host.check(); err != nil {
		return nil, errors.Join(err, t.end())
	}
	first := offering(probe).within(100 * 365 * 24 * time.Hour)
	got, err := host.Store.Offer(ctx, first.ticket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the first Offer of an empty store: %w", err), t.end())
	}
	t.base = got.Deadline.Add(-first.ticket.TTL)
	want, next := ticket{}.step(0, first, "")
	t.tickets[probe] = next
	if a := (answer{ticket: t.view(got)}); a != want {
		return nil, errors.Join(fmt.Errorf("the first Offer of an empty store got %v, want %v", a, want), t.end())
	}
	return t, nil
}

func (t *trial) end() error {
	if t.host.Close == nil {
		return nil
	}
	return t.host.Close()
}

func (t *trial) since(at time.Time) time.Duration { return at.Sub(t.base) }

func (t *trial) view(h handoff.Ticket) view {
	v := view{
		key: h.Key, from: h.From, to: h.To, holder: h.Holder, replyTo: h.ReplyTo, payload: string(h.Payload),
		ttl: h.TTL, generation: h.Generation, deadline: t.since(h.Deadline), closedAt: never, state: h.State,
	}
	if !h.ReceiptAt.IsZero() {
		v.closedAt = t.since(h.ReceiptAt)
	}
	return v
}

// store returns the store that a command goes through.
func (t *trial) store(ctx context.Context, c command) (handoff.Store, error) {
	if !c.other {
		return t.host.Store, nil
	}
	if t.other == nil {
		if t.host.Reopen == nil {
			return nil, errUnsupported
		}
		s, err := t.host.Reopen(ctx)
		if err != nil {
			return nil, fmt.Errorf("reopen: %w", err)
		}
		t.other = s
	}
	return t.other, nil
}

// play runs commands and stops at the first that does not get what the model wants.
func (t *trial) play(ctx context.Context, commands ...command) error {
	for i, c := range commands {
		if err := t.playOne(ctx, c); err != nil {
			return fmt.Errorf("step %d, %v: %w", i+1, c, err)
		}
	}
	return nil
}

// playBlind plays commands and takes a snapshot only at the end.
func (t *trial) playBlind(ctx context.Context, commands ...command) error {
	t.blind = true
	err := t.play(ctx, commands...)
	t.blind = false
	if err != nil {
		return err
	}
	return t.checkSnapshot(ctx, t.host.Store)
}

func (t *trial) playOne(ctx context.Context, c command) error {
	if c.pick != nil {
		c.token = c.pick(t)
	}
	store, err := t.store(ctx, c)
	if err != nil {
		return err
	}
	got, err := c.run(ctx, store, t)
	if err != nil {
		return err
	}
	if c.act == advance {
		t.now += c.by
		return t.checkSnapshot(ctx, store)
	}
	want, next := t.tickets[c.key].step(t.now, c, got.token)
	if got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	if next.exists() {
		t.tickets[c.key] = next
	}
	if got.token != "" {
		if t.tokens[got.token] {
			return errors.New("got a token that was minted before")
		}
		t.tokens[got.token] = true
		t.minted[mint{c.key, got.fence}] = got.token
	}
	return t.checkSnapshot(ctx, store)
}

// checkSnapshot holds a snapshot to the model: a refusal has changed nothing, and a success
// nothing else.
func (t *trial) checkSnapshot(ctx context.Context, s handoff.Store) error {
	if t.blind {
		return nil
	}
	tickets, err := s.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	for _, p := range handoff.Check(tickets, t.base.Add(t.now)) {
		if p.Code != handoff.CodeOverdueHolder && p.Code != handoff.CodeOverdueReply {
			return fmt.Errorf("the snapshot contradicts itself: %s of %q: %s", p.Code, p.Key, p.Text)
		}
	}
	seen := 0
	for _, h := range tickets {
		want, known := t.tickets[h.Key]
		if got := t.view(h); !known || !want.shownAs(got, t.now) {
			return fmt.Errorf("the snapshot has %s, want %s", brief(got), brief(want.view))
		}
		seen++
	}
	if seen != len(t.tickets) {
		return fmt.Errorf("the snapshot has %d tickets, want %d", seen, len(t.tickets))
	}
	return nil
}

// lookAt reads one ticket out of a snapshot.
func (t *trial) lookAt(ctx context.Context, s handoff.Store, key handoff.Key) (view, error) {
	tickets, err := s.Snapshot(ctx)
	if err != nil {
		return view{}, fmt.Errorf("snapshot: %w", err)
	}
	for _, h := range tickets {
		if h.Key == key {
			return t.view(h), nil
		}
	}
	return view{}, nil
}

func brief(v view) string {
	if len(v.payload) > 100 {
		v.payload = v.payload[:100] + "…"
	}
	return strings.ToValidUTF8(fmt.Sprintf("%+v", v), "?")
}

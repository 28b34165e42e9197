package handoff_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/handoff"
	"github.com/orbitkit/orbit/internal/bubble"
)

// AMB-048, HAND-087: a snapshot shows what is stored, Check what is overdue, and the next
// operation on the ticket writes that it has expired.
func TestOverdueTicketsShowUntilTheyAreTouched(t *testing.T) {
	ctx, clock := t.Context(), newClock()
	desk := handoff.NewLocalDesk(handoff.WithClock(clock.Now))
	for _, key := range []handoff.Key{"offered", "accepted"} {
		h := valid()
		h.Key = key
		if _, err := desk.Offer(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := desk.Take(ctx, "accepted", "to"); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Minute)
	look := func() (s string) {
		tickets, _ := desk.Snapshot(ctx)
		for _, h := range tickets {
			s += fmt.Sprintf("%s: %s by %q; ", h.Key, h.State, h.Holder)
		}
		for _, p := range handoff.Check(tickets, clock.Now()) {
			s += p.Code + " "
		}
		return s
	}
	if got, want := look(), `accepted: accepted by "to"; offered: offered by ""; overdue_reply overdue_holder `; got != want {
		t.Errorf("untouched: %s\nwant %s", got, want)
	}
	for _, key := range []handoff.Key{"offered", "accepted"} {
		if err := desk.Cancel(ctx, key, "stranger"); err == nil {
			t.Error("a stranger canceled")
		}
	}
	if got, want := look(), `accepted: expired by ""; offered: expired by ""; `; got != want {
		t.Errorf("touched: %s\nwant %s", got, want)
	}
}

// The zero time means that there is no deadline and no receipt. A clock at which it is just
// that makes no ticket that can be taken late, and none that is closed at no time.
func TestAClockAtTheZeroTimeMakesNoTicketThatNeverExpires(t *testing.T) { // HAND-087
	now := time.Time{}.Add(-valid().TTL)
	desk := handoff.NewLocalDesk(handoff.WithClock(func() time.Time { return now }))
	offer := func() {
		if h, err := desk.Offer(t.Context(), valid()); err != nil || h.Deadline.IsZero() {
			t.Fatalf("offered %+v, %v; want a deadline", h, err)
		}
	}
	offer()
	now = now.Add(time.Hour)
	if _, err := desk.Take(t.Context(), valid().Key, valid().To); !errors.Is(err, handoff.ErrExpired) {
		t.Errorf("Take an hour late = %v, want ErrExpired", err)
	}
	now = time.Time{}
	offer()
	h, err := desk.Take(t.Context(), valid().Key, valid().To)
	if err != nil {
		t.Fatal(err)
	}
	if err := desk.Reply(t.Context(), valid().Key, h.Token, handoff.Receipt{Status: handoff.ReceiptDone, Summary: "s"}); err != nil {
		t.Fatal(err)
	}
	if tickets, _ := desk.Snapshot(t.Context()); tickets[0].ReceiptAt.IsZero() {
		t.Error("closed at no time")
	}
}

// HAND-094: 128 random bits at least, in 32 signs of base32 or so, never twice.
func TestTokensAreRandom(t *testing.T) {
	desk, seen := handoff.NewLocalDesk(), map[string]bool{}
	for i := range 1000 {
		h := valid()
		h.Key = handoff.Key(fmt.Sprint(i))
		if _, err := desk.Offer(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		handle, err := desk.Take(t.Context(), h.Key, "to")
		if err != nil || seen[handle.Token] || len(handle.Token) < 26 || strings.Contains(handle.Token, string(h.Key)+"/") {
			t.Fatalf("handle %+v, %v", handle, err)
		}
		seen[handle.Token] = true
	}
}

// HAND-093: without a clock, and as a zero value, a desk judges by the system's.
func TestADeskGoesByTheSystemsClock(t *testing.T) {
	for name, desk := range map[string]*handoff.LocalDesk{
		"no option": handoff.NewLocalDesk(), "nil clock": handoff.NewLocalDesk(handoff.WithClock(nil)),
		"nil option": handoff.NewLocalDesk(nil), "zero": new(handoff.LocalDesk),
	} {
		bubble.Test(t, func(t *testing.T) {
			h, err := desk.Offer(t.Context(), valid())
			if err != nil || !h.Deadline.Equal(time.Now().Add(time.Minute)) {
				t.Errorf("%s: %+v, %v", name, h, err)
			}
			time.Sleep(time.Minute - 1)
			if tickets, _ := desk.Snapshot(t.Context()); len(handoff.Check(tickets, time.Now())) > 0 {
				t.Errorf("%s: overdue too early", name)
			}
			time.Sleep(time.Nanosecond)
			if _, err := desk.Take(t.Context(), "k", "to"); err != handoff.ErrExpired {
				t.Errorf("%s: late Take got %v", name, err)
			}
		})
	}
}

// AMB-052: there is a receipt only of a closed ticket, and the next generation has none.
func TestAReceiptBelongsToItsGeneration(t *testing.T) {
	ctx, desk := t.Context(), handoff.NewLocalDesk()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	none := func(when string) {
		t.Helper()
		if r, to, ok := desk.Receipt("k"); ok || to != "" || r.Status != "" {
			t.Errorf("%s there is a receipt %+v for %q", when, r, to)
		}
	}
	none("before the ticket")
	_, err := desk.Offer(ctx, valid())
	must(err)
	handle, err := desk.Take(ctx, "k", "to")
	must(err)
	none("before the reply")
	must(desk.Reply(ctx, "k", handle.Token, handoff.Receipt{Status: handoff.ReceiptDone, Summary: "s"}))
	if r, to, ok := desk.Receipt("k"); !ok || to != "inbox" || r.Summary != "s" {
		t.Errorf("receipt %+v for %q, %t", r, to, ok)
	}
	_, err = desk.Offer(ctx, valid())
	must(err)
	none("in the next generation")
}

// The time of an operation does not depend on how many tickets there are; of Snapshot it
// does, and of nothing else.
func BenchmarkLocalDesk(b *testing.B) {
	for _, tickets := range []int{10, 100_000} {
		desk := handoff.NewLocalDesk()
		for i := range tickets {
			h := valid()
			h.Key = handoff.Key(fmt.Sprint("ticket/", i))
			if _, err := desk.Offer(b.Context(), h); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprint("tickets=", tickets), func(b *testing.B) {
			for b.Loop() {
				if _, err := desk.Offer(b.Context(), valid()); err != nil {
					b.Fatal(err)
				}
				h, err := desk.Take(b.Context(), "k", "to")
				if err != nil {
					b.Fatal(err)
				}
				if err := desk.Reply(b.Context(), "k", h.Token, handoff.Receipt{Status: handoff.ReceiptDone, Summary: "s"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

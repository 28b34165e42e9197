package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit/handoff"
	"github.com/orbitkit/orbit/internal/bubble"
)

// A takeFunc is a store that can only be taken from. n counts the takers.
type takeFunc struct {
	handoff.Store
	take func(ctx context.Context, n int64) error
	n    *atomic.Int64
}

func takes(f func(ctx context.Context, n int64) error) takeFunc {
	return takeFunc{take: f, n: new(atomic.Int64)}
}

func (f takeFunc) Take(ctx context.Context, _ handoff.Key, _ handoff.Agent) (handoff.Handle, error) {
	return handoff.Handle{Token: "token"}, f.take(ctx, f.n.Add(1))
}

// first answers the first taker with a and all others with b.
func first(a, b error) takeFunc {
	return takes(func(_ context.Context, n int64) error {
		if n == 1 {
			return a
		}
		return b
	})
}

var same = slices.Repeat([]handoff.Agent{"to"}, 5)

var errDown = errors.New("database is down")

// HAND-070, HAND-075
func TestExactlyOneTakerWinsAgainstErrTaken(t *testing.T) {
	for name, losers := range map[string]error{"as it is": handoff.ErrTaken, "wrapped": fmt.Errorf("take: %w", handoff.ErrTaken)} { // HAND-039
		if n, err := handoff.ConcurrentTake(t.Context(), first(nil, losers), "k", same, time.Minute); n != 1 || err != nil {
			t.Errorf("%s: %d winners, %v", name, n, err)
		}
	}
}

func TestVerdictsOfBrokenStores(t *testing.T) { // TEST-059
	for name, test := range map[string]struct {
		store   handoff.Store
		winners int
		says    string
		is      error // what the verdict wraps
	}{
		"two winners":              {takes(func(_ context.Context, n int64) error { return map[bool]error{false: handoff.ErrTaken}[n < 3] }), 2, "2 of 5 takers won", nil}, // HAND-071
		"all win":                  {first(nil, nil), 5, "5 of 5 takers won", nil},                                                                                         // HAND-071
		"nobody wins":              {first(handoff.ErrTaken, handoff.ErrTaken), 0, "none of 5 takers won", nil},                                                            // HAND-071
		"loser too late":           {first(nil, handoff.ErrExpired), 1, "never came to the contest", handoff.ErrExpired},                                                   // HAND-072
		"loser is a stranger":      {first(nil, handoff.ErrNotAddressee), 1, "never came to the contest", handoff.ErrNotAddressee},                                         // HAND-072
		"ticket has ended":         {first(handoff.ErrAlreadySettled, handoff.ErrAlreadySettled), 0, "none of 5 takers won", handoff.ErrAlreadySettled},                    // HAND-072
		"no ticket":                {first(handoff.ErrUnknownKey, handoff.ErrUnknownKey), 0, "never came to the contest", handoff.ErrUnknownKey},                           // HAND-072
		"fault":                    {first(nil, errDown), 1, "fault of the infrastructure", errDown},                                                                       // HAND-073
		"nothing but faults":       {first(errDown, errDown), 0, "fault of the infrastructure", errDown},                                                                   // HAND-073
		"a fault hides the winner": {first(errDown, handoff.ErrTaken), 0, "taker", errDown},                                                                                // HAND-073
		"taken and expired":        {first(nil, errors.Join(handoff.ErrTaken, handoff.ErrExpired)), 1, "fault of the infrastructure", handoff.ErrExpired},
		"panic":                    {takes(func(_ context.Context, n int64) error { panic("no row") }), 0, "the store panicked: no row", nil},
		"goroutine ended":          {takes(func(_ context.Context, n int64) error { runtime.Goexit(); return nil }), 0, "the store ended the goroutine", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := handoff.ConcurrentTake(t.Context(), test.store, "k", same, time.Minute)
			if n != test.winners || err == nil || !strings.Contains(err.Error(), test.says) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%d winners, %v; want %d and %q", n, err, test.winners, test.says)
			}
			if test.winners == 0 && errors.Is(err, errDown) && strings.Contains(err.Error(), "won") {
				t.Errorf("after a fault nobody knows who won: %v", err) // HAND-073
			}
		})
	}
}

// A verdict is bounded, whatever the number of takers, and the same whoever was first.
func TestAVerdictNamesAFewTakersInOrder(t *testing.T) {
	many := slices.Repeat([]handoff.Agent{"to"}, 100)
	_, err := handoff.ConcurrentTake(t.Context(), first(errDown, errDown), "k", many, time.Minute)
	if s := err.Error(); !strings.Contains(s, "taker 0 met") || !strings.Contains(s, "taker 7 met") || strings.Contains(s, "taker 8 met") || !strings.Contains(s, "and 92 takers more") {
		t.Errorf("verdict: %v", err)
	}
}

// HAND-074
func TestAContestEndsInTime(t *testing.T) {
	const ttl = 3 * time.Second
	deaf := func(hang chan struct{}, from int64) takeFunc { // ignores its context
		return takes(func(_ context.Context, n int64) error {
			if n >= from {
				<-hang
			}
			return nil
		})
	}
	bubble.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		begun := time.Now()
		for from, winners := range map[int64]int{1: 0, 2: 1} {
			n, err := handoff.ConcurrentTake(t.Context(), deaf(hang, from), "k", same, ttl)
			if n != winners || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprintf("%d of 5 takers have not answered", 5-winners)) || strings.Contains(err.Error(), "nobody") {
				t.Errorf("%d winners, %v", n, err)
			}
		}
		polite := takes(func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() })
		if n, err := handoff.ConcurrentTake(t.Context(), polite, "k", same, ttl); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d winners, %v", n, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n, err := handoff.ConcurrentTake(ctx, deaf(hang, 1), "k", same, ttl); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d winners, %v", n, err)
		}
		if took := time.Since(begun); took != 3*ttl+time.Second {
			t.Errorf("the contests took %v", took)
		}
		if n, err := handoff.ConcurrentTake(ctx, first(nil, handoff.ErrTaken), "k", same, ttl); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of its context: %d winners, %v", n, err)
		}
	})
}

// HAND-070: the takers are at the store all at the same time.
func TestTakersMeetAtTheStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		all := make(chan struct{})
		s := takes(func(ctx context.Context, n int64) error {
			if n == int64(len(same)) {
				close(all)
			}
			<-all // a store that lets nobody go before the last is there
			if n == 1 {
				return nil
			}
			return handoff.ErrTaken
		})
		if n, err := handoff.ConcurrentTake(t.Context(), s, "k", same, time.Minute); n != 1 || err != nil {
			t.Errorf("%d winners, %v", n, err)
		}
	})
}

// HAND-076: a contest that cannot prove anything is refused before anybody takes.
func TestAnEmptyContestIsInvalid(t *testing.T) {
	var none context.Context
	untouched := takes(func(context.Context, int64) error { t.Error("somebody took"); return nil })
	for field, run := range map[string]func() (int, error){
		"ctx": func() (int, error) { return handoff.ConcurrentTake(none, untouched, "k", same, time.Second) },
		"s":   func() (int, error) { return handoff.ConcurrentTake(t.Context(), nil, "k", same, time.Second) },
		"key": func() (int, error) { return handoff.ConcurrentTake(t.Context(), untouched, "", same, time.Second) },
		"tos": func() (int, error) {
			return handoff.ConcurrentTake(t.Context(), untouched, "k", same[:1], time.Second)
		},
		"ttl": func() (int, error) { return handoff.ConcurrentTake(t.Context(), untouched, "k", same, 0) },
	} {
		n, err := run()
		var invalid *handoff.InvalidError
		if n != 0 || !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %d, %v", field, n, err)
		}
	}
}

// AMB-045: takers are one identity several times. A foreign one makes the verdict invalid,
// though there is a winner.
func TestAForeignTakerMakesTheVerdictInvalid(t *testing.T) {
	desk := handoff.NewLocalDesk()
	if _, err := desk.Offer(t.Context(), valid()); err != nil {
		t.Fatal(err)
	}
	n, err := handoff.ConcurrentTake(t.Context(), desk, "k", []handoff.Agent{"to", "stranger", "to"}, time.Minute)
	if n != 1 || !errors.Is(err, handoff.ErrNotAddressee) || errors.Is(err, handoff.ErrTaken) {
		t.Errorf("%d winners, %v", n, err)
	}
}

// HAND-096
func TestOneOfManyTakesFromTheDesk(t *testing.T) {
	desk := handoff.NewLocalDesk()
	many := slices.Repeat([]handoff.Agent{"to"}, 64)
	for range 50 {
		if _, err := desk.Offer(t.Context(), valid()); err != nil {
			t.Fatal(err)
		}
		if n, err := handoff.ConcurrentTake(t.Context(), desk, "k", many, time.Minute); n != 1 || err != nil {
			t.Fatalf("%d winners, %v", n, err)
		}
		tickets, _ := desk.Snapshot(t.Context())
		if p := handoff.Check(tickets, time.Now()); len(p) > 0 || tickets[0].State != handoff.StateAccepted {
			t.Fatalf("%+v: %v", tickets, p)
		}
		desk = handoff.NewLocalDesk()
	}
}

func valid() handoff.Ticket {
	return handoff.Ticket{Key: "k", From: "from", To: "to", ReplyTo: "inbox", TTL: time.Minute}
}

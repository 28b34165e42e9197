package handofftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

const (
	rounds  = 8 // of each race
	takers  = 8
	contest = 30 * time.Second // bounds a contest on a store that hangs
)

// oneTakerWins runs the judge of the contract on tickets of its own, over the reopened
// store too, and closes each with the token of the winner.
func oneTakerWins(ctx context.Context, t *trial) error {
	for round := range rounds {
		key := handoff.Key(fmt.Sprint("contest/", round))
		if err := t.play(ctx, offering(key)); err != nil {
			return err
		}
		r := &recorder{Store: t.host.Store}
		if t.host.Reopen != nil {
			other, err := t.store(ctx, command{other: true})
			if err != nil {
				return err
			}
			r.other = other
		}
		tos := make([]handoff.Agent, takers)
		for i := range tos {
			tos[i] = target
		}
		if n, err := handoff.ConcurrentTake(ctx, r, key, tos, contest); err != nil || n != 1 {
			return fmt.Errorf("contest %d has %d winners: %w", round+1, n, err)
		}
		if err := t.adopt(key, r.handles); err != nil {
			return err
		}
		if err := t.play(ctx, taking(key), replying(key)); err != nil {
			return err
		}
	}
	return nil
}

// adopt tells the model of a Take that the trial has not played.
func (t *trial) adopt(key handoff.Key, handles []handoff.Handle) error {
	if len(handles) != 1 {
		return fmt.Errorf("%d takers got a handle", len(handles))
	}
	h := handles[0]
	want, next := t.tickets[key].step(t.now, taking(key), h.Token)
	if got := (answer{fence: h.Fence, until: t.since(h.Until), token: h.Token}); got != want || h.Token == "" || t.tokens[h.Token] {
		return fmt.Errorf("the winner got %v, want %v and a new token", got, want)
	}
	t.tickets[key], t.tokens[h.Token] = next, true
	return nil
}

// A recorder keeps the handles that takers get, and sends every second of them to the
// other store, if there is one.
type recorder struct {
	handoff.Store
	other handoff.Store

	mu      sync.Mutex
	takes   int
	handles []handoff.Handle
}

func (r *recorder) Take(ctx context.Context, key handoff.Key, to handoff.Agent) (handoff.Handle, error) {
	r.mu.Lock()
	r.takes++
	s := r.Store
	if r.other != nil && r.takes%2 == 0 {
		s = r.other
	}
	r.mu.Unlock()
	h, err := s.Take(ctx, key, to)
	if err == nil {
		r.mu.Lock()
		r.handles = append(r.handles, h)
		r.mu.Unlock()
	}
	return h, err
}

// race lets commands on one key run at the same time, again and again, and asks for an
// order in which one after the other would have got the same answers, and left the ticket
// as it stands.
func (t *trial) race(ctx context.Context, name string, setUp, contenders func(handoff.Key) []command) error {
	for round := range rounds {
		key := handoff.Key(fmt.Sprint(name, "/", round))
		if err := t.play(ctx, setUp(key)...); err != nil {
			return err
		}
		h := t.history(key)
		clients := make([]func() (command, bool), 0, takers)
		racing := contenders(key)
		rand.Shuffle(len(racing), func(i, j int) { racing[i], racing[j] = racing[j], racing[i] })
		for _, c := range racing {
			if c.pick != nil {
				c.token = c.pick(t)
			}
			clients = append(clients, once(c))
		}
		if err := h.record(ctx, clients); err != nil {
			return err
		}
		if err := h.judge(ctx); err != nil {
			return fmt.Errorf("%s, round %d: %w", name, round+1, err)
		}
	}
	return nil
}

func once(c command) func() (command, bool) {
	played := false
	return func() (command, bool) {
		more := !played
		played = true
		return c, more
	}
}

func offersAtOnce(ctx context.Context, t *trial) error {
	contenders := func(key handoff.Key) []command {
		var offers []command
		for i := range takers {
			offers = append(offers, offering(key).offered(func(h *handoff.Ticket) {
				h.Payload, h.ReplyTo = fmt.Append(nil, "payload ", i), fmt.Sprint("inbox/", i)
			}))
		}
		return offers
	}
	nothing := func(handoff.Key) []command { return nil }
	if err := t.race(ctx, "first generation", nothing, contenders); err != nil {
		return err
	}
	ended := func(key handoff.Key) []command { return []command{offering(key), canceling(key)} }
	return t.race(ctx, "next generation", ended, contenders)
}

func repliesAtOnce(ctx context.Context, t *trial) error {
	return t.race(ctx, "replies at once",
		func(key handoff.Key) []command { return []command{offering(key), taking(key)} },
		func(key handoff.Key) []command {
			r := replying(key)
			failed := r.with(handoff.Receipt{Status: handoff.ReceiptFailed, Failure: "disk full"})
			return []command{r, failed, r, failed, r.with(handoff.Receipt{}), r.holding("another")}
		})
}

func cancelAgainstTake(ctx context.Context, t *trial) error {
	return t.race(ctx, "cancel against take",
		func(key handoff.Key) []command { return []command{offering(key)} },
		func(key handoff.Key) []command {
			return []command{canceling(key), taking(key), canceling(key), taking(key)}
		})
}

// replyAgainstExpiry lets a reply, the deadline and the next offer meet.
func replyAgainstExpiry(ctx context.Context, t *trial) error {
	return t.race(ctx, "reply against expiry",
		func(key handoff.Key) []command {
			return []command{offering(key), advancing(usualTTL - microsecond), taking(key)}
		},
		func(key handoff.Key) []command {
			return []command{replying(key), advancing(microsecond), offering(key), taking(key)}
		})
}

// snapshotIsOnePicture changes tickets one after the other, always in the same order, for
// as long as it takes to look at them some times: no snapshot may have a later change
// without those before it.
func snapshotIsOnePicture(ctx context.Context, t *trial) error {
	var keys []handoff.Key
	for i := range 6 {
		keys = append(keys, handoff.Key(fmt.Sprint("picture/", i)))
		if err := t.play(ctx, offering(keys[i])); err != nil {
			return err
		}
	}
	watched := make(chan error, 1)
	go func() { watched <- watch(ctx, t.host.Store, keys) }()
	for {
		if err := turnAround(ctx, t.host.Store, keys); err != nil {
			return errors.Join(err, <-watched)
		}
		select {
		case err := <-watched:
			return err
		default:
		}
	}
}

// turnAround withdraws all tickets and then offers them again.
func turnAround(ctx context.Context, s handoff.Store, keys []handoff.Key) error {
	for _, key := range keys {
		if err := s.Cancel(ctx, key, source); err != nil {
			return fmt.Errorf("an offered ticket is not canceled: %w", err)
		}
	}
	for _, key := range keys {
		if _, err := s.Offer(ctx, offering(key).ticket); err != nil {
			return fmt.Errorf("a canceled ticket is not offered again: %w", err)
		}
	}
	return nil
}

// watch takes snapshots. The age of a ticket is how many changes it has seen.
func watch(ctx context.Context, s handoff.Store, keys []handoff.Key) error {
	for range 40 {
		snapshot, err := s.Snapshot(ctx)
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		ages := make(map[handoff.Key]uint64)
		for _, h := range snapshot {
			ages[h.Key] = 2 * h.Generation
			if h.State == handoff.StateWithdrawn {
				ages[h.Key]++
			}
		}
		first, last := ages[keys[0]], ages[keys[len(keys)-1]]
		for i := 1; i < len(keys); i++ {
			if ages[keys[i-1]] < ages[keys[i]] || first-last > 1 {
				return fmt.Errorf("a snapshot is of no instant: the tickets, which change in their order, have seen %v changes", inOrder(ages, keys))
			}
		}
	}
	return nil
}

func inOrder(ages map[handoff.Key]uint64, keys []handoff.Key) (changes []uint64) {
	for _, key := range keys {
		changes = append(changes, ages[key])
	}
	return changes
}

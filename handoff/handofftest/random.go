package handofftest

import (
	"context"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/orbitkit/orbit/handoff"
)

// randomCommands plays sequences of random commands, with keys of their own for each;
// rapid shrinks one that fails. They share a store until one has failed on it.
func randomCommands(ctx context.Context, tb rapid.TB, open Open) {
	var t *trial
	end := func() {
		if t == nil {
			return
		}
		if err := t.end(); err != nil {
			tb.Error(err)
		}
		t = nil
	}
	defer end()
	sequence := 0
	rapid.Check(tb, func(r *rapid.T) {
		if t == nil {
			var err error
			if t, err = begin(ctx, open); err != nil {
				r.Fatal(err)
			}
		}
		sequence++
		var commands []command
		for range rapid.IntRange(1, 12).Draw(r, "commands") {
			commands = append(commands, drawn(r, fmt.Sprint("sequence/", sequence, "/")))
		}
		if err := t.playBlind(ctx, commands...); err != nil {
			end()
			r.Fatal(err)
		}
	})
}

// drawn draws a command. Most of them are allowed in some state.
func drawn(r *rapid.T, prefix string) command {
	key := handoff.Key(prefix + rapid.SampledFrom([]string{"a", "a", "a", "A"}).Draw(r, "key"))
	agent := rapid.SampledFrom([]handoff.Agent{source, target, "stranger"})
	switch rapid.SampledFrom([]act{offer, offer, take, take, reply, cancel, advance}).Draw(r, "act") {
	case offer:
		ttl := rapid.SampledFrom([]time.Duration{usualTTL, usualTTL, microsecond, time.Hour, 0}).Draw(r, "TTL")
		return offering(key).within(ttl).offered(func(t *handoff.Ticket) {
			t.To = rapid.SampledFrom([]handoff.Agent{target, target, source}).Draw(r, "to")
			t.Payload = rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(r, "payload")
		})
	case take:
		return taking(key).as(agent.Draw(r, "taker"))
	case cancel:
		return canceling(key).as(agent.Draw(r, "canceler"))
	case reply:
		c := replying(key).with(rapid.SampledFrom([]handoff.Receipt{done, done, {Status: handoff.ReceiptFailed, Failure: "disk full"}, {}}).Draw(r, "receipt"))
		if back := rapid.IntRange(0, 3).Draw(r, "token"); back > 0 {
			c.pick = func(t *trial) string { return t.minted[mint{key, t.tickets[key].generation - uint64(back-1)}] }
		}
		return c
	default:
		return advancing(rapid.SampledFrom([]time.Duration{0, microsecond, usualTTL - microsecond, usualTTL, time.Hour}).Draw(r, "time"))
	}
}

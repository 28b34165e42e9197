package handofftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitkit/orbit/handoff"
)

// names differ in bytes but not for some collation, normaliser, trimmer, decoder or number.
var names = []string{
	"object/a", "object/A", "object/a ", " object/a", "object/a\t", "object/á", "object/a\u0301", "object/a\u200b", "object/ａ",
	"\u0301", "\u0308", "\u200b", "\u200d", "\ufeff", "😀", "😁", "ß", "ss", "ſs", "i", "I", "ı", "İ",
	"1", "01", "1.0", "1e0", "%", "_", "\\", "\\\\", "'", "''", "\"", "null", "\x00", "\x00\x00", "a\x00b", "a",
	"\xff", "\xfe", "\ufffd", "\xc3\x28",
}

// eachKey brings every second key further than its neighbours: two that are one for the
// store show as a replay or as one ticket in the snapshot.
func eachKey() []command {
	var first, then []command
	for i, name := range names {
		key := handoff.Key(name)
		first = append(first, offering(key))
		if i%2 == 0 {
			then = append(then, taking(key), replying(key))
		} else {
			then = append(then, canceling(key), offering(key))
		}
	}
	return append(first, then...)
}

// eachAgent lets each name take and cancel what is for the name before it, and then its own.
func eachAgent() []command {
	var commands []command
	before := handoff.Agent(names[len(names)-1])
	for i, name := range names {
		agent, key := handoff.Agent(name), handoff.Key(fmt.Sprint("agent/", i))
		offered := offering(key).offered(func(t *handoff.Ticket) { t.From, t.To = agent, agent })
		commands = append(commands, offered, taking(key).as(before), canceling(key).as(before), taking(key).as(agent))
		before = agent
	}
	return commands
}

func eachAddress() []command {
	var commands []command
	for i, name := range names {
		commands = append(commands, offering(handoff.Key(fmt.Sprint("address/", i))).offered(func(t *handoff.Ticket) { t.ReplyTo = name }))
	}
	return commands
}

func eachPayload() []command {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	payloads := [][]byte{nil, {}, {0}, all, []byte(`{"a": 1.0 , "a":2}`), bytes.Repeat(all, 257)} // the last does not fit into 64 KiB
	for _, name := range names {
		payloads = append(payloads, []byte(name))
	}
	var commands []command
	for i, payload := range payloads {
		key := handoff.Key(fmt.Sprint("payload/", i))
		c := offering(key).offered(func(t *handoff.Ticket) { t.Payload = payload })
		commands = append(commands, c, c, taking(key))
	}
	return commands
}

// longNames offers names that differ in their last byte. 255 bytes have to be taken;
// longer ones may be refused, but not cut.
func longNames(ctx context.Context, t *trial) error {
	for _, length := range []int{255, 256, 300, 1000, 4000, 70000} {
		for _, set := range []func(*handoff.Ticket, string){
			func(h *handoff.Ticket, name string) { h.Key = handoff.Key(name) },
			func(h *handoff.Ticket, name string) { h.From = handoff.Agent(name) },
			func(h *handoff.Ticket, name string) { h.To = handoff.Agent(name) },
			func(h *handoff.Ticket, name string) { h.ReplyTo = name },
		} {
			for _, last := range []string{"a", "b"} {
				name := strings.Repeat("x", length-1) + last
				c := offering(handoff.Key(fmt.Sprint("long/", len(t.tickets)))).offered(func(h *handoff.Ticket) { set(h, name) })
				c.key = c.ticket.Key
				if err := t.playOrRefuse(ctx, c, length > 255); err != nil {
					return fmt.Errorf("a name of %d bytes: %w", length, err)
				}
			}
		}
	}
	return nil
}

// playOrRefuse plays an Offer, which may also be refused as invalid.
func (t *trial) playOrRefuse(ctx context.Context, c command, mayRefuse bool) error {
	if mayRefuse {
		switch a, err := c.run(ctx, t.host.Store, t); {
		case err != nil:
			return err
		case a.refusal == errInvalid:
			return t.checkSnapshot(ctx, t.host.Store)
		}
		want, next := t.tickets[c.key].step(t.now, c, "")
		t.tickets[c.key] = next
		if want.ticket.generation != 1 {
			return errors.New("the suite has offered this key before")
		}
	}
	return t.playOne(ctx, c) // after a success, a replay
}

// memoryIsNotShared writes to what it gave the store and to what it got.
func memoryIsNotShared(ctx context.Context, t *trial) error {
	given := offering("k")
	payload := slices.Clone(given.ticket.Payload)
	given.ticket.Payload = payload
	if err := t.play(ctx, given); err != nil {
		return err
	}
	clear(payload)
	if err := t.checkSnapshot(ctx, t.host.Store); err != nil {
		return fmt.Errorf("after the caller wrote to the payload that it had offered: %w", err)
	}
	replayed, err := t.host.Store.Offer(ctx, offering("k").ticket)
	if err != nil {
		return err
	}
	clear(replayed.Payload)
	if err := t.checkSnapshot(ctx, t.host.Store); err != nil {
		return fmt.Errorf("after the caller wrote to the payload of a replay: %w", err)
	}
	tickets, err := t.host.Store.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, h := range tickets {
		clear(h.Payload)
	}
	if err := t.checkSnapshot(ctx, t.host.Store); err != nil {
		return fmt.Errorf("after the caller wrote to the payloads of a snapshot: %w", err)
	}
	return t.receiptIsNotShared(ctx)
}

func (t *trial) receiptIsNotShared(ctx context.Context) error {
	r := done
	r.Artifacts = []string{"objects/1", "objects/2"}
	given := r
	given.Artifacts = slices.Clone(r.Artifacts)
	if err := t.play(ctx, taking("k"), replying("k").with(given)); err != nil || t.host.Receipt == nil {
		return err
	}
	clear(given.Artifacts)
	if err := t.checkReceipt(ctx, "k", r, address); err != nil {
		return fmt.Errorf("after the caller wrote to the artifacts that it had given: %w", err)
	}
	got, _, err := t.host.Receipt(ctx, "k")
	if err != nil {
		return err
	}
	clear(got.Artifacts)
	if err := t.checkReceipt(ctx, "k", r, address); err != nil {
		return fmt.Errorf("after the caller wrote to the artifacts that it got: %w", err)
	}
	return nil
}

func (t *trial) checkReceipt(ctx context.Context, key handoff.Key, want handoff.Receipt, replyTo string) error {
	got, to, err := t.host.Receipt(ctx, key)
	if err != nil {
		return fmt.Errorf("receipt of %q: %w", key, err)
	}
	if got.Status != want.Status || got.Summary != want.Summary || got.Failure != want.Failure || !slices.Equal(got.Artifacts, want.Artifacts) || to != replyTo {
		return fmt.Errorf("the receipt of %q is %+v for %q, want %+v for %q", key, got, to, want, replyTo)
	}
	return nil
}

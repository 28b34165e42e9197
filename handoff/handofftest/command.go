package handofftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// An act is what a command does.
type act string

const (
	offer   act = "Offer"
	take    act = "Take"
	reply   act = "Reply"
	cancel  act = "Cancel"
	advance act = "Advance" // turns the clock
	look    act = "look"    // reads one ticket out of a snapshot
)

// A command is one call of a store.
type command struct {
	act     act
	key     handoff.Key
	ticket  handoff.Ticket      // of Offer
	agent   handoff.Agent       // who takes or cancels
	token   string              // of Reply
	pick    func(*trial) string // finds the token when the command is played, unless nil
	receipt handoff.Receipt
	by      time.Duration // how far the clock is turned
	other   bool          // through the store that was reopened
}

// The parties of most commands.
const (
	source  handoff.Agent = "process/source"
	target  handoff.Agent = "process/target"
	address               = "inbox/of/the/source"
)

const usualTTL = 10 * time.Second

func offering(key handoff.Key) command {
	return command{act: offer, key: key, ticket: handoff.Ticket{
		Key: key, From: source, To: target, Payload: []byte("payload of " + string(key)), ReplyTo: address, TTL: usualTTL,
	}}
}

func taking(key handoff.Key) command { return command{act: take, key: key, agent: target} }

// replying replies with the current token of the key.
func replying(key handoff.Key) command {
	return command{act: reply, key: key, receipt: done, pick: func(t *trial) string { return t.tickets[key].token }}
}

func canceling(key handoff.Key) command { return command{act: cancel, key: key, agent: source} }

func advancing(d time.Duration) command { return command{act: advance, by: d} }

var done = handoff.Receipt{Status: handoff.ReceiptDone, Summary: "the step is done", Artifacts: []string{"objects/1"}}

func (c command) offered(change func(*handoff.Ticket)) command { change(&c.ticket); return c }
func (c command) as(a handoff.Agent) command                   { c.agent = a; return c }
func (c command) elsewhere() command                           { c.other = true; return c }
func (c command) with(r handoff.Receipt) command               { c.receipt = r; return c }
func (c command) within(ttl time.Duration) command             { c.ticket.TTL = ttl; return c }

// holding presents a token as it is.
func (c command) holding(token string) command { c.token, c.pick = token, nil; return c }

// ofGeneration presents the token that an earlier generation of the key, or of another
// one, was taken with.
func (c command) ofGeneration(key handoff.Key, generation uint64) command {
	c.pick = func(t *trial) string { return t.minted[mint{key, generation}] }
	return c
}

// changed presents the current token after a change.
func (c command) changed(change func(string) string) command {
	key := c.key
	c.pick = func(t *trial) string { return change(t.tickets[key].token) }
	return c
}

func (c command) String() string {
	s := fmt.Sprintf("%s %q", c.act, c.key)
	switch c.act {
	case offer:
		s += fmt.Sprintf(" from %q to %q within %v", c.ticket.From, c.ticket.To, c.ticket.TTL)
	case take, cancel:
		s += fmt.Sprintf(" by %q", c.agent)
	case advance:
		s = fmt.Sprintf("Advance by %v", c.by)
	}
	if c.other {
		s += " through the reopened store"
	}
	return s
}

// run runs a command on a store. A fault of the store is an error.
func (c command) run(ctx context.Context, s handoff.Store, t *trial) (a answer, err error) {
	switch c.act {
	case offer:
		var got handoff.Ticket
		if got, err = s.Offer(ctx, c.ticket); err == nil {
			a.ticket = t.view(got)
		}
	case take:
		var h handoff.Handle
		if h, err = s.Take(ctx, c.key, c.agent); err == nil {
			a.fence, a.until, a.token = h.Fence, t.since(h.Until), h.Token
			if h.Token == "" {
				return a, errors.New("a Take gave no token")
			}
		}
	case reply:
		err = s.Reply(ctx, c.key, c.token, c.receipt)
	case cancel:
		err = s.Cancel(ctx, c.key, c.agent)
	case advance:
		return a, t.host.Advance(ctx, c.by)
	case look:
		a.ticket, err = t.lookAt(ctx, s, c.key)
		return a, err
	}
	if err != nil {
		a.refusal, err = refusal(err)
	}
	return a, err
}

// refusal tells which refusal err is. Another error is a fault.
func refusal(err error) (is, fault error) {
	for _, sentinel := range []error{
		handoff.ErrUnknownKey, handoff.ErrTaken, handoff.ErrExpired, handoff.ErrNotAddressee,
		handoff.ErrNotSource, handoff.ErrLeaseLost, handoff.ErrAlreadySettled,
	} {
		if !errors.Is(err, sentinel) {
			continue
		}
		if is != nil {
			return nil, fmt.Errorf("an error that is both %v and %v: %w", is, sentinel, err)
		}
		is = sentinel
	}
	var invalid *handoff.InvalidError
	switch {
	case is != nil:
		return is, nil
	case errors.As(err, &invalid):
		return errInvalid, nil
	}
	return nil, fmt.Errorf("an error that is no refusal: %w", err)
}

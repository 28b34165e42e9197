package handofftest

import (
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// A ticket is what the contract says about a key; the zero value has never been offered.
// Times count from the beginning of the trial. It is comparable, for porcupine.
type ticket struct {
	view
	token string // of this generation, if it was taken
}

// A view is a ticket as a store shows it.
type view struct {
	key                handoff.Key
	from, to, holder   handoff.Agent
	replyTo, payload   string
	ttl                time.Duration
	generation         uint64
	deadline, closedAt time.Duration // closedAt is never if there is no time of receipt
	state              handoff.State
}

const never time.Duration = -1

func (t ticket) exists() bool { return t.generation > 0 }

// at returns the state of the ticket when the clock shows now, whether or not the store
// has written it.
func (t ticket) at(now time.Duration) handoff.State {
	if t.live() && now >= t.deadline {
		return handoff.StateExpired
	}
	return t.state
}

func (v view) live() bool {
	return v.state == handoff.StateOffered || v.state == handoff.StateAccepted
}

// expired is how the ticket shows once its expiry is written.
func (v view) expired() view {
	v.state, v.holder = handoff.StateExpired, ""
	return v
}

// shownAs reports whether a snapshot may show the ticket as v. Expiry may be written
// lazily (HAND-087).
func (t ticket) shownAs(v view, now time.Duration) bool {
	return v == t.view || t.live() && t.at(now) == handoff.StateExpired && v == t.expired()
}

// An answer is what a command got.
type answer struct {
	refusal error // a sentinel, errInvalid or nil
	ticket  view  // of Offer, and of a look at one ticket
	fence   uint64
	until   time.Duration
	token   string
}

func (a answer) String() string {
	switch {
	case a.refusal != nil:
		return "refusal " + fmt.Sprint(a.refusal)
	case a.token != "":
		return fmt.Sprintf("handle with fence %d until %v", a.fence, a.until)
	case a.ticket != view{}:
		return "ticket " + brief(a.ticket)
	}
	return "success"
}

// errInvalid stands for any *handoff.InvalidError.
var errInvalid = errors.New("invalid argument")

// step returns what the contract wants a command on this key to get when the clock shows
// now, and how the ticket stands then. The token is the one that the store has minted, if
// the command got one.
func (t ticket) step(now time.Duration, c command, token string) (want answer, next ticket) {
	switch c.act {
	case offer:
		return t.offer(now, c.ticket)
	case take:
		return t.take(now, c.agent, token)
	case reply:
		return t.reply(now, c.token, c.receipt)
	default:
		return t.cancel(now, c.agent)
	}
}

func (t ticket) refuse(with error) (answer, ticket) { return answer{refusal: with}, t }

func (t ticket) offer(now time.Duration, o handoff.Ticket) (answer, ticket) {
	switch s := t.at(now); {
	case o.Validate() != nil:
		return t.refuse(errInvalid)
	case t.exists() && (s == handoff.StateOffered || s == handoff.StateAccepted):
		return answer{ticket: t.view}, t // a replay
	}
	v := view{
		key: o.Key, from: o.From, to: o.To, replyTo: o.ReplyTo, payload: string(o.Payload), ttl: o.TTL,
		generation: t.generation + 1, deadline: now + o.TTL, closedAt: never, state: handoff.StateOffered,
	}
	return answer{ticket: v}, ticket{view: v}
}

func (t ticket) take(now time.Duration, to handoff.Agent, token string) (answer, ticket) {
	switch s := t.at(now); {
	case !t.exists():
		return t.refuse(handoff.ErrUnknownKey)
	case to != t.to:
		return t.refuse(handoff.ErrNotAddressee)
	case s == handoff.StateClosed || s == handoff.StateWithdrawn:
		return t.refuse(handoff.ErrAlreadySettled)
	case s == handoff.StateExpired:
		return t.refuse(handoff.ErrExpired)
	case s == handoff.StateAccepted:
		return t.refuse(handoff.ErrTaken)
	}
	t.state, t.holder, t.token = handoff.StateAccepted, to, token
	return answer{fence: t.generation, until: t.deadline, token: token}, t
}

func (t ticket) reply(now time.Duration, token string, r handoff.Receipt) (answer, ticket) {
	switch s := t.at(now); {
	case !t.exists():
		return t.refuse(handoff.ErrUnknownKey)
	case t.token == "" || token != t.token:
		return t.refuse(handoff.ErrLeaseLost)
	case s == handoff.StateClosed:
		return t.refuse(handoff.ErrAlreadySettled)
	case s == handoff.StateExpired:
		return t.refuse(handoff.ErrExpired)
	case r.Validate() != nil:
		return t.refuse(errInvalid)
	}
	t.state, t.holder, t.closedAt = handoff.StateClosed, "", now
	return answer{}, t
}

func (t ticket) cancel(now time.Duration, by handoff.Agent) (answer, ticket) {
	switch s := t.at(now); {
	case !t.exists():
		return t.refuse(handoff.ErrUnknownKey)
	case by != t.from:
		return t.refuse(handoff.ErrNotSource)
	case s == handoff.StateAccepted:
		return t.refuse(handoff.ErrTaken)
	case s != handoff.StateOffered:
		return t.refuse(handoff.ErrAlreadySettled)
	}
	t.state = handoff.StateWithdrawn
	return answer{}, t
}

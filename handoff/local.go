package handoff

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"slices"
	"sync"
	"time"
)

var _ Store = (*LocalDesk)(nil)

// A Clock tells the time. It is called while the desk is locked, so it must not call the
// desk.
type Clock func() time.Time

// A DeskOption changes how a desk is made.
type DeskOption func(*LocalDesk)

// WithClock makes the desk judge by c, so that expiry can be tested without sleeping. Nil
// means the system's clock, which is the default.
func WithClock(c Clock) DeskOption { return func(d *LocalDesk) { d.clock = c } }

// A LocalDesk is a [Store] inside one process: it proves that the contract can be kept,
// and takes hand-overs between parts of one program into the same contract. A mutex makes
// it atomic; nothing survives the process, and nothing is promised across processes. It is
// no layout for a database either: there the host decides (an example is in
// examples/handoff-mysql).
//
// A desk keeps the last ticket of each key as long as it lives, since generations never
// begin anew. Each operation but Snapshot looks at one ticket only.
//
// The context of its methods is not used. Its zero value is an empty desk on the system's
// clock; it must not be copied.
type LocalDesk struct {
	clock Clock // nil: the system's

	mu      sync.Mutex
	entries map[Key]*entry
}

// An entry is the current generation of a key. What its slices hold is never written to.
type entry struct {
	ticket  Ticket
	token   string // empty: never taken. It outlives the end of its generation (AMB-050).
	receipt Receipt
}

// NewLocalDesk returns an empty desk.
func NewLocalDesk(opts ...DeskOption) *LocalDesk {
	d := new(LocalDesk)
	for _, o := range opts {
		if o != nil {
			o(d)
		}
	}
	return d
}

// Offer implements [Store].
func (d *LocalDesk) Offer(_ context.Context, t Ticket) (Ticket, error) {
	if err := t.Validate(); err != nil {
		return Ticket{}, err
	}
	payload := bytes.Clone(t.Payload)
	d.mu.Lock()
	defer d.mu.Unlock()
	now, e := d.touch(t.Key)
	if e != nil && e.ticket.State.live() {
		return e.ticket.clone(), nil
	}
	generation := uint64(1)
	if e != nil {
		generation = e.ticket.Generation + 1
	}
	e = &entry{ticket: Ticket{
		Key: t.Key, From: t.From, To: t.To, Payload: payload, ReplyTo: t.ReplyTo, TTL: t.TTL,
		Generation: generation, Deadline: set(now.Add(t.TTL)), State: StateOffered,
	}}
	if d.entries == nil {
		d.entries = make(map[Key]*entry)
	}
	d.entries[t.Key] = e
	return e.ticket.clone(), nil
}

// Take implements [Store].
func (d *LocalDesk) Take(_ context.Context, key Key, to Agent) (Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, e := d.touch(key)
	switch {
	case e == nil:
		return Handle{}, ErrUnknownKey
	case to != e.ticket.To:
		return Handle{}, ErrNotAddressee
	case e.ticket.State == StateExpired:
		return Handle{}, ErrExpired
	case e.ticket.State == StateAccepted:
		return Handle{}, ErrTaken
	case e.ticket.State != StateOffered:
		return Handle{}, ErrAlreadySettled
	}
	e.ticket.State, e.ticket.Holder = StateAccepted, to
	e.token = rand.Text()
	return Handle{Token: e.token, Fence: e.ticket.Generation, Until: e.ticket.Deadline}, nil
}

// Reply implements [Store].
func (d *LocalDesk) Reply(_ context.Context, key Key, token string, r Receipt) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, e := d.touch(key)
	switch {
	case e == nil:
		return ErrUnknownKey
	case e.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(e.token)) == 0:
		return ErrLeaseLost
	case e.ticket.State == StateExpired:
		return ErrExpired
	case e.ticket.State != StateAccepted:
		return ErrAlreadySettled
	}
	if err := r.Validate(); err != nil {
		return err
	}
	e.ticket.State, e.ticket.Holder, e.ticket.ReceiptAt = StateClosed, "", set(now)
	e.receipt = r.clone()
	return nil
}

// Cancel implements [Store].
func (d *LocalDesk) Cancel(_ context.Context, key Key, by Agent) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, e := d.touch(key)
	switch {
	case e == nil:
		return ErrUnknownKey
	case by != e.ticket.From:
		return ErrNotSource
	case e.ticket.State == StateAccepted:
		return ErrTaken
	case e.ticket.State != StateOffered:
		return ErrAlreadySettled
	}
	e.ticket.State = StateWithdrawn
	return nil
}

// Snapshot implements [Store]. The tickets are sorted by key. Their states are returned
// as they are stored: one that is overdue and that no operation has touched since still
// shows as offered or accepted, and [Check] reports it (AMB-048).
func (d *LocalDesk) Snapshot(context.Context) ([]Ticket, error) {
	d.mu.Lock()
	tickets := make([]Ticket, 0, len(d.entries))
	for _, e := range d.entries {
		tickets = append(tickets, e.ticket)
	}
	d.mu.Unlock()
	for i := range tickets {
		tickets[i] = tickets[i].clone()
	}
	slices.SortFunc(tickets, func(a, b Ticket) int { return cmp.Compare(a.Key, b.Key) })
	return tickets, nil
}

// Receipt returns the receipt of a key's current generation and the address that it is
// for, for whoever delivers it. It reports false if there is none.
func (d *LocalDesk) Receipt(key Key) (r Receipt, replyTo string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[key]
	if e == nil || e.ticket.State != StateClosed {
		return Receipt{}, "", false
	}
	return e.receipt.clone(), e.ticket.ReplyTo, true
}

// touch returns the time and the entry of a key, or nil, and marks it expired if its
// deadline has come.
func (d *LocalDesk) touch(key Key) (now time.Time, e *entry) {
	now = time.Now()
	if d.clock != nil {
		now = d.clock()
	}
	e = d.entries[key]
	if e != nil && e.ticket.State.live() && e.ticket.overdue(now) {
		e.ticket.State, e.ticket.Holder = StateExpired, ""
	}
	return now, e
}

// set returns t, and the next instant in place of the zero time, which means none: a clock
// far in the past must make no ticket that never expires.
func set(t time.Time) time.Time {
	if t.IsZero() {
		return t.Add(1)
	}
	return t
}

func (t Ticket) clone() Ticket {
	t.Payload = bytes.Clone(t.Payload)
	return t
}

func (r Receipt) clone() Receipt {
	r.Artifacts = slices.Clone(r.Artifacts)
	return r
}

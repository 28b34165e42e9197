package handofftest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit/handoff"
	"github.com/orbitkit/orbit/handoff/handofftest"
)

// A toy is a store that is written apart from the real ones, sound by itself, and broken
// in one way by its fault.
type toy struct {
	fault string
	hang  chan struct{} // what hangs waits for it

	entered atomic.Int64

	mu    sync.Mutex
	now   time.Time
	mints int
	rows  map[handoff.Key]*row
}

type row struct {
	handoff.Ticket
	token, before string // of this generation and of the one before
	receipt       handoff.Receipt
}

func newToy(fault string) *toy {
	return &toy{fault: fault, now: time.Unix(1_700_000_000, 999_999_000), rows: make(map[handoff.Key]*row)}
}

func open(fault string) handofftest.Open {
	return func(context.Context) (handofftest.Host, error) { return newToy(fault).host(), nil }
}

func (t *toy) host() handofftest.Host {
	return handofftest.Host{
		Store:   t,
		Advance: t.advance,
		Reopen:  t.reopen,
		Receipt: t.receiptOf,
	}
}

func (t *toy) is(fault string) bool { return t.fault == fault }

// pause lets another in, if there is one, where the fault tears the atomic step apart.
func (t *toy) pause() {
	before := t.entered.Load()
	t.mu.Unlock()
	for i := 0; i < 300 && t.entered.Load() == before; i++ {
		runtime.Gosched()
	}
	t.mu.Lock()
}

// enter begins an operation. It returns what ends it.
func (t *toy) enter() (leave func()) {
	t.mu.Lock()
	t.entered.Add(1)
	return t.mu.Unlock
}

func (t *toy) advance(_ context.Context, d time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = t.now.Add(d)
	return nil
}

func (t *toy) reopen(context.Context) (handoff.Store, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, r := range t.rows {
		switch {
		case t.is("a restart forgets what has ended") && r.State == handoff.StateWithdrawn:
			delete(t.rows, key)
		case t.is("a restart frees what was taken") && r.State == handoff.StateAccepted:
			r.State, r.Holder = handoff.StateOffered, ""
		case t.is("a restart forgets tokens"):
			r.token = ""
		}
	}
	return t, nil
}

func (t *toy) receiptOf(_ context.Context, key handoff.Key) (handoff.Receipt, string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[t.key(key)]
	receipt := r.receipt
	if !t.is("artifacts are shared") {
		receipt.Artifacts = slices.Clone(receipt.Artifacts)
	}
	switch {
	case t.is("the receipt goes to the source"):
		return receipt, string(r.From), nil
	case t.is("artifacts are lost"):
		receipt.Artifacts = nil
		return receipt, r.ReplyTo, nil
	case t.is("artifacts are joined"):
		receipt.Artifacts = strings.Split(strings.Join(receipt.Artifacts, ","), ",")
		return receipt, r.ReplyTo, nil
	default:
		return receipt, r.ReplyTo, nil
	}
}

// key, agent and text are what the store makes of what it is given.
func (t *toy) key(k handoff.Key) handoff.Key {
	switch {
	case t.is("keys without case"):
		return handoff.Key(strings.ToLower(string(k)))
	case t.is("keys without trailing blanks"):
		return handoff.Key(strings.TrimRight(string(k), " "))
	case t.is("keys are cut") && len(k) > 255:
		return k[:255]
	case t.is("keys are mended"):
		return handoff.Key(strings.ToValidUTF8(string(k), "\ufffd"))
	}
	return k
}

func (t *toy) same(a, b handoff.Agent) bool {
	return a == b || t.is("identities without case") && strings.EqualFold(string(a), string(b))
}

func (t *toy) payload(p []byte) []byte {
	switch {
	case t.is("payloads are text"):
		return []byte(strings.ToValidUTF8(string(p), "?"))
	case t.is("payloads are cut"):
		return slices.Clone(p[:min(len(p), 1<<16-1)])
	case t.is("payloads are shared"):
		return p
	}
	return slices.Clone(p)
}

func (t *toy) expired(r *row) bool {
	now := t.now
	if t.is("the deadline itself is in time") {
		now = now.Add(-1)
	}
	if t.is("milliseconds") {
		now = now.Truncate(time.Millisecond)
	}
	live := r.State == handoff.StateOffered || r.State == handoff.StateAccepted
	return r.State == handoff.StateExpired || live && !now.Before(r.Deadline)
}

// touch marks a row whose time is over.
func (t *toy) touch(r *row) bool {
	if !t.expired(r) {
		return false
	}
	r.State = handoff.StateExpired
	if !t.is("an expired ticket keeps its holder") {
		r.Holder = ""
	}
	return true
}

func (t *toy) Offer(_ context.Context, o handoff.Ticket) (handoff.Ticket, error) {
	if err := t.valid(o); err != nil {
		return handoff.Ticket{}, err
	}
	defer t.enter()()
	o.Key = t.key(o.Key)
	r := t.rows[o.Key]
	if t.is("Offer asks first") {
		t.pause()
	}
	if r != nil && t.underWay(r) {
		return t.replay(r, o)
	}
	next := &row{Ticket: o}
	next.Generation, next.State, next.Holder, next.ReceiptAt, next.Payload = 1, handoff.StateOffered, "", time.Time{}, t.payload(o.Payload)
	if r != nil && !t.is("generations begin anew") {
		next.Generation, next.before = r.Generation+1, r.token
	}
	if t.is("the generation is the caller's") && o.Generation > 0 {
		next.Generation = o.Generation
	}
	switch {
	case t.is("the deadline is the caller's") && !o.Deadline.IsZero():
	case t.is("the clock is the system's"):
		next.Deadline = time.Now().Add(o.TTL)
	default:
		next.Deadline = t.now.Add(o.TTL)
	}
	if t.is("addresses are trimmed") {
		next.ReplyTo = strings.TrimSpace(o.ReplyTo)
	}
	t.rows[o.Key] = next
	return t.out(next), nil
}

func (t *toy) valid(o handoff.Ticket) error {
	err := o.Validate()
	var invalid *handoff.InvalidError
	if errors.As(err, &invalid) && (t.is("needs no address") && invalid.Field == "Ticket.ReplyTo" || t.is("needs no time limit") && invalid.Field == "Ticket.TTL") {
		return nil
	}
	if err != nil && t.is("invalid tickets are refused in its own words") {
		return errors.New("invalid")
	}
	return err
}

// underWay reports whether the row is to be replayed.
func (t *toy) underWay(r *row) bool {
	switch {
	case t.is("the overdue is replayed") && r.State == handoff.StateOffered:
		return true
	case t.is("every Offer is a new generation"):
		return false
	case t.is("closed is closed for ever") && r.State == handoff.StateClosed:
		return true
	}
	return !t.touch(r) && (r.State == handoff.StateOffered || r.State == handoff.StateAccepted)
}

func (t *toy) replay(r *row, o handoff.Ticket) (handoff.Ticket, error) {
	switch {
	case t.is("a replay changes the payload"):
		r.Payload = t.payload(o.Payload)
	case t.is("a replay renews the deadline"):
		r.Deadline = t.now.Add(r.TTL)
	case t.is("a replay of other content is an error") && string(o.Payload) != string(r.Payload):
		return handoff.Ticket{}, handoff.ErrAlreadySettled
	case t.is("a replay answers what it was given"):
		o.Generation, o.Deadline, o.State, o.Holder, o.ReceiptAt = r.Generation, r.Deadline, r.State, r.Holder, r.ReceiptAt
		return o, nil
	}
	return t.out(r), nil
}

func (t *toy) out(r *row) handoff.Ticket {
	h := r.Ticket
	h.Payload = t.payload(r.Payload)
	return h
}

func (t *toy) Take(_ context.Context, key handoff.Key, to handoff.Agent) (handoff.Handle, error) {
	if !t.mu.TryLock() {
		if t.is("who loses the lock meets a fault") {
			return handoff.Handle{}, errors.New("locked")
		}
		t.mu.Lock()
	}
	defer t.mu.Unlock()
	if t.is("who loses the lock meets a fault") {
		runtime.Gosched()
	}
	t.entered.Add(1)
	r := t.rows[t.key(key)]
	if r == nil {
		return handoff.Handle{}, t.unknown()
	}
	err := t.mayTake(r, to)
	if t.is("Take asks first") {
		t.pause()
	}
	if err != nil {
		if t.is("who loses waits for ever") && errors.Is(err, handoff.ErrTaken) {
			t.mu.Unlock()
			<-t.hang
			t.mu.Lock()
		}
		return handoff.Handle{}, err
	}
	if t.is("Take renews the deadline") {
		r.Deadline = t.now.Add(r.TTL)
	}
	r.State, r.Holder, r.token = handoff.StateAccepted, to, t.mint(r)
	h := handoff.Handle{Token: r.token, Fence: r.Generation, Until: r.Deadline}
	if t.is("the fence is no generation") {
		h.Fence = uint64(t.mints)
	}
	return h, nil
}

func (t *toy) mint(r *row) string {
	t.mints++
	if t.is("the token is the key") {
		return "token of " + string(r.Key)
	}
	return fmt.Sprintf("Token-%d", t.mints)
}

func (t *toy) unknown() error {
	if t.is("the unknown is expired") {
		return handoff.ErrExpired
	}
	return handoff.ErrUnknownKey
}

func (t *toy) mayTake(r *row, to handoff.Agent) error {
	foreign := !t.same(to, r.To) && !t.is("anybody may take")
	if foreign && !t.is("the state counts before the taker") {
		return handoff.ErrNotAddressee
	}
	switch over := t.touch(r); {
	case over && t.is("the late taker meets a taken ticket"):
		return handoff.ErrTaken
	case over:
		return handoff.ErrExpired
	case t.is("nobody can take"):
		return handoff.ErrTaken
	case r.State == handoff.StateAccepted && t.is("who loses has expired"):
		return handoff.ErrExpired
	case r.State == handoff.StateAccepted && t.is("refusals of its own"):
		return errors.New("taken")
	case r.State == handoff.StateAccepted && t.is("refusals are wrapped"):
		return fmt.Errorf("take: %w", handoff.ErrTaken)
	case r.State == handoff.StateAccepted && t.is("refusals are several"):
		return errors.Join(handoff.ErrTaken, handoff.ErrExpired)
	case r.State == handoff.StateAccepted:
		return handoff.ErrTaken
	case r.State != handoff.StateOffered && !(t.is("the withdrawn can be taken") && r.State == handoff.StateWithdrawn):
		return handoff.ErrAlreadySettled
	case foreign:
		return handoff.ErrNotAddressee
	}
	return nil
}

func (t *toy) Reply(_ context.Context, key handoff.Key, token string, receipt handoff.Receipt) error {
	defer t.enter()()
	r := t.rows[t.key(key)]
	if r == nil {
		return t.unknown()
	}
	if t.is("the receipt counts before the token") && receipt.Validate() != nil {
		return receipt.Validate()
	}
	if !t.holds(r, token) {
		return handoff.ErrLeaseLost
	}
	err := t.mayReply(r, receipt)
	if t.is("Reply asks first") {
		t.pause()
	}
	if t.is("Reply closes what is there meanwhile") {
		for i := 0; i < 300 && t.rows[t.key(key)] == r; i++ {
			t.mu.Unlock()
			runtime.Gosched()
			t.mu.Lock()
		}
		r = t.rows[t.key(key)]
	}
	if t.is("a bad receipt closes") && receipt.Validate() != nil {
		err, receipt = nil, handoff.Receipt{Status: handoff.ReceiptFailed, Failure: "bad receipt"}
	}
	if err != nil {
		return err
	}
	if !t.is("a closed ticket keeps its holder") {
		r.Holder = ""
	}
	if !t.is("receipts have no time") {
		r.ReceiptAt = t.now
	}
	if !t.is("artifacts are shared") {
		receipt.Artifacts = slices.Clone(receipt.Artifacts)
	}
	r.State, r.receipt = handoff.StateClosed, receipt
	if t.is("the end forgets the token") {
		r.token = ""
	}
	return nil
}

func (t *toy) holds(r *row, token string) bool {
	switch {
	case t.is("any token replies"):
		return r.token != ""
	case t.is("no token is a token"):
		return token == r.token
	case t.is("tokens without case"):
		return r.token != "" && strings.EqualFold(token, r.token)
	case t.is("tokens without blanks"):
		return r.token != "" && strings.TrimSpace(token) == r.token
	case t.is("the token before works") && r.before != "" && token == r.before:
		return r.State == handoff.StateAccepted
	}
	return r.token != "" && token == r.token
}

func (t *toy) mayReply(r *row, receipt handoff.Receipt) error {
	late := t.touchUnless(r, t.is("late replies are taken"))
	switch {
	case late && t.is("the late reply has lost its lease"):
		return handoff.ErrLeaseLost
	case late:
		return handoff.ErrExpired
	case r.State == handoff.StateClosed && t.is("a second reply succeeds"):
		return nil
	case r.State == handoff.StateClosed:
		return handoff.ErrAlreadySettled
	case t.is("any receipt will do"):
		return nil
	}
	return receipt.Validate()
}

func (t *toy) touchUnless(r *row, not bool) bool { return !not && t.touch(r) }

func (t *toy) Cancel(_ context.Context, key handoff.Key, by handoff.Agent) error {
	defer t.enter()()
	r := t.rows[t.key(key)]
	if r == nil {
		return t.unknown()
	}
	if by != r.From && !t.is("anybody may cancel") {
		return handoff.ErrNotSource
	}
	err := t.mayCancel(r)
	if t.is("Cancel asks first") {
		t.pause()
	}
	if err == nil {
		r.State, r.Holder = handoff.StateWithdrawn, ""
	}
	return err
}

func (t *toy) mayCancel(r *row) error {
	over := t.touch(r)
	taken := r.State == handoff.StateAccepted
	switch {
	case over && t.is("canceling the expired is expired"):
		return handoff.ErrExpired
	case taken && t.is("the taken can be canceled"):
		return nil
	case taken:
		return handoff.ErrTaken
	case r.State == handoff.StateWithdrawn && t.is("a second cancel succeeds"):
		return nil
	case r.State != handoff.StateOffered:
		return handoff.ErrAlreadySettled
	}
	return nil
}

func (t *toy) Snapshot(context.Context) ([]handoff.Ticket, error) {
	defer t.enter()()
	var tickets []handoff.Ticket
	keys := make([]handoff.Key, 0, len(t.rows))
	for key := range t.rows {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if t.is("the snapshot is torn") {
			t.pause()
		}
		r := t.rows[key]
		if t.is("the snapshot hides the overdue") && t.expired(r) {
			continue
		}
		if t.is("expiry is written by the snapshot") {
			t.touch(r)
		}
		tickets = append(tickets, t.out(r))
	}
	return tickets, nil
}

package accept

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// Bounds of one transaction (LIC-014).
const (
	maxMembers = 100
	maxBytes   = 4 << 20
)

// maxWaiting bounds what waits for its transaction, in bytes, those included whose sender
// has gone.
const maxWaiting = 128 << 20

// Config tunes a Committer. The zero value is ready to use.
type Config struct {
	// Wake is called after a commit, on a goroutine of the committer, with the lanes that
	// got READY tasks and with the timer's lane if it got delayed ones. It must not
	// block. Default: nobody is told.
	Wake func(lanes []int64)
	// Committed is called after each commit that accepted tasks, with their number. It
	// must not block. Default: nobody is told.
	Committed func(tasks int)
	// Modes is what the node remembers of limits. Default: the committer remembers alone.
	Modes *quota.Modes
	// Alone accepts each item in a transaction of its own, on the goroutine that submits
	// it: it shows what grouping gives. Default: items share transactions.
	Alone bool
	// Timeout bounds how long the members of one transaction wait for the database
	// before their acceptance is reported as unknown. Default 20s.
	Timeout time.Duration
	// Log gets what is swallowed. Default: nothing is logged.
	Log *slog.Logger
}

// A Committer accepts the submits of one node. Submit works while Run does.
type Committer struct {
	db   *sqldb.DB
	cfg  Config
	keys *keyBook

	repeats atomic.Int64 // for how many transactions more some are expected

	nudge   chan struct{}
	mu      sync.Mutex
	waiting []*member                     // in order of arrival
	bytes   int                           // of them
	running int                           // transactions
	busy    map[idempotency.Identity]bool // in those transactions
	stopped bool
}

// New returns a committer that writes to db.
func New(db *sqldb.DB, cfg Config) *Committer {
	if cfg.Wake == nil {
		cfg.Wake = func([]int64) {}
	}
	if cfg.Committed == nil {
		cfg.Committed = func(int) {}
	}
	if cfg.Modes == nil {
		cfg.Modes = &quota.Modes{}
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 20 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Committer{
		db: db, cfg: cfg, keys: newKeyBook(db),
		nudge: make(chan struct{}, 1), busy: make(map[idempotency.Identity]bool),
	}
}

// A group is the items of one Submit.
type group struct {
	ctx      context.Context
	outcomes []Outcome
	left     atomic.Int64
	shown    atomic.Int64 // bytes of payloads of earlier submits in the outcomes
	done     chan struct{}
}

// A member is one item on its way through a transaction.
type member struct {
	Item
	id      sqldb.ID // of the task that it may become
	digest  idempotency.Identity
	group   *group
	index   int
	over    bool  // it has its outcome
	unshown bool  // its receipt is too long to be shown beside the others
	draft   draft // made anew by each run of the transaction
}

// size is at most how many bytes of statement the member costs: each byte of the payload
// may have to be escaped.
func (m *member) size() int { return 2*len(m.Submission.Request.Payload) + 4096 }

// settle gives the member its outcome. The last one of a group releases the caller.
func (m *member) settle(o Outcome) {
	m.over = true
	m.group.outcomes[m.index] = o
	if m.group.left.Add(-1) == 0 {
		close(m.group.done)
	}
}

func (m *member) fail(err error) {
	m.settle(Outcome{Err: fmt.Errorf("%w: %w", ErrUnavailable, err)})
}

// Submit accepts items and returns their outcomes in order. They are independent of each
// other; equal keys are handled in their order. It blocks until each has its answer; when
// ctx ends before that, every outcome wraps ErrUnavailable. The caller bounds how much it
// hands in at a time.
func (c *Committer) Submit(ctx context.Context, items []Item) []Outcome {
	g := &group{ctx: ctx, outcomes: make([]Outcome, len(items)), done: make(chan struct{})}
	g.left.Store(int64(len(items)))
	if len(items) == 0 {
		return nil
	}
	members := membersOf(g, items)
	if c.cfg.Alone {
		return c.submitAlone(g, members)
	}
	if err := c.enqueue(members); err != nil {
		return unavailable(len(items), err)
	}
	select {
	case <-g.done:
		return g.outcomes
	case <-ctx.Done():
		return unavailable(len(items), ctx.Err())
	}
}

func unavailable(n int, cause error) []Outcome {
	outcomes := make([]Outcome, n)
	for i := range outcomes {
		outcomes[i].Err = fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	return outcomes
}

var (
	errStopped  = errors.New("the server is stopping")
	errTooMuch  = errors.New("too much waits to be accepted")
	errPanicked = errors.New("acceptance panicked")
)

func membersOf(g *group, items []Item) []*member {
	members := make([]*member, len(items))
	for i, item := range items {
		members[i] = &member{Item: item, digest: item.identity(), group: g, index: i}
	}
	return members
}

// submitAlone commits members one by one. Like a member of a larger transaction, one that
// was begun is finished whether its sender waits or not.
func (c *Committer) submitAlone(g *group, members []*member) []Outcome {
	for _, m := range members {
		m.id = sqldb.NewID()
		if err := g.ctx.Err(); err != nil {
			m.fail(err)
			continue
		}
		c.commit(context.WithoutCancel(g.ctx), []*member{m})
	}
	return g.outcomes
}

func (c *Committer) enqueue(members []*member) error {
	bytes := 0
	for _, m := range members {
		bytes += m.size()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return errStopped
	case c.bytes+bytes > maxWaiting:
		return errTooMuch
	}
	for _, m := range members {
		m.id = sqldb.NewID() // under the lock: ids ascend in order of arrival
	}
	c.waiting = append(c.waiting, members...)
	c.bytes += bytes
	c.wakeUp()
	return nil
}

// wakeUp makes Run look again.
func (c *Committer) wakeUp() {
	select {
	case c.nudge <- struct{}{}:
	default:
	}
}

// commit settles every member of batch.
func (c *Committer) commit(ctx context.Context, batch []*member) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	left, err := c.guarded(ctx, batch)
	if len(left) > 1 && c.poisoned(err) {
		// One of them breaks the transaction. The others must not suffer for it.
		for _, m := range left {
			c.commitAlone(ctx, m)
		}
		return
	}
	for _, m := range left {
		m.fail(err)
	}
}

func (c *Committer) commitAlone(ctx context.Context, m *member) {
	if left, err := c.guarded(ctx, []*member{m}); len(left) > 0 {
		m.fail(err)
	}
}

// poisoned reports whether err may be due to one member: it is the engine's word on the
// statements themselves, or a panic. A broken connection or an overloaded database is no
// reason to try a hundred times.
func (c *Committer) poisoned(err error) bool {
	d := c.db.Dialect()
	return errors.Is(err, errPanicked) || d.Refused(err) && !d.Transient(err)
}

// guarded is accept, but for a panic: a member that causes one, and is sent again and
// again, must not take the node down.
func (c *Committer) guarded(ctx context.Context, members []*member) (left []*member, err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		c.cfg.Log.ErrorContext(ctx, "acceptance panicked", "cause", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
		left, err = slices.DeleteFunc(members, func(m *member) bool { return m.over }), errPanicked
	}()
	return c.accept(ctx, members)
}

// maxRounds bounds how often a transaction is begun anew because it met an identity that
// another node had written, or because its commit is unknown.
const maxRounds = 8

// accept settles members; those that it could not settle it returns with the reason.
func (c *Committer) accept(ctx context.Context, members []*member) ([]*member, error) {
	var err error
	reader, look := c.db.Read(), c.lookFirst(members)
	for range maxRounds {
		if look {
			if members, err = c.replay(ctx, reader, members); err != nil || len(members) == 0 {
				return members, err
			}
		}
		if members = dropConflicts(members); len(members) == 0 {
			return nil, nil
		}
		if err = c.keys.ensure(ctx, members); err != nil {
			return members, err
		}
		err = c.db.Tx(ctx, func(tx *sqldb.Tx) error { return write(ctx, tx, c.cfg.Modes, members) })
		switch {
		case err == nil, errors.Is(err, errAllRefused):
			c.conclude(members)
			return nil, nil
		case errors.Is(err, sqldb.ErrUnknownCommit), c.db.Dialect().Duplicate(err):
			reader, look = c.db.Write(), true // the primary, whatever the read pool is
			c.repeats.Store(repeatsExpected)
		default:
			return members, err
		}
	}
	return members, fmt.Errorf("identity not found after %d rounds: %w", maxRounds, err)
}

// repeatsExpected is for how many transactions more repeats are expected after one was met:
// they come in crowds, when senders have lost answers.
const repeatsExpected = 32

// lookFirst reports whether identities are to be looked up before the transaction. The
// insert finds repeats as well, at the price of a transaction in vain; where all is new,
// which is the usual, the look-up would be in vain. A retry that is to be refused must
// not get so far.
func (c *Committer) lookFirst(members []*member) bool {
	expected := c.repeats.Load() > 0 && c.repeats.Add(-1) >= 0
	return expected || slices.ContainsFunc(members, func(m *member) bool { return m.Retry != nil })
}

// dropConflicts settles the members that their sender has found to be refused, and returns
// the others.
func dropConflicts(members []*member) []*member {
	return slices.DeleteFunc(slices.Clone(members), func(m *member) bool {
		refused := m.Retry != nil && m.Retry.Refused != nil
		if refused {
			m.settle(Outcome{Err: m.Retry.Refused})
		}
		return refused
	})
}

// conclude settles the members of a transaction that is in force.
func (c *Committer) conclude(members []*member) {
	var lanes []int64
	accepted := 0
	for _, m := range members {
		if m.draft.refused != nil {
			continue
		}
		lanes = m.draft.appendLane(lanes)
		accepted++
	}
	if accepted > 0 {
		c.cfg.Committed(accepted)
	}
	c.wake(lanes)
	for _, m := range members {
		if m.draft.refused != nil {
			m.settle(Outcome{Err: m.draft.refused})
			continue
		}
		m.settle(Outcome{Task: m.id, Receipt: m.draft.receipt(&m.Item)})
	}
}

func (c *Committer) wake(lanes []int64) {
	if len(lanes) > 0 {
		c.cfg.Wake(lanes)
	}
}

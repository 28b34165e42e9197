package accept

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Bounds of one transaction (LIC-014).
const (
	maxMembers = 100
	maxBytes   = 4 << 20
)

// Config tunes a Committer. The zero value is ready to use.
type Config struct {
	// Wake is called after a commit, on the committer's goroutine, with the lanes that
	// got READY tasks and with the timer's lane if it got delayed ones. It must not
	// block. Default: nobody is told.
	Wake func(lanes []int64)
	// Timeout bounds how long the members of one transaction wait for the database
	// before their acceptance is reported as unknown. Default 20s.
	Timeout time.Duration
}

// A Committer accepts the submits of one node. Submit works while Run does.
type Committer struct {
	db   *sqldb.DB
	cfg  Config
	keys *keyBook

	nudge   chan struct{}
	mu      sync.Mutex
	waiting []*member // in order of arrival
	stopped bool
}

// New returns a committer that writes to db.
func New(db *sqldb.DB, cfg Config) *Committer {
	if cfg.Wake == nil {
		cfg.Wake = func([]int64) {}
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 20 * time.Second
	}
	return &Committer{db: db, cfg: cfg, keys: newKeyBook(db), nudge: make(chan struct{}, 1)}
}

// A group is the items of one Submit.
type group struct {
	ctx      context.Context
	outcomes []Outcome
	left     atomic.Int64
	done     chan struct{}
}

// A member is one item on its way through a transaction.
type member struct {
	Item
	id     sqldb.ID // of the task that it may become
	digest [32]byte // of its identity
	group  *group
	index  int
	draft  draft // made anew by each run of the transaction
}

// size is about how many bytes of statement the member costs.
func (m *member) size() int { return len(m.Submission.Request.Payload) + 4096 }

// settle gives the member its outcome. The last one of a group releases the caller.
func (m *member) settle(o Outcome) {
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
	if !c.enqueue(g, items) {
		return unavailable(len(items), errors.New("the server is stopping"))
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

func (c *Committer) enqueue(g *group, items []Item) bool {
	members := make([]*member, len(items))
	for i, item := range items {
		members[i] = &member{Item: item, digest: identity(item.Namespace, item.Key), group: g, index: i}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	for _, m := range members {
		m.id = sqldb.NewID() // under the lock: ids ascend in order of arrival
	}
	c.waiting = append(c.waiting, members...)
	select {
	case c.nudge <- struct{}{}:
	default:
	}
	return true
}

// Run commits until ctx is canceled, then finishes what waits and returns nil. It is
// called once.
func (c *Committer) Run(ctx context.Context) error {
	for {
		if batch := c.take(); len(batch) > 0 {
			c.commit(context.WithoutCancel(ctx), batch)
			continue
		}
		if c.ended(ctx) {
			return nil
		}
		select {
		case <-c.nudge:
		case <-ctx.Done():
		}
	}
}

// ended closes the committer once ctx is done and nothing waits.
func (c *Committer) ended(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil || len(c.waiting) > 0 {
		return false
	}
	c.stopped = true
	return true
}

// take removes the members of the next transaction from the queue. A member whose
// identity is in the transaction already stays behind: it will find the first one's
// receipt. Those whose sender has gone are dropped.
func (c *Committer) take() (batch []*member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	identities := map[[32]byte]bool{}
	bytes := 0
	behind := c.waiting[:0]
	for _, m := range c.waiting {
		full := len(batch) == maxMembers || len(batch) > 0 && bytes+m.size() > maxBytes
		switch {
		case m.group.ctx.Err() != nil:
			m.fail(m.group.ctx.Err())
		case full || identities[m.digest]:
			behind = append(behind, m)
			identities[m.digest] = true // nothing overtakes it
		default:
			batch = append(batch, m)
			bytes += m.size()
			identities[m.digest] = true
		}
	}
	clear(c.waiting[len(behind):])
	c.waiting = behind
	return batch
}

// commit settles every member of batch.
func (c *Committer) commit(ctx context.Context, batch []*member) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	left, err := c.accept(ctx, batch)
	if len(left) > 1 && c.refused(err) {
		// One of them breaks the transaction. The others must not suffer for it.
		for _, m := range left {
			if _, err := c.accept(ctx, []*member{m}); err != nil {
				m.fail(err)
			}
		}
		return
	}
	for _, m := range left {
		m.fail(err)
	}
}

// refused reports whether err is the engine's word on the statements themselves. A
// broken connection or an overloaded database is no reason to try a hundred times.
func (c *Committer) refused(err error) bool {
	d := c.db.Dialect()
	return d.Refused(err) && !d.Transient(err)
}

// maxRounds bounds how often a transaction is begun anew because it met an identity that
// another node had written, or because its commit is unknown.
const maxRounds = 8

// accept settles members; those that it could not settle it returns with the reason.
func (c *Committer) accept(ctx context.Context, members []*member) ([]*member, error) {
	var err error
	reader := c.db.Read()
	for range maxRounds {
		if members, err = c.replay(ctx, reader, members); err != nil || len(members) == 0 {
			return members, err
		}
		if err = c.keys.ensure(ctx, members); err != nil {
			return members, err
		}
		err = c.db.Tx(ctx, func(tx *sqldb.Tx) error { return write(ctx, tx, members) })
		switch {
		case err == nil:
			c.conclude(members)
			return nil, nil
		case errors.Is(err, sqldb.ErrUnknownCommit), c.db.Dialect().Duplicate(err):
			reader = c.db.Write() // the primary, whatever the read pool is
		default:
			return members, err
		}
	}
	return members, fmt.Errorf("identity not found after %d rounds: %w", maxRounds, err)
}

// conclude settles the members of a transaction that is in force.
func (c *Committer) conclude(members []*member) {
	var lanes []int64
	for _, m := range members {
		if m.draft.refused != nil {
			continue
		}
		lanes = m.draft.appendLane(lanes)
	}
	c.wake(lanes)
	for _, m := range members {
		if m.draft.refused != nil {
			m.settle(Outcome{Err: m.draft.refused})
			continue
		}
		m.settle(Outcome{Receipt: m.draft.receipt(&m.Item)})
	}
}

func (c *Committer) wake(lanes []int64) {
	if len(lanes) > 0 {
		c.cfg.Wake(lanes)
	}
}

package accept

import (
	"context"
	"sync"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// maxTransactions is how many full transactions a node runs at one time.
const maxTransactions = 4

// Run commits until ctx is canceled, then finishes what waits and returns nil. It is
// called once.
func (c *Committer) Run(ctx context.Context) error {
	var commits sync.WaitGroup
	defer commits.Wait()
	canceled := ctx.Done()
	for {
		if batch := c.take(); len(batch) > 0 {
			commits.Go(func() {
				defer c.finish(batch)
				c.commit(context.WithoutCancel(ctx), batch)
			})
			continue
		}
		if c.ended(ctx) {
			return nil
		}
		select {
		case <-c.nudge:
		case <-canceled:
			canceled = nil // what is under way is waited for
		}
	}
}

// ended closes the committer once ctx is done and nothing waits or runs.
func (c *Committer) ended(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil || len(c.waiting) > 0 || c.running > 0 {
		return false
	}
	c.stopped = true
	return true
}

// take removes the members of the next transaction from the queue, if one may begin: the
// first at once, a further one only if it is full. So submits gather while a transaction
// runs, and batches do not wait for each other.
func (c *Committer) take() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running > 0 && (c.running >= c.most() || len(c.waiting) < maxMembers && c.bytes < maxBytes) {
		return nil
	}
	c.drop()
	batch, behind, full := c.pick()
	if len(batch) == 0 || c.running > 0 && !full {
		return nil
	}
	clear(c.waiting[copy(c.waiting, behind):])
	c.waiting = c.waiting[:len(behind)]
	c.running++
	for _, m := range batch {
		c.bytes -= m.size()
		c.busy[m.digest] = true
	}
	return batch
}

// most is how many transactions may run: SQLite has one writer.
func (c *Committer) most() int {
	if c.db.Dialect() == sqldb.SQLite {
		return 1
	}
	return maxTransactions
}

// drop settles the members whose sender has gone.
func (c *Committer) drop() {
	left := c.waiting[:0]
	for _, m := range c.waiting {
		if err := m.group.ctx.Err(); err != nil {
			m.fail(err)
			c.bytes -= m.size()
			continue
		}
		left = append(left, m)
	}
	clear(c.waiting[len(left):])
	c.waiting = left
}

// pick chooses the members of a transaction and reports whether it is full. A member whose
// identity is in it or in a running one stays behind: it will find the first one's
// receipt. Nothing overtakes such a member that has its identity.
func (c *Committer) pick() (batch, behind []*member, full bool) {
	identities := map[idempotency.Identity]bool{}
	bytes := 0
	for _, m := range c.waiting {
		full = full || len(batch) == maxMembers || len(batch) > 0 && bytes+m.size() > maxBytes
		if full || identities[m.digest] || c.busy[m.digest] {
			behind = append(behind, m)
		} else {
			batch = append(batch, m)
			bytes += m.size()
		}
		identities[m.digest] = true
	}
	return batch, behind, full || len(batch) == maxMembers
}

// finish ends the part of a transaction in the queue.
func (c *Committer) finish(batch []*member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	for _, m := range batch {
		delete(c.busy, m.digest)
	}
	c.wakeUp()
}

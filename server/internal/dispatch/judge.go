package dispatch

import (
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/keyrow"
)

// judge gives a candidate away, parks it, or leaves it where it is.
func (c *claim) judge(l *laneClaim, x *candidate) {
	if x.availableAt > c.now { // accepted since the time was read
		l.skipped = true
		return
	}
	if !x.claimable(c.now) || !x.fits(l.Lane, l.gate.namespace) {
		return
	}
	var key *settle.Key
	if x.task.Keyed {
		if key = c.keys[x.task.Key]; key == nil {
			c.missed[x.task.Key] = keyrow.Key{Namespace: x.grant.Namespace, Text: x.grant.ConcurrencyKey}
		}
		if key == nil || !c.sameKey(key, x) {
			l.skipped = true
			return
		}
		if !key.Free() || key.Exhausted() {
			c.parked = append(c.parked, x.grant.Task)
			return
		}
	}
	taker := c.takerFor(x)
	switch {
	case taker < 0 || c.slots <= 0:
		l.stop(LaneMore)
	case !l.gate.take():
		l.stop(l.gate.why())
	default:
		c.give(x, taker, l.gate.application, key)
	}
}

// sameKey compares the whole key: two keys with one digest are never taken for one
// (KEY-015).
func (c *claim) sameKey(key *settle.Key, x *candidate) bool {
	if key.Namespace == x.grant.Namespace && string(key.Text) == x.grant.ConcurrencyKey {
		return true
	}
	c.d.log.Error("row of a resource key does not fit its task", "task_id", x.grant.Task.String())
	return false
}

// give makes the attempt and its permit.
func (c *claim) give(x *candidate, taker int, application sqldb.ID, key *settle.Key) {
	g := &x.grant
	g.Taker, g.Attempt = taker, sqldb.NewID()
	if key != nil {
		g.Token, _ = key.Take(g.Task, g.Epoch) // it is free and not exhausted
	}
	c.takers[taker].use(x.lane, x.size)
	c.slots, c.bytes = c.slots-1, c.bytes-x.size
	x.application = application
	c.taken = append(c.taken, x)
}

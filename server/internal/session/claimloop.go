package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

const (
	// claimTimeout bounds one claim. It is not ended by a stop of the node: what it took
	// has to be handed over or back.
	claimTimeout = 10 * time.Second
	longestRest  = 5 * time.Second // after failures of the database
)

// claimLoop feeds the sessions until ctx is canceled. There is one per node.
func (h *Hub) claimLoop(ctx context.Context) {
	rest := time.Duration(0)
	for ctx.Err() == nil {
		o := h.board.order(time.Now())
		if len(o.takers) == 0 {
			waitFor(ctx, h.board.nudge, o.wait)
			continue
		}
		if err := h.claim(context.WithoutCancel(ctx), o); err != nil {
			rest = min(max(2*rest, 50*time.Millisecond), longestRest)
			h.log.ErrorContext(ctx, "claim failed", "err", err, "retry_in", rest)
			waitFor(ctx, nil, rest)
			continue
		}
		rest = 0
	}
}

// claim runs one claim and hands out what it got.
func (h *Hub) claim(ctx context.Context, o order) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	before := time.Now() // a little earlier than the database's clock read: leases end here first
	got, err := h.dispatcher.Claim(ctx, o.lanes, o.takers)
	if err != nil {
		return err
	}
	h.board.learn(o, got, time.Now())
	for _, i := range got.Replaced {
		o.to[i].end(wire.CloseReplaced, "the process connected again")
	}
	for _, i := range got.Barred {
		o.to[i].end(wire.CloseUnauthenticated, "the credential was revoked or has expired")
	}
	if len(got.Grants) > 0 {
		h.polls.found()
	}
	for i := range got.Grants {
		g := &got.Grants[i]
		s := o.to[g.Taker]
		if !h.board.give(s, assignment{grant: g, at: before}, before.Add(g.Lease)) {
			h.handBack(s, g)
		}
	}
	return nil
}

// Reopen tells that a queue, or with the zero queue an application, may dispatch again or
// more than before. What waits of it is looked into at once. It never blocks.
func (h *Hub) Reopen(application, queue sqldb.ID) { h.board.reopen(application, queue) }

// handBack returns a grant that its worker does not get any more, at once.
func (h *Hub) handBack(s *session, g *dispatch.Grant) {
	ref := s.ref(g.Attempt, g.Epoch)
	ref.Hint = g.Hint
	h.returns.add(ref, func(r dispatch.Returned, err error) {
		if err != nil || r.Refusal != nil {
			h.log.Warn("assignment was not handed back: its lease decides", "attempt_id", g.Attempt.String(), "err", err)
		}
	})
}

// waitFor waits for a nudge, for d or for the end of ctx.
func waitFor(ctx context.Context, nudge <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-nudge:
	case <-t.C:
	}
}

// polls is the pace of looking for what was accepted elsewhere: quick after something was
// found, then rarer.
type polls struct {
	least, most time.Duration
	hurry       chan struct{}
}

func (p *polls) found() {
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// pollLoop looks into lanes that nobody has reason to look into, until ctx is canceled.
// It is the last resort: for what another node accepted, and for what a claim passed over
// because somebody held it who then let it go.
func (h *Hub) pollLoop(ctx context.Context) {
	pace, last := h.polls.least, time.Now()
	for ctx.Err() == nil {
		t := time.NewTimer(time.Until(last.Add(pace)))
		select {
		case <-ctx.Done():
		case <-h.polls.hurry:
			pace = h.polls.least
		case <-t.C:
			pace, last = min(2*pace, h.polls.most), time.Now()
			if h.poll(ctx) {
				pace = h.polls.least
			}
		}
		t.Stop()
	}
}

// poll wakes the cold lanes that hold something, and reports whether there are any.
func (h *Hub) poll(ctx context.Context) bool {
	lanes, err := h.lookInto(ctx, h.board.cold())
	if err != nil && ctx.Err() == nil {
		h.log.ErrorContext(ctx, "poll failed", "err", err)
	}
	if len(lanes) > 0 {
		h.board.wake(lanes)
	}
	return len(lanes) > 0
}

const (
	pollLanes  = 500
	pollRows   = 100
	selectPoll = `
SELECT dispatch_lane
FROM task
WHERE dispatch_lane IN %s
LIMIT ?`
)

// lookInto returns which of lanes hold something. What it reads is bounded by their number,
// whatever they hold.
func (h *Hub) lookInto(ctx context.Context, all []int64) ([]int64, error) {
	var found []int64
	for lanes := range slices.Chunk(all, pollLanes) {
		for lanes = slices.Clone(lanes); len(lanes) > 0; {
			some, more, err := h.lookIntoSome(ctx, lanes)
			found = append(found, some...)
			if err != nil {
				return found, fmt.Errorf("look into lanes: %w", err)
			}
			if !more {
				break
			}
			// Deep lanes have filled the answer: what others hold is not known yet.
			lanes = slices.DeleteFunc(lanes, func(id int64) bool { return slices.Contains(some, id) })
		}
	}
	return found, nil
}

// lookIntoSome returns lanes that hold something, and whether there may be more of them.
func (h *Hub) lookIntoSome(ctx context.Context, lanes []int64) (some []int64, more bool, err error) {
	args := make([]any, len(lanes), len(lanes)+1)
	for i, id := range lanes {
		args[i] = id
	}
	rows, err := h.db.Read().QueryContext(ctx, fmt.Sprintf(selectPoll, sqldb.Placeholders(len(lanes))), append(args, pollRows)...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return some, false, err
		}
		some = append(some, id)
	}
	slices.Sort(some)
	return slices.Compact(some), n == pollRows, rows.Err()
}

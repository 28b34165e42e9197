package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

const selectOrder = `
SELECT dispatch_lane, order_value
FROM (SELECT dispatch_lane, order_value, id FROM task WHERE dispatch_lane = ? ORDER BY order_value, id LIMIT ?) l`

// A head is a task at the head of a lane, seen without a lock.
type head struct{ lane, order int64 }

// shareOut tells how many candidates to lock of each lane, so that each application gets
// its part of the batch, the best of its lanes are among them, and few others are locked.
// A lane that has none is left out. It reads without locks: the counts are an estimate.
func (c *claim) shareOut(ctx context.Context, lanes []int64) (map[int64]int, error) {
	if len(lanes) == 1 {
		return map[int64]int{lanes[0]: c.demand(lanes[0])}, nil
	}
	heads, err := c.readHeads(ctx, lanes)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(heads, func(a, b head) int { return cmp.Compare(a.order, b.order) })
	found := make(map[sqldb.ID][]head)
	for _, h := range heads {
		app := c.lanes[h.lane].gate.application
		found[app] = append(found[app], h)
	}
	var wants []int
	apps, lanesOf := c.applications(lanes)
	for _, app := range apps {
		wants = append(wants, min(len(found[app]), c.demandOf(lanesOf[app])))
	}
	share := make(map[int64]int, len(lanes))
	for i, part := range divide(c.slots, wants) {
		for n, h := range found[apps[i]] {
			if n < part {
				share[h.lane]++
			} else {
				share[h.lane] += 0 // it has some, though none of the best
			}
		}
	}
	return share, nil
}

// readHeads reads as much of each lane as its takers take.
func (c *claim) readHeads(ctx context.Context, lanes []int64) (heads []head, err error) {
	var args []any
	for _, id := range lanes {
		args = append(args, id, c.demand(id))
	}
	query := strings.TrimSuffix(strings.Repeat(selectOrder+"\nUNION ALL", len(lanes)), "UNION ALL")
	err = sqldb.EachRow(ctx, c.tx, query, args, func(scan func(...any) error) error {
		var h head
		err := scan(&h.lane, &h.order)
		heads = append(heads, h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read order of lanes: %w", err)
	}
	return heads, nil
}

// applications returns whose lanes they are, in the order of the lanes.
func (c *claim) applications(lanes []int64) (apps []sqldb.ID, of map[sqldb.ID][]int64) {
	of = make(map[sqldb.ID][]int64)
	for _, id := range lanes {
		app := c.lanes[id].gate.application
		if of[app] == nil {
			apps = append(apps, app)
		}
		of[app] = append(of[app], id)
	}
	return apps, of
}

// divide shares n out among those who want some, as evenly as it goes: what one does not
// want goes to the others.
func divide(n int, wants []int) []int {
	order := make([]int, len(wants))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wants[a], wants[b]) })
	parts := make([]int, len(wants))
	for i, who := range order {
		parts[who] = min(wants[who], n/(len(order)-i))
		n -= parts[who]
	}
	return parts
}

// turnCost is what a task counts beside its payload when applications take turns.
const turnCost = 1 << 10

// inTurn puts candidates in the order in which they are judged: those of one application
// as if its lanes were one (REF-PRI-002), and the applications in turn, each when it has
// used no more of the batch than the others.
func (c *claim) inTurn(list []*candidate) []*candidate {
	slices.SortFunc(list, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.order, b.order), bytes.Compare(a.grant.Task[:], b.grant.Task[:]))
	})
	used, turn := make(map[sqldb.ID]int), make(map[*candidate]int, len(list))
	for _, x := range list {
		app := c.lanes[x.lane].gate.application
		turn[x] = used[app]
		used[app] += turnCost + x.size
	}
	if len(used) > 1 {
		slices.SortStableFunc(list, func(a, b *candidate) int { return cmp.Compare(turn[a], turn[b]) })
	}
	return list
}

package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A Lane is a kind of task that workers can take.
type Lane struct {
	Queue   sqldb.ID
	Handler string
	Version string
	Keyed   bool
}

// ID returns the lane's value in the claim index.
func (l Lane) ID() int64 { return task.Lane(l.Queue, l.Handler, l.Version, l.Keyed) }

// A Taker is a worker process that takes tasks now.
type Taker struct {
	Process     sqldb.ID
	Namespace   sqldb.ID
	Credential  sqldb.ID
	ConnectedAt int64   // its session's; 0 if there is none to check
	Lanes       []int64 // what it can take; not changed
	Slots       int     // tasks that it takes now
	Bytes       int     // payload bytes that it takes now
	Groups      []Group // bounds within Slots; none if Slots alone counts
}

// A Group bounds how many tasks of some lanes together a taker takes. A lane may be in
// several: each of them counts.
type Group struct {
	Lanes []int64
	Slots int
}

// A Grant is a task given to a taker: an attempt, leased, and for a keyed task the
// permit that Token stands for. It does not yet allow to execute anything.
type Grant struct {
	Taker int // index in the takers of the claim

	Attempt    sqldb.ID
	Epoch      int64
	Number     int64
	Token      uint64 // zero without a key
	LeaseUntil int64  // by the database's clock
	Lease      time.Duration

	Task            sqldb.ID
	Namespace       sqldb.ID
	Queue           sqldb.ID
	Handler         string
	HandlerVersion  string
	PayloadVersion  string
	Payload         json.RawMessage
	BusinessKey     string
	ConcurrencyKey  string
	Priority        int
	Idempotent      bool
	Deadline        time.Duration // left
	EffectUncertain bool
	RetryOf         sqldb.ID // zero for none
	OperationRoot   sqldb.ID
	Traceparent     string

	Hint Hint // for what is said of the attempt later
}

// Lane returns where the task was found.
func (g *Grant) Lane() Lane {
	return Lane{Queue: g.Queue, Handler: g.Handler, Version: g.HandlerVersion, Keyed: g.ConcurrencyKey != ""}
}

// A LaneEnd says why a claim took no more of a lane.
type LaneEnd int

// Why a claim took no more of a lane.
const (
	LaneEmpty   LaneEnd = iota // nothing claimable is left, as far as can be seen
	LaneMore                   // there may be more: takers, the batch or its application's part of it are full
	LaneSkipped                // others hold what is left: look again soon
	LaneFull                   // the limit of its queue is reached
	LaneAppFull                // the limit of its application is reached
	LaneClosed                 // paused, stopped or disabled: it opens by somebody's decision
)

// Claimed is the result of a claim.
type Claimed struct {
	Grants   []Grant
	Lanes    map[int64]LaneEnd // for each lane of the claim
	Replaced []int             // takers whose process has connected elsewhere; they got nothing
	Barred   []int             // takers whose credential was revoked or has expired; they got nothing
}

const (
	selectClock = `
SELECT 5, NULL, NULL, %s, 0`

	// Its last column tells that the credential counts no more.
	selectSessions = `
SELECT 4, s.process_id, s.namespace_id, s.connected_at, CASE WHEN c.revoked_at IS NOT NULL OR c.expires_at <= %s THEN 1 ELSE 0 END
FROM worker_session s
JOIN credential c ON c.id = s.credential_id
WHERE s.node_id = ? AND (s.namespace_id, s.process_id) IN `
)

// A process names a worker.
type process struct{ namespace, id sqldb.ID }

// turnAway reads the clock and finds the takers whose session is not the newest of their
// process, and those whose credential has been revoked or has expired. None of them gets
// anything. It is one statement, since every claim waits for it.
func (c *claim) turnAway(ctx context.Context) error {
	err := quota.Lock(ctx, c.tx, c.sessionRows(), func(scan func(...any) error) error {
		at, r, err := scanGateRow(scan)
		if err == nil {
			c.sees(at, r)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	c.turnedAway()
	return nil
}

// sessionRows are the clock, and the sessions that takers have with this node.
func (c *claim) sessionRows() []quota.Row {
	clock := c.tx.Dialect().Clock
	rows := []quota.Row{{Select: fmt.Sprintf(selectClock, clock)}}
	c.want = make(map[process]int)
	args := []any{[]byte(c.d.node)}
	for i := range c.takers {
		t := c.takers[i].Taker
		if t.ConnectedAt != 0 {
			c.want[process{t.Namespace, t.Process}] = i
			args = append(args, t.Namespace, t.Process)
		}
	}
	if len(c.want) > 0 {
		rows = append(rows, quota.Row{Select: fmt.Sprintf(selectSessions, clock) + pairs(len(args)/2), Args: args})
	}
	return rows
}

// sees takes one of the rows of sessionRows.
func (c *claim) sees(at rowKey, r gateRow) {
	if at.kind == clockRow {
		c.now = r.number
		return
	}
	p := process{r.namespace, at.id}
	if i, ok := c.want[p]; ok && r.number == c.takers[i].ConnectedAt {
		delete(c.want, p)
		if r.stopped {
			c.barred = append(c.barred, i)
		}
	}
}

// turnedAway has nothing given to takers whose session was not seen, or is barred.
func (c *claim) turnedAway() {
	c.looked = true
	for _, i := range c.want {
		c.replaced = append(c.replaced, i)
	}
	for _, i := range slices.Concat(c.replaced, c.barred) {
		c.takers[i].slots = 0
	}
}

// pairs is a list of n placeholders for two columns each.
func pairs(n int) string {
	return "(" + strings.TrimSuffix(strings.Repeat("(?,?),", n), ",") + ")"
}

// The clock stands in a row of its own, the only one with a time.
const selectBarred = `
SELECT %[2]s, NULL, NULL
UNION ALL
SELECT 0, s.namespace_id, s.process_id
FROM worker_session s
JOIN credential c ON c.id = s.credential_id
JOIN namespace n ON n.id = c.namespace_id
JOIN application a ON a.id = n.application_id
WHERE (s.namespace_id, s.process_id) IN %[1]s
  AND (c.revoked_at IS NOT NULL OR c.expires_at <= %[2]s OR n.state <> 1 OR a.state <> 1)`

// barred reads the clock and the processes among refs whose credential counts no more: what
// has not begun must not begin (ERR-002). It is one statement, since every start waits for it.
func barred(ctx context.Context, tx *sqldb.Tx, refs []Ref) (now int64, ended map[process]bool, err error) {
	asked := make(map[process]bool, len(refs))
	var args []any
	for _, r := range refs {
		if p := (process{r.Namespace, r.Process}); !asked[p] {
			asked[p] = true
			args = append(args, p.namespace, p.id)
		}
	}
	ended = make(map[process]bool)
	query := fmt.Sprintf(selectBarred, pairs(len(args)/2), tx.Dialect().Clock)
	err = sqldb.EachRow(ctx, tx, query, args, func(scan func(...any) error) error {
		var (
			at int64
			p  process
		)
		err := scan(&at, &p.namespace, &p.id)
		if at != 0 {
			now = at
		} else {
			ended[p] = true
		}
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("read credentials of sessions: %w", err)
	}
	return now, ended, nil
}

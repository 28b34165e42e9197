package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
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
}

// A LaneEnd says why a claim took no more of a lane.
type LaneEnd int

// Why a claim took no more of a lane.
const (
	LaneEmpty   LaneEnd = iota // nothing claimable is left, as far as can be seen
	LaneMore                   // there may be more: the takers or the batch are full
	LaneSkipped                // others hold what is left: look again soon
	LaneFull                   // the limit of its queue or application is reached
	LaneClosed                 // paused, stopped or disabled: it opens by somebody's decision
)

// Claimed is the result of a claim.
type Claimed struct {
	Grants   []Grant
	Lanes    map[int64]LaneEnd // for each lane of the claim
	Replaced []int             // takers whose process has connected elsewhere; they got nothing
}

const selectSessions = `
SELECT namespace_id, process_id, node_id, connected_at
FROM worker_session
WHERE (namespace_id, process_id) IN `

// replacedTakers returns the takers whose session is not the newest of their process.
func (d *Dispatcher) replacedTakers(ctx context.Context, tx *sqldb.Tx, takers []Taker) ([]int, error) {
	type process struct{ namespace, id sqldb.ID }
	want := make(map[process]int)
	var args []any
	for i, t := range takers {
		if t.ConnectedAt != 0 {
			want[process{t.Namespace, t.Process}] = i
			args = append(args, t.Namespace, t.Process)
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	query := selectSessions + "(" + strings.TrimSuffix(strings.Repeat("(?,?),", len(args)/2), ",") + ")"
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			p    process
			node string
			at   int64
		)
		if err := rows.Scan(&p.namespace, &p.id, &node, &at); err != nil {
			return nil, fmt.Errorf("read sessions: %w", err)
		}
		if i, ok := want[p]; ok && node == d.node && at == takers[i].ConnectedAt {
			delete(want, p)
		}
	}
	var replaced []int
	for _, i := range want {
		replaced = append(replaced, i)
	}
	return replaced, rows.Err()
}

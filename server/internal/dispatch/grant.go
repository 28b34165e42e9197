package dispatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// committed looks for what the claim wrote. One that gave nothing away may run again.
func (c *claim) committed(ctx context.Context, q sqldb.Querier) (bool, error) {
	if len(c.grants) == 0 {
		return false, nil
	}
	var n int
	err := q.QueryRowContext(ctx, "SELECT COUNT(*) FROM attempt WHERE id = ?", c.grants[0].Attempt).Scan(&n)
	return n > 0, err
}

const parkTasks = `
UPDATE task{by}
SET dispatch_state = 3, dispatch_lane = NULL
WHERE id IN `

const leaseTasks = `
UPDATE task{by}
SET attempt_id = CASE id%s END, state = 2, revision = revision + 1, updated_at = ?, epoch = epoch + 1, attempt_count = attempt_count + 1,
    dispatch_state = 0, dispatch_lane = NULL, expire_at = NULL
WHERE id IN `

// write makes everything true that was decided.
func (c *claim) write(ctx context.Context) error {
	w := c.tx.Writes()
	addUpdate(w, c.tx.Dialect(), "park tasks", parkTasks, nil, c.parked)
	if len(c.taken) == 0 {
		return w.Run(ctx)
	}
	attempts, tokens, events, tasks := c.rows()
	args := make([]any, 0, 2*len(attempts)+1)
	for _, a := range attempts {
		args = append(args, a.Task.Arg(), a.ID.Arg())
	}
	c.keys.AddChanged(w, c.tx.Dialect())
	settle.AddAttempts(w, c.tx.Dialect(), attempts, tokens)
	lease := fmt.Sprintf(leaseTasks, strings.Repeat(" WHEN ? THEN ?", len(attempts)))
	addUpdate(w, c.tx.Dialect(), "lease tasks", lease, append(args, c.now), tasks)
	task.AddEvents(w, events)
	if err := w.Run(ctx); err != nil {
		return err
	}
	return readPayloads(ctx, c.tx, c.grants)
}

func addUpdate(w *sqldb.Writes, d *sqldb.Dialect, what, query string, args []any, ids []sqldb.ID) {
	if len(ids) > 0 {
		w.Add(what, settle.ByID(d, query, len(ids)), append(args, settle.IDArgs(ids)...)...)
	}
}

// rows makes what is inserted for the tasks given away, and the grants.
func (c *claim) rows() (attempts []*settle.Attempt, tokens []uint64, events []task.Event, tasks []sqldb.ID) {
	for _, x := range c.taken {
		g, t := &x.grant, c.takers[x.grant.Taker]
		g.LeaseUntil = min(c.now+c.d.lease, x.task.DeadlineAt)
		g.Lease, g.Deadline = left(g.LeaseUntil, c.now), left(x.task.DeadlineAt, c.now)
		a := &settle.Attempt{
			ID: g.Attempt, Task: g.Task, Number: g.Number, Epoch: g.Epoch,
			Namespace: g.Namespace, Application: x.application, Queue: g.Queue, Process: t.Process, Node: []byte(c.d.node),
			State: task.AttemptLeased, LeaseUntil: g.LeaseUntil, LeaseMS: int64(c.d.Lease() / time.Millisecond), ClaimedAt: c.now,
		}
		x.task.Claim(a)
		g.Hint = settle.NewHint(&x.task, a)
		attempts = append(attempts, a)
		tokens = append(tokens, g.Token)
		events = append(events, task.Event{
			Task: g.Task, Revision: x.task.Revision, Kind: task.EventClaimed, Attempt: g.Attempt, Credential: t.Credential, At: c.now,
		})
		tasks = append(tasks, g.Task)
		c.grants = append(c.grants, *g)
	}
	return attempts, tokens, events, tasks
}

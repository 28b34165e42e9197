package retention

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

// A part is a table with rows that belong to a task.
type part struct {
	table string
	index string               // begins with the task
	bytes string               // expression: the bytes of a row that may be large
	count func(*Counts) *int64 // where its rows are counted
}

// parts are all that belongs to a task but the records of its keys.
var parts = []part{
	{"review", "review_task", "LENGTH(note) + COALESCE(LENGTH(evidence), 0)", func(c *Counts) *int64 { return &c.Reviews }},
	{"evidence", "evidence_task", "LENGTH(body)", func(c *Counts) *int64 { return &c.Evidence }},
	{"task_event", "task_event_task", "0", func(c *Counts) *int64 { return &c.Events }},
	{"attempt", "attempt_epoch", "COALESCE(LENGTH(result), 0) + LENGTH(error_text) + LENGTH(progress)", func(c *Counts) *int64 { return &c.Attempts }},
}

// A weight is what the deletion of a task costs.
type weight struct {
	task   sqldb.ID
	counts Counts
	bytes  int64
}

// rowBytes is about what a row costs beside its large columns.
const rowBytes = 512

// A bound is how much one transaction deletes.
type bound struct {
	tasks int
	rows  int64
	bytes int64
	loose int // records without a task
}

// transactionBound keeps a transaction, and what the engine logs for it, at the size of a
// large submit (LIC-014).
var transactionBound = bound{tasks: 50, rows: 1000, bytes: 4 << 20, loose: 100}

// batches cuts tasks into transactions. A task that is larger than the bound is alone in
// its own: everything of it goes together.
func (b bound) batches(weights []weight) [][]sqldb.ID {
	var batches [][]sqldb.ID
	var batch []sqldb.ID
	var rows, bytes int64
	for _, w := range weights {
		rows += w.counts.rows()
		bytes += w.bytes
		if len(batch) > 0 && (len(batch) == b.tasks || rows > b.rows || bytes > b.bytes) {
			batches, batch = append(batches, batch), nil
			rows, bytes = w.counts.rows(), w.bytes
		}
		batch = append(batch, w.task)
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	return batches
}

const (
	weighTasks = `
SELECT id, COUNT(*), SUM(LENGTH(payload) + COALESCE(LENGTH(result), 0))
FROM task
WHERE id IN %s
GROUP BY id`

	weighPart = `
SELECT task_id, COUNT(*), SUM(%s)
FROM %s
WHERE task_id IN %s
GROUP BY task_id`
)

// weigh reads how many rows and bytes belong to each of tasks, in the order of their ids.
// Tasks at their end hardly change, and what is added between this and their deletion goes
// too.
func weigh(ctx context.Context, q sqldb.Querier, tasks []sqldb.ID) ([]weight, error) {
	tasks = settle.SortedIDs(tasks)
	if len(tasks) == 0 {
		return nil, nil
	}
	weights := make([]weight, len(tasks))
	at := make(map[sqldb.ID]*weight, len(tasks))
	for i, id := range tasks {
		weights[i].task = id
		at[id] = &weights[i]
	}
	in := sqldb.Placeholders(len(tasks))
	err := addWeights(ctx, q, fmt.Sprintf(weighTasks, in), tasks, at, func(c *Counts) *int64 { return &c.Tasks })
	if err != nil {
		return nil, err
	}
	for _, p := range append(parts, part{"idempotency", "idempotency_task", "LENGTH(receipt)", func(c *Counts) *int64 { return &c.Records }}) {
		if err := addWeights(ctx, q, fmt.Sprintf(weighPart, p.bytes, p.table, in), tasks, at, p.count); err != nil {
			return nil, err
		}
	}
	return weights, nil
}

func addWeights(ctx context.Context, q sqldb.Querier, query string, tasks []sqldb.ID, at map[sqldb.ID]*weight, count func(*Counts) *int64) error {
	rows, err := q.QueryContext(ctx, query, settle.IDArgs(tasks)...)
	if err != nil {
		return fmt.Errorf("weigh old tasks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id sqldb.ID
		var n, bytes int64
		if err := rows.Scan(&id, &n, &bytes); err != nil {
			return fmt.Errorf("weigh old tasks: %w", err)
		}
		w := at[id]
		*count(&w.counts) += n
		w.bytes += bytes + n*rowBytes
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("weigh old tasks: %w", err)
	}
	return nil
}

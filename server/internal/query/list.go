package query

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// window is how many tasks of one business key a page looks at for those in one state: no
// index has both, and a key may be given to any number of tasks.
const window = 5000

// A TaskFilter says which tasks of a queue are wanted. Whether the reader may see the
// queue is for the caller to know.
type TaskFilter struct {
	Queue         sqldb.ID
	State         task.State // 0 means any
	BusinessKey   string     // compared as bytes (LIST-006); empty means any
	CreatedFrom   *int64     // microseconds UTC, inclusive (LIST-007)
	CreatedBefore *int64     // exclusive
}

// A TaskPage is a page of task summaries: what a summary leaves out is not read.
type TaskPage struct {
	Tasks []orbit.Task
	// Next is the place after which the next page begins; nil on the last page.
	Next *Place
}

const (
	selectSummaries = `
SELECT id, state, revision, handler, handler_version, business_key, concurrency_key, priority,
       available_at, start_deadline_at, deadline_at, attempt_count, effect_uncertain,
       cancel_requested_at, completed_at, created_at, updated_at
FROM task{by}
WHERE queue_id = ?`
	inState     = "\n  AND state = ?"
	withKey     = "\n  AND business_key = ?"
	createdFrom = "\n  AND created_at >= ?"
	afterPlace  = "\n  AND {after}"
	newestFirst = "\nORDER BY created_at DESC, id DESC"

	selectQueueTasks = selectSummaries + createdFrom + afterPlace + newestFirst + "\nLIMIT ?"
	selectStateTasks = selectSummaries + inState + createdFrom + afterPlace + newestFirst + "\nLIMIT ?"
	selectKeyTasks   = selectSummaries + withKey + createdFrom + afterPlace + newestFirst + "\nLIMIT ?"

	// No index has both. The last conditions keep to a window.
	selectKeyStateTasks = selectSummaries + withKey + createdFrom + afterPlace + `
  AND NOT (created_at = ? AND id < ?)
  AND state = ?` + newestFirst + "\nLIMIT ?"
)

// Tasks reads a page of at most limit tasks, the newest first, that lie after a place; nil
// means from the newest on. With a business key and a state a page may be short, or even
// empty, and still have a next one.
func (r *Reader) Tasks(ctx context.Context, f TaskFilter, after *Place, limit int) (TaskPage, error) {
	if f.BusinessKey != "" && f.State != 0 {
		return r.tasksInWindow(ctx, f, after, limit)
	}
	query, args := r.by("task_list", selectQueueTasks), []any{f.Queue}
	switch {
	case f.BusinessKey != "":
		query, args = r.by("task_business", selectKeyTasks), append(args, []byte(f.BusinessKey))
	case f.State != 0:
		query, args = r.by("task_state", selectStateTasks), append(args, f.State)
	}
	args = r.after(append(args, f.from()), f.start(after))
	return r.tasks(ctx, f, query, args, limit)
}

func (f *TaskFilter) from() int64 {
	if f.CreatedFrom == nil {
		return math.MinInt64
	}
	return *f.CreatedFrom
}

// start is the place after which a page begins. A cursor lies within the bounds of time.
func (f *TaskFilter) start(after *Place) Place {
	switch {
	case after != nil:
		return *after
	case f.CreatedBefore != nil:
		return Place{CreatedAt: *f.CreatedBefore} // no id is lower than zero
	}
	return Place{CreatedAt: math.MaxInt64}
}

// tasks reads one row more than a page has, to know whether there is a next one.
func (r *Reader) tasks(ctx context.Context, f TaskFilter, query string, args []any, limit int) (TaskPage, error) {
	var page TaskPage
	rows, err := r.db.Read().QueryContext(ctx, query, append(args, limit+1)...)
	err = each(rows, err, func(rows *sql.Rows) (bool, error) {
		if len(page.Tasks) == limit {
			return false, page.end()
		}
		t, err := scanSummary(rows)
		t.QueueID = f.Queue.String()
		page.Tasks = append(page.Tasks, t)
		return true, err
	})
	if err != nil {
		return TaskPage{}, fmt.Errorf("list tasks: %w", err)
	}
	return page, nil
}

// end makes the last task the end of the page.
func (p *TaskPage) end() error {
	last := p.Tasks[len(p.Tasks)-1]
	id, err := sqldb.ParseID(last.ID)
	p.Next = &Place{CreatedAt: sqldb.Micros(last.CreatedAt), ID: id}
	return err
}

func scanSummary(rows *sql.Rows) (t orbit.Task, err error) {
	var id sqldb.ID
	var f taskFields
	err = rows.Scan(&id, &f.state, &t.Revision, &t.Handler, &t.HandlerVersion, &t.BusinessKey, &t.ConcurrencyKey, &t.Priority,
		&f.available, &f.startBy, &f.deadline, &t.AttemptCount, &t.EffectUncertain,
		&f.cancelled, &f.completed, &f.created, &f.updated)
	t.ID = id.String()
	f.fill(&t)
	return t, err
}

// tasksInWindow reads those of the next tasks of a business key that are in one state.
func (r *Reader) tasksInWindow(ctx context.Context, f TaskFilter, after *Place, limit int) (TaskPage, error) {
	start := f.start(after)
	last, more, err := r.windowEnd(ctx, f, start)
	if err != nil {
		return TaskPage{}, err
	}
	args := r.after([]any{f.Queue, []byte(f.BusinessKey), max(f.from(), last.CreatedAt)}, start)
	args = append(args, last.CreatedAt, last.ID[:], f.State)
	page, err := r.tasks(ctx, f, r.by("task_business", selectKeyStateTasks), args, limit)
	if err == nil && more && page.Next == nil {
		page.Next = &last
	}
	return page, err
}

const selectWindowEnd = `
SELECT created_at, id
FROM task{by}
WHERE queue_id = ?` + withKey + createdFrom + afterPlace + newestFirst + `
LIMIT 2 OFFSET ?`

// windowEnd returns the last place that a page looks at, and whether there are tasks after
// it. It reads the index only.
func (r *Reader) windowEnd(ctx context.Context, f TaskFilter, start Place) (last Place, more bool, err error) {
	args := r.after([]any{f.Queue, []byte(f.BusinessKey), f.from()}, start)
	rows, err := r.db.Read().QueryContext(ctx, r.by("task_business", selectWindowEnd), append(args, window-1)...)
	places := []Place{}
	err = each(rows, err, func(rows *sql.Rows) (bool, error) {
		var p Place
		err := rows.Scan(&p.CreatedAt, &p.ID)
		places = append(places, p)
		return true, err
	})
	if err != nil {
		return Place{}, false, fmt.Errorf("list tasks: %w", err)
	}
	if len(places) < 2 {
		return Place{CreatedAt: math.MinInt64}, false, nil
	}
	return places[0], true, nil
}

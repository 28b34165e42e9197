package admin

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/query"
)

// A QueuedTask is the summary of a task, with the names of where it lies.
type QueuedTask struct {
	Task      orbit.Task
	Namespace string
	Queue     string
}

// TasksInState lists at most limit summaries of tasks in one state over all queues of a
// namespace or, if p names none, of an application: by the names of namespace and queue,
// within a queue the newest first. next is the task after which more lie, or "". It asks
// each queue once, whether it has such tasks or not.
func (o *Operator) TasksInState(ctx context.Context, p Place, f TaskFilter, limit int) (tasks []QueuedTask, next string, err error) {
	walk, err := o.newWalk(ctx, p, f)
	if err != nil {
		return nil, "", err
	}
	tasks = []QueuedTask{}
	for len(tasks) <= limit {
		q, ok, err := walk.queue(ctx)
		if err != nil || !ok {
			return tasks, "", err
		}
		reads, err := f.reads(q.id)
		if err != nil {
			return nil, "", err
		}
		page, err := o.reader.Tasks(ctx, reads, walk.after(), limit+1-len(tasks))
		if err != nil {
			return nil, "", err
		}
		for _, t := range page.Tasks {
			tasks = append(tasks, QueuedTask{t, q.namespace, q.name})
		}
	}
	return tasks[:limit], tasks[limit-1].Task.ID, nil // one more was read to know of it
}

// A namedQueue is a queue by the names of people.
type namedQueue struct {
	id              sqldb.ID
	namespace, name string
}

// A queueWalk goes over the queues of a namespace or an application by name, a batch at a
// time.
type queueWalk struct {
	db          sqldb.Querier
	application sqldb.ID
	one         bool // only namespace
	namespace   string
	namespaceID sqldb.ID
	batch       []namedQueue
	name        string // of the last queue that was read
	start       *query.Place
}

// newWalk begins where f.After lies.
func (o *Operator) newWalk(ctx context.Context, p Place, f TaskFilter) (*queueWalk, error) {
	w := &queueWalk{db: o.db.Read(), namespace: p.Namespace, one: p.Namespace != ""}
	switch {
	case f.State == "":
		return nil, &InvalidError{"state", "is required without --queue"}
	case f.BusinessKey != "":
		return nil, &InvalidError{"business-key", "needs --queue"}
	}
	if _, err := f.reads(sqldb.ID{}); err != nil {
		return nil, err
	}
	if err := w.find(ctx, o, p); err != nil || f.After.IsZero() {
		return w, err
	}
	return w, w.resume(ctx, o, f.After)
}

func (w *queueWalk) find(ctx context.Context, o *Operator, p Place) (err error) {
	if !w.one {
		w.application, err = o.application(ctx, p.Application)
		return err
	}
	found, err := o.namespace(ctx, p)
	w.application, w.namespaceID = found.application, found.namespace
	return err
}

const selectWalked = `
SELECT q.id, q.name, n.id, n.name, n.application_id
FROM task t
JOIN queue q ON q.id = t.queue_id
JOIN namespace n ON n.id = q.namespace_id
WHERE t.id = ?`

// resume goes on after a task, in its queue.
func (w *queueWalk) resume(ctx context.Context, o *Operator, after sqldb.ID) error {
	t, err := o.Task(ctx, after)
	if err != nil {
		return err
	}
	var q namedQueue
	var namespace, application sqldb.ID
	err = w.db.QueryRowContext(ctx, selectWalked, after).Scan(&q.id, &q.name, &namespace, &q.namespace, &application)
	switch {
	case err != nil:
		return fmt.Errorf("look up queue of task: %w", err)
	case application != w.application || w.one && namespace != w.namespaceID:
		return &InvalidError{"after", "is a task of another place"}
	}
	w.namespace, w.namespaceID, w.name = q.namespace, namespace, q.name
	w.batch = []namedQueue{q}
	w.start = &query.Place{CreatedAt: sqldb.Micros(t.CreatedAt), ID: after}
	return nil
}

// after is the place in the queue that was returned last after which its tasks are wanted.
func (w *queueWalk) after() *query.Place {
	start := w.start
	w.start = nil
	return start
}

// queue returns the next queue; ok is false after the last one.
func (w *queueWalk) queue(ctx context.Context) (q namedQueue, ok bool, err error) {
	for len(w.batch) == 0 {
		if !w.namespaceID.IsZero() {
			if err := w.read(ctx); err != nil {
				return q, false, err
			}
		}
		if len(w.batch) > 0 {
			break
		}
		if ok, err := w.nextNamespace(ctx); err != nil || !ok {
			return q, false, err
		}
	}
	q, w.batch = w.batch[0], w.batch[1:]
	return q, true, nil
}

// walked is how many queues are read at a time.
const walked = 200

const selectQueuesAfter = `
SELECT id, name
FROM queue
WHERE namespace_id = ?
  AND name > ?
ORDER BY name
LIMIT ?`

func (w *queueWalk) read(ctx context.Context) error {
	err := sqldb.EachRow(ctx, w.db, selectQueuesAfter, []any{w.namespaceID, []byte(w.name), walked}, func(scan func(...any) error) error {
		q := namedQueue{namespace: w.namespace}
		err := scan(&q.id, &q.name)
		w.batch = append(w.batch, q)
		w.name = q.name
		return err
	})
	if err != nil {
		return fmt.Errorf("list queues: %w", err)
	}
	return nil
}

const selectNamespaceAfter = `
SELECT id, name
FROM namespace
WHERE application_id = ?
  AND name > ?
ORDER BY name
LIMIT 1`

// nextNamespace goes on to the next namespace of the application, if it may.
func (w *queueWalk) nextNamespace(ctx context.Context) (ok bool, err error) {
	if w.one {
		return false, nil
	}
	after := w.namespace
	err = sqldb.EachRow(ctx, w.db, selectNamespaceAfter, []any{w.application, []byte(after)}, func(scan func(...any) error) error {
		ok, w.name = true, ""
		return scan(&w.namespaceID, &w.namespace)
	})
	if err != nil {
		return false, fmt.Errorf("list namespaces: %w", err)
	}
	return ok, nil
}

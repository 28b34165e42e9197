package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/query"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A TaskFilter says which tasks of a queue are wanted.
type TaskFilter struct {
	State       string   // one of the contract's; empty means any
	BusinessKey string   // compared as bytes; empty means any
	From        *int64   // of the creation, microseconds UTC, inclusive
	Before      *int64   // exclusive
	After       sqldb.ID // the last task of the page before; zero means from the newest on
}

// reads is the filter of a read of one queue.
func (f *TaskFilter) reads(queue sqldb.ID) (query.TaskFilter, error) {
	q := query.TaskFilter{Queue: queue, BusinessKey: f.BusinessKey, CreatedFrom: f.From, CreatedBefore: f.Before}
	if f.From != nil && f.Before != nil && *f.From >= *f.Before {
		return q, &InvalidError{"from", "must be earlier than before"}
	}
	if err := orbit.ValidateBusinessKey(f.BusinessKey); f.BusinessKey != "" && err != nil {
		return q, invalid("business-key", err)
	}
	var err error
	q.State, err = parseState(f.State)
	return q, err
}

// Tasks lists at most limit summaries of tasks of a queue, the newest first, and reports
// whether there are more: with a business key and a state a page may be short and still
// have a next one, after the task next.
func (o *Operator) Tasks(ctx context.Context, p Place, f TaskFilter, limit int) (tasks []orbit.Task, next string, err error) {
	found, err := o.queue(ctx, p)
	if err != nil {
		return nil, "", err
	}
	reads, err := f.reads(found.queue)
	if err != nil {
		return nil, "", err
	}
	after, err := o.placeOf(ctx, found.queue, f.After)
	if err != nil {
		return nil, "", err
	}
	page, err := o.reader.Tasks(ctx, reads, after, limit)
	if page.Next != nil {
		next = page.Next.ID.String()
	}
	return page.Tasks, next, err
}

func parseState(name string) (task.State, error) {
	var names []string
	for s := task.Waiting; s <= task.Cancelled; s++ {
		if s.String() == name {
			return s, nil
		}
		names = append(names, s.String())
	}
	if name == "" {
		return 0, nil
	}
	return 0, &InvalidError{"state", "must be one of " + strings.Join(names, ", ")}
}

// invalid tells the rule of the contract that the value of a flag breaks.
func invalid(flag string, err error) error {
	var argument *orbit.InvalidArgumentError
	if errors.As(err, &argument) {
		return &InvalidError{flag, argument.Rule}
	}
	return &InvalidError{flag, err.Error()}
}

// placeOf is where a task lies in the list of its queue.
func (o *Operator) placeOf(ctx context.Context, queue, id sqldb.ID) (*query.Place, error) {
	if id.IsZero() {
		return nil, nil
	}
	t, err := o.Task(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case t.QueueID != queue.String():
		return nil, &InvalidError{"after", "is a task of another queue"}
	}
	return &query.Place{CreatedAt: sqldb.Micros(t.CreatedAt), ID: id}, nil
}

// Task reads a whole task. Its error wraps ErrMissing if there is none.
func (o *Operator) Task(ctx context.Context, id sqldb.ID) (orbit.Task, error) {
	t, err := o.reader.Task(ctx, query.Scope{}, id)
	return t, missingTask(id, err)
}

func missingTask(id sqldb.ID, err error) error {
	if errors.Is(err, query.ErrNotFound) {
		return fmt.Errorf("task %s %w", id, ErrMissing)
	}
	return err
}

// Attempts lists at most limit attempts of a task below an epoch, the newest first; 0
// means from the newest on. next is the epoch below which more lie, or 0.
func (o *Operator) Attempts(ctx context.Context, id sqldb.ID, below int64, limit int) (attempts []*orbit.Attempt, next int64, err error) {
	page, err := o.reader.Attempts(ctx, query.Scope{}, id, below, limit)
	return page.Attempts, page.NextEpoch, missingTask(id, err)
}

// Evidence lists at most limit pieces of evidence of a task that lie after one of them,
// the newest first; zero means from the newest on. next is the last one if there are more.
func (o *Operator) Evidence(ctx context.Context, id, after sqldb.ID, limit int) (evidence []orbit.Evidence, next string, err error) {
	var place *query.Place
	if !after.IsZero() {
		e, err := o.reader.Evidence(ctx, query.Scope{}, id, after)
		if errors.Is(err, query.ErrNotFound) {
			return nil, "", fmt.Errorf("evidence %s of task %s %w", after, id, ErrMissing)
		}
		if err != nil {
			return nil, "", err
		}
		place = &query.Place{CreatedAt: sqldb.Micros(e.CreatedAt), ID: after}
	}
	page, err := o.reader.EvidenceList(ctx, query.Scope{}, id, place, limit)
	if page.Next != nil {
		next = page.Next.ID.String()
	}
	return page.Evidence, next, missingTask(id, err)
}

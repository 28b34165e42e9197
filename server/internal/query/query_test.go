package query_test

import (
	"errors"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/query"
)

func onEachEngine(t *testing.T, f func(t *testing.T, w *dispatchtest.World, r *query.Reader)) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		f(t, dispatchtest.New(t, db.DB), query.New(db.DB))
	}, migrations.Server)
}

// GET-003: a scope shows what lies in its namespace and its queues; the zero scope, which
// is the operator's, shows everything.
func TestScopes(t *testing.T) {
	onEachEngine(t, func(t *testing.T, w *dispatchtest.World, r *query.Reader) {
		queue := w.NewQueue("q")
		id := w.Submit(dispatchtest.Task{Queue: queue})
		only := func(allowed sqldb.ID) func(sqldb.ID) bool {
			return func(queue sqldb.ID) bool { return queue == allowed }
		}
		scopes := map[string]struct {
			scope query.Scope
			want  error
		}{
			"everything":        {query.Scope{}, nil},
			"namespace":         {query.Scope{Namespace: w.Namespace}, nil},
			"another namespace": {query.Scope{Namespace: w.NewNamespace("other")}, query.ErrNotFound},
			"queue":             {query.Scope{Namespace: w.Namespace, MayUse: only(queue)}, nil},
			"another queue":     {query.Scope{Namespace: w.Namespace, MayUse: only(sqldb.NewID())}, query.ErrNotFound},
		}
		for name, s := range scopes {
			for read, err := range reads(t, r, s.scope, id, queue) {
				if !errors.Is(err, s.want) {
					t.Errorf("%s of %s = %v, want %v", read, name, err, s.want)
				}
			}
			for read, err := range reads(t, r, s.scope, sqldb.NewID(), sqldb.NewID()) {
				if !errors.Is(err, query.ErrNotFound) {
					t.Errorf("%s of %s for what is not there = %v, want ErrNotFound", read, name, err)
				}
			}
		}
	})
}

// reads reads everything that has a scope.
func reads(t *testing.T, r *query.Reader, s query.Scope, id, queue sqldb.ID) map[string]error {
	ctx := t.Context()
	errs := map[string]error{}
	_, errs["task"] = r.Task(ctx, s, id)
	_, errs["source"] = r.Source(ctx, s, id)
	_, errs["attempts"] = r.Attempts(ctx, s, id, 0, 10)
	_, errs["evidence"] = r.EvidenceList(ctx, s, id, nil, 10)
	_, errs["queue"] = r.Queue(ctx, s, queue)
	return errs
}

// The operator reads a queue without knowing its namespace.
func TestOperatorReadsAnyQueue(t *testing.T) {
	onEachEngine(t, func(t *testing.T, w *dispatchtest.World, r *query.Reader) {
		other := w.NewNamespace("other")
		queue := w.NewQueueIn(other, "q")
		id := w.Submit(dispatchtest.Task{Namespace: other, Queue: queue})
		page, err := r.Tasks(t.Context(), query.TaskFilter{Queue: queue}, nil, 10)
		if err != nil || len(page.Tasks) != 1 || page.Tasks[0].ID != id.String() || page.Next != nil {
			t.Errorf("Tasks = %+v, %v, want the one of the queue", page, err)
		}
		queues, err := r.Queues(t.Context(), query.Scope{Namespace: other}, "", 10)
		if err != nil || len(queues.Queues) != 1 || queues.Queues[0].ID != queue.String() || queues.More {
			t.Errorf("Queues = %+v, %v, want the one of the namespace", queues, err)
		}
	})
}

// REF-QRES-002: an application that is disabled says so; one that is not there is not
// found.
func TestApplicationStates(t *testing.T) {
	onEachEngine(t, func(t *testing.T, w *dispatchtest.World, r *query.Reader) {
		w.Exec("UPDATE application SET state = 2")
		got, err := r.Application(t.Context(), w.Application)
		if err != nil || got.State != "DISABLED" || got.Unfinished != nil {
			t.Errorf("Application = %+v, %v", got, err)
		}
		if _, err := r.Application(t.Context(), sqldb.NewID()); !errors.Is(err, query.ErrNotFound) {
			t.Errorf("Application that is not there = %v, want ErrNotFound", err)
		}
	})
}

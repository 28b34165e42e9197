//go:build linux

package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

// openGuard gives the scene a guarded resource: a log of writes, in a database of its own
// on the scene's engine. Workers started afterwards write to it.
func (s *scene) openGuard() {
	s.Helper()
	s.guard = dbtest.Open(s.T, s.db.Engine, migrations.Guard)
	create := "CREATE TABLE written (seq INTEGER PRIMARY KEY AUTOINCREMENT, resource_key VARCHAR(100) NOT NULL, token VARCHAR(20) NOT NULL, operation VARCHAR(100) NOT NULL)"
	if s.db.Engine != dbtest.SQLite {
		create = "CREATE TABLE written (seq BIGINT AUTO_INCREMENT PRIMARY KEY, resource_key VARCHAR(100) NOT NULL, token VARCHAR(20) NOT NULL, operation VARCHAR(100) NOT NULL)"
	}
	if _, err := s.guard.Write().ExecContext(s.Context(), create); err != nil {
		s.Fatal(err)
	}
}

// A written line is a write that the resource took.
type written struct {
	key, operation string
	token          uint64
}

// writes returns what the guarded resource took, in its order.
func (s *scene) writes() []written {
	s.Helper()
	var all []written
	err := sqldb.EachRow(s.Context(), s.guard.Read(), "SELECT resource_key, token, operation FROM written ORDER BY seq", nil, func(scan func(...any) error) error {
		var w written
		var token string
		err := scan(&w.key, &token, &w.operation)
		if err == nil {
			w.token, err = strconv.ParseUint(token, 10, 64)
		}
		all = append(all, w)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// checkWrites holds the resource to its promise: the tokens of a key never fall, and an
// operation takes effect once.
func (s *scene) checkWrites() []written {
	s.Helper()
	all := s.writes()
	highest, effects := map[string]uint64{}, map[string]int{}
	for _, w := range all {
		if w.token < highest[w.key] {
			s.Errorf("a write under token %d was taken after one under %d of %s", w.token, highest[w.key], w.key)
		}
		highest[w.key] = w.token
		if effects[w.operation]++; effects[w.operation] > 1 {
			s.Errorf("operation %s took effect %d times", w.operation, effects[w.operation])
		}
	}
	return all
}

// A resource is the guarded resource as a worker process has it.
type resource struct {
	db    *sqldb.DB
	guard *resourceguard.Guard
}

func openResource(ctx context.Context, address string) (*resource, error) {
	db, err := drivers.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	anyone := func(context.Context, string, string) error { return nil } // the test is no owner of secrets
	guard, err := resourceguard.New(db.Dialect(), anyone, resourceguard.Config{})
	if err != nil {
		return nil, err
	}
	return &resource{db: db, guard: guard}, nil
}

func (r *resource) close() { r.db.Close() }

// write makes a write of an execution, of which part tells one from another, and returns
// the verdict in a word.
func (r *resource) write(ctx context.Context, e worker.Execution, part string) string {
	verdict, err := r.apply(ctx, e, part)
	for errors.Is(err, resourceguard.ErrRetryable) {
		verdict, err = r.apply(ctx, e, part)
	}
	switch {
	case errors.Is(err, resourceguard.ErrStale):
		return "stale"
	case err != nil:
		return "error: " + err.Error()
	}
	return verdict.String()
}

func (r *resource) apply(ctx context.Context, e worker.Execution, part string) (resourceguard.Verdict, error) {
	tx, err := r.db.Write().BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback()
	w := resourceguard.Write{
		Namespace: e.Task.NamespaceID, Key: e.Task.ConcurrencyKey, Token: e.ConcurrencyToken,
		Attempt: e.AttemptID, Operation: e.OperationRoot + part, Content: e.Task.Payload,
	}
	res, err := r.guard.Apply(ctx, tx, w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO written (resource_key, token, operation) VALUES (?, ?, ?)",
			e.Task.ConcurrencyKey, strconv.FormatUint(e.ConcurrencyToken, 10), w.Operation)
		return nil, err
	})
	if err != nil {
		return res.Verdict, err
	}
	return res.Verdict, tx.Commit()
}

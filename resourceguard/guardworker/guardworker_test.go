package guardworker_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardworker"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// A shop is a guarded table with a row for each write.
type shop struct {
	*testing.T
	db       *dbtest.DB
	resource *guardworker.Resource
	calls    int   // of fn
	refusal  error // of fn
	receipt  string
}

func newShop(t *testing.T, db *dbtest.DB, through *sqldb.DB) *shop {
	t.Helper()
	if _, err := db.Write().ExecContext(t.Context(), "CREATE TABLE taken (operation VARCHAR(100) NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	authorise := func(_ context.Context, _, key string) error {
		if key == "forbidden" {
			return errors.New("not ours")
		}
		return nil
	}
	guard, err := resourceguard.New(db.Dialect(), authorise, resourceguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	resource, err := guardworker.New(guard, through.Write())
	if err != nil {
		t.Fatal(err)
	}
	return &shop{T: t, db: db, resource: resource, receipt: `{"taken":1}`}
}

func (s *shop) handle(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	return s.resource.Apply(ctx, e, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		s.calls++
		if _, err := tx.ExecContext(ctx, "INSERT INTO taken (operation) VALUES (?)", e.OperationRoot); err != nil {
			return nil, err
		}
		return []byte(s.receipt), s.refusal
	})
}

// run plays one attempt, fenced or not.
func (s *shop) run(e workertest.Execution, around ...worker.Middleware) workertest.Result {
	s.Helper()
	return workertest.Run(s.T, worker.Wrap(s.handle, around...), e)
}

func (s *shop) taken(operation string) (n int) {
	s.Helper()
	err := s.db.Read().QueryRowContext(s.Context(), "SELECT COUNT(*) FROM taken WHERE operation = ?", operation).Scan(&n)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func attempt(key, operation string, token uint64) workertest.Execution {
	return workertest.Execution{Task: worker.Task{ConcurrencyKey: key, NamespaceID: strings.Repeat("a", 32)}, ConcurrencyToken: token, OperationRoot: operation}
}

var operation = strings.Repeat("0", 31)

// From its fence on an attempt shuts out the ones before it, which write nothing and whose
// handlers are not even called.
func TestTheFenceShutsEarlierAttemptsOut(t *testing.T) { // RG-001, RG-002, RG-017, AMB-073
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newShop(t, db, db.DB)
		first, second := attempt("key", operation+"1", 5), attempt("key", operation+"1", 7)
		nothing := func(context.Context, worker.Execution) (json.RawMessage, error) { return nil, nil }
		if r := workertest.Run(t, worker.Wrap(nothing, s.resource.Fence), second); r.Outcome != orbit.OutcomeSucceeded {
			t.Fatalf("the fence ended %+v", r)
		}
		if r := s.run(first); r.Outcome != orbit.OutcomeFailed || !r.Retryable || s.calls != 0 {
			t.Errorf("an earlier attempt ended %+v with %d calls of fn, want a failure and none", r, s.calls)
		}
		called := false
		spy := func(context.Context, worker.Execution) (json.RawMessage, error) { called = true; return nil, nil }
		if r := workertest.Run(t, worker.Wrap(spy, s.resource.Fence), first); r.Outcome != orbit.OutcomeFailed || called {
			t.Errorf("an earlier attempt behind the fence ended %+v, handler called: %t", r, called)
		}
		third := attempt("key", operation+"1", 9)
		for range 2 { // the second is the same attempt once more, as after a Resume
			if r := s.run(third, s.resource.Fence); r.Outcome != orbit.OutcomeSucceeded || string(r.Result) != `{"taken":1}` {
				t.Errorf("a later attempt ended %+v", r)
			}
			third.AttemptID = strings.Repeat("b", 32)
			third.ConcurrencyToken = 10
		}
		if r := s.run(first); r.Outcome != orbit.OutcomeUnknown {
			t.Errorf("a stale attempt of what is done ended %+v, want UNKNOWN", r)
		}
		if n := s.taken(operation + "1"); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	}, migrations.Guard)
}

// What is refused ends the attempt as what is known of it, and leaves nothing behind.
func TestRefusalsEndTheAttemptAsWhatIsKnown(t *testing.T) { // RG-010, RG-012, RG-014
	db := dbtest.Open(t, dbtest.SQLite, migrations.Guard)
	s := newShop(t, db, db.DB)
	for _, key := range []string{"one", "two"} {
		if r := s.run(attempt(key, operation+"1", 5)); r.Outcome != orbit.OutcomeSucceeded {
			t.Fatalf("first write: %+v", r)
		}
	}
	conflict := attempt("one", operation+"1", 6)
	conflict.Task.Payload = json.RawMessage(`{"other":1}`)
	for name, c := range map[string]struct {
		e         workertest.Execution
		refusal   error
		receipt   string
		retryable bool
	}{
		"collision":       {e: attempt("two", operation+"2", 5)},
		"conflict":        {e: conflict},
		"not authorised":  {e: attempt("forbidden", operation+"2", 5)},
		"keyless":         {e: attempt("", operation+"2", 0)},
		"final by fn":     {e: attempt("key0", operation+"2", 7), refusal: worker.Failed(errors.New("sold out"))},
		"plain by fn":     {e: attempt("key1", operation+"2", 7), refusal: errors.New("not now"), retryable: true},
		"no result":       {e: attempt("key2", operation+"2", 7), receipt: "not JSON"},
		"retryable by fn": {e: attempt("key3", operation+"2", 7), refusal: worker.Retryable(errors.New("later")), retryable: true},
	} {
		s.refusal, s.receipt = c.refusal, c.receipt
		r := s.run(c.e, s.resource.Fence)
		if r.Outcome != orbit.OutcomeFailed || r.Retryable != c.retryable || s.taken(operation+"2") != 0 {
			t.Errorf("%s: ended %+v, retryable %t wanted, %d writes", name, r, c.retryable, s.taken(operation+"2"))
		}
	}
}

// Whatever one call to the database meets, the attempt ends as what is true, and the next
// one completes the operation, once.
func TestAnyOneFaultEndsInWhatIsKnown(t *testing.T) { // RG-005, RG-011
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		f := dbfault.Open(t, db)
		s := newShop(t, db, f.DB)
		token, commits := uint64(1), 0
		for _, way := range dbfault.Ways(db.Engine) {
			for nth := 1; ; nth++ {
				op := sqldb.NewID().String()
				f.Arm(nth, way(nth))
				r := s.run(attempt("key", op, token), s.resource.Fence)
				hit, fired := f.Disarm()
				if n := s.taken(op); r.Outcome == orbit.OutcomeSucceeded && n != 1 || r.Outcome == orbit.OutcomeFailed && (n != 0 || !r.Retryable) || n > 1 {
					t.Errorf("call %d %v: ended %+v with %d writes", nth, way(nth), r, n)
				}
				if hit == dbfault.Commit && fired {
					commits++
				}
				if runAgain := fired && (hit == dbfault.Commit || way(nth).Refused()); runAgain && r.Outcome != orbit.OutcomeSucceeded {
					t.Errorf("call %d %v: ended %+v, want a second run that succeeds", nth, way(nth), r)
				}
				r = s.run(attempt("key", op, token+1), s.resource.Fence)
				if n := s.taken(op); r.Outcome != orbit.OutcomeSucceeded || string(r.Result) != s.receipt || n != 1 {
					t.Errorf("call %d %v, the attempt after: ended %+v with %d writes", nth, way(nth), r, n)
				}
				token += 2
				if !fired {
					break
				}
			}
		}
		if commits < 2 {
			t.Errorf("%d COMMITs were hit, want those of the fence and of the write", commits)
		}
	}, migrations.Guard)
}

// A COMMIT that is never answered is neither a success nor a failure.
func TestACommitThatIsNeverAnsweredIsUnknown(t *testing.T) { // RG-005
	db := dbtest.Open(t, dbtest.SQLite, migrations.Guard)
	f := dbfault.Open(t, db)
	s := newShop(t, db, f.DB)
	f.OnCommit(func(int) dbfault.Verdict { return dbfault.CutBefore })
	if r := s.run(attempt("key", operation+"1", 5)); r.Outcome != orbit.OutcomeUnknown {
		t.Errorf("ended %+v, want UNKNOWN", r)
	}
	if f.Commits() < 2 {
		t.Errorf("%d COMMITs, want the transaction to be run again", f.Commits())
	}
}

// An attempt whose token the resource refuses is not told to have failed if its operation
// is done: with the fence or without, by a later attempt or under the same number.
func TestARefusedAttemptOfWhatIsDoneIsUnknown(t *testing.T) { // RG-001, RG-002, RG-017, AMB-073
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newShop(t, db, db.DB)
		if r := s.run(attempt("key", operation+"1", 9)); r.Outcome != orbit.OutcomeSucceeded {
			t.Fatalf("first write: %+v", r)
		}
		for _, token := range []uint64{5, 9} {
			for _, around := range [][]worker.Middleware{nil, {s.resource.Fence}} {
				for op, want := range map[string]string{operation + "1": orbit.OutcomeUnknown, operation + "2": orbit.OutcomeFailed} {
					if r := s.run(attempt("key", op, token), around...); r.Outcome != want {
						t.Errorf("token %d, %d fences, operation %s: ended %+v, want %s", token, len(around), op, r, want)
					}
				}
			}
		}
		if n := s.taken(operation+"1") + s.taken(operation+"2"); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	}, migrations.Guard)
}

// Of a transaction that the handler ran by itself only what proves that nothing is written
// is a failure: a plain error may be that of a COMMIT whose answer was lost.
func TestOutcomeTakesNothingForUndoneWithoutProof(t *testing.T) { // RG-005
	db := dbtest.Open(t, dbtest.SQLite, migrations.Guard)
	s := newShop(t, db, db.DB)
	lost := errors.New("invalid connection")
	for name, c := range map[string]struct {
		err                   error
		byOutcome, byTransact string
	}{
		"plain":         {lost, orbit.OutcomeUnknown, orbit.OutcomeFailed},
		"wrapped":       {fmt.Errorf("commit: %w", driver.ErrBadConn), orbit.OutcomeUnknown, orbit.OutcomeFailed},
		"unknown":       {resourceguard.ErrUnknownCommit, orbit.OutcomeUnknown, orbit.OutcomeUnknown},
		"says failed":   {worker.Failed(lost), orbit.OutcomeFailed, orbit.OutcomeFailed},
		"says unknown":  {worker.Unknown(lost), orbit.OutcomeUnknown, orbit.OutcomeUnknown},
		"stale":         {&resourceguard.StaleError{Presented: 5, Highest: 9}, orbit.OutcomeFailed, orbit.OutcomeFailed},
		"stale, done":   {&resourceguard.StaleError{Presented: 5, Highest: 9, AlreadyApplied: true}, orbit.OutcomeUnknown, orbit.OutcomeUnknown},
		"refused":       {fmt.Errorf("%w: %w", resourceguard.ErrRefused, lost), orbit.OutcomeFailed, orbit.OutcomeFailed},
		"collision":     {resourceguard.ErrTokenCollision, orbit.OutcomeFailed, orbit.OutcomeFailed},
		"not to be had": {resourceguard.ErrNotAuthorised, orbit.OutcomeFailed, orbit.OutcomeFailed},
	} {
		end := func(err error) string {
			f := func(context.Context, worker.Execution) (json.RawMessage, error) { return nil, err }
			return workertest.Run(t, f, attempt("key", operation+"1", 5)).Outcome
		}
		if got := end(guardworker.Outcome(c.err)); got != c.byOutcome {
			t.Errorf("%s: Outcome ends the attempt %s, want %s", name, got, c.byOutcome)
		}
		err := s.resource.Transact(t.Context(), func(context.Context, *sql.Tx) error { return c.err })
		if got := end(err); got != c.byTransact {
			t.Errorf("%s: Transact ends the attempt %s, want %s", name, got, c.byTransact)
		}
	}
	if guardworker.Outcome(nil) != nil {
		t.Error("Outcome makes an error of none")
	}
}

// What is not there is refused by name, before any I/O.
func TestNothingInPlaceOfAnArgumentIsRefused(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Guard)
	s := newShop(t, db, db.DB)
	guard, err := resourceguard.New(resourceguard.SQLite, func(context.Context, string, string) error { return nil }, resourceguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	made := func(g *resourceguard.Guard, db *sql.DB) error { _, err := guardworker.New(g, db); return err }
	e := worker.Execution{Task: worker.Task{Payload: json.RawMessage("{}")}}
	apply := func(r *guardworker.Resource, fn resourceguard.WriteFunc) error {
		_, err := r.Apply(t.Context(), e, fn)
		return err
	}
	for field, err := range map[string]error{
		"guard must be given":     made(nil, db.Write()),
		"guard must be made by":   made(&resourceguard.Guard{}, db.Write()),
		"db must be given":        made(guard, nil),
		"fn must be given":        apply(s.resource, nil),
		"f must be given":         s.resource.Transact(t.Context(), nil),
		"resource must be made":   apply(nil, func(context.Context, resourceguard.Tx) ([]byte, error) { return nil, nil }),
		"resource must be made b": apply(&guardworker.Resource{}, func(context.Context, resourceguard.Tx) ([]byte, error) { return nil, nil }),
	} {
		if !errors.Is(err, resourceguard.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want ErrInvalid and %q", err, field)
		}
	}
	if s.resource.Fence(nil) != nil {
		t.Error("Fence makes a handler of none, which would raise and then have nothing to call")
	}
}

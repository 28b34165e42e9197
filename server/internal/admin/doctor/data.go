package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

func (e *examiner) schema(ctx context.Context) ([]Finding, error) {
	err := migrations.Check(ctx, e.db, migrations.Server, e.opt.MinSchema, e.opt.MaxSchema)
	var version *migrations.VersionError
	if errors.As(err, &version) && version.Found == 0 {
		return e.noBook(ctx)
	}
	switch {
	case e.db.Dialect().Refused(err):
		return nil, err
	case err != nil:
		if half := (*migrations.HalfAppliedError)(nil); version != nil && version.Found < version.Min || errors.As(err, &half) {
			e.lack = "the schema is incomplete"
		}
		return fail("", "%v", err), nil // it says what to do
	}
	at, err := migrations.Version(ctx, e.db, migrations.Server)
	if err != nil {
		return nil, err
	}
	return ok("version %d", at), nil
}

// noBook tells a database without a schema from one whose book of migrations is hidden.
func (e *examiner) noBook(ctx context.Context) ([]Finding, error) {
	hidden, err := e.hidden(ctx)
	if err != nil {
		return nil, err
	}
	if len(hidden) < len(tables()) && e.db.Dialect() != sqldb.SQLite {
		return []Finding{{Level: Skipped, Text: "the check could not be made: it needs SELECT on the book of migrations"}}, nil
	}
	e.lack = "no schema"
	if e.db.Dialect() == sqldb.SQLite {
		return fail("run orbit-migrate up", "the database has no schema"), nil
	}
	return fail("run orbit-migrate up, or give the user rights on the tables", "the database has no schema, or hides it from this user"), nil
}

// A difference up to maxSkew is of no interest: every decision is made by the database's
// clock, only people compare the times.
const maxSkew = 2 * time.Second

func (e *examiner) clock(ctx context.Context) ([]Finding, error) {
	before := time.Now()
	micros, err := e.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	trip := time.Since(before)
	skew := sqldb.Time(micros).Sub(before.Add(trip / 2))
	if skew.Abs() > maxSkew+trip {
		return warn("let both hosts follow a time server", "the database's clock and this host's differ by %v", skew.Round(time.Millisecond)), nil
	}
	return ok("the database's clock and this host's differ by less than %v", maxSkew), nil
}

const (
	// leaseGrace is how late a lease may be seen to by a healthy node.
	leaseGrace = 30 * time.Second
	maxCounted = 1000
)

const selectExpired = `
SELECT lease_until
FROM attempt
WHERE live = 1
  AND lease_until < ?
ORDER BY lease_until
LIMIT ?`

func (e *examiner) leases(ctx context.Context) ([]Finding, error) {
	now, err := e.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	var n int
	var oldest int64
	err = sqldb.EachRow(ctx, e.db.Read(), selectExpired, []any{now - leaseGrace.Microseconds(), maxCounted}, func(scan func(...any) error) error {
		var until int64
		err := scan(&until)
		if n++; n == 1 {
			oldest = until
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return ok("none waits to be recovered"), nil
	}
	return fail("start a server node, and look into the logs of those that run",
		"%s whose lease ended up to %v ago %s not been recovered", counted(n, "attempt"), ago(now, oldest), have(n)), nil
}

// counted tells a number of things that was counted up to maxCounted.
func counted(n int, thing string) string {
	switch n {
	case 1:
		return "1 " + thing
	case maxCounted:
		return fmt.Sprintf("at least %d %ss", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func have(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func ago(now, then int64) time.Duration {
	return (time.Duration(now-then) * time.Microsecond).Round(time.Second)
}

const (
	// longWait is how long a task may be READY before somebody should ask why.
	longWait = time.Minute
	maxLanes = 1000
)

// The timer has lane 0. The lanes are read from the claim index alone.
const selectLanes = `
SELECT DISTINCT dispatch_lane
FROM task
WHERE dispatch_lane > ? OR dispatch_lane < ?
LIMIT ?`

const selectFirst = `
SELECT t.available_at, t.handler, t.handler_version, q.name, n.name, a.name, q.paused = 1 OR a.dispatch_stopped = 1 OR a.state <> 1 OR n.state <> 1
FROM task t
JOIN queue q ON q.id = t.queue_id
JOIN namespace n ON n.id = q.namespace_id
JOIN application a ON a.id = n.application_id
WHERE t.dispatch_lane = ?
ORDER BY t.order_value, t.id
LIMIT 1`

// A lane is the tasks of one queue for one handler. Its first task is the next to be
// given out.
type lane struct {
	since                             int64
	handler, version                  string
	queueName, namespace, application string
	stopped                           bool
}

func (e *examiner) waiting(ctx context.Context) ([]Finding, error) {
	now, err := e.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	var lanes []int64
	err = sqldb.EachRow(ctx, e.db.Read(), selectLanes, []any{0, 0, maxLanes}, func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		lanes = append(lanes, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	oldest := lane{since: math.MaxInt64}
	for _, id := range lanes {
		l, err := e.first(ctx, id)
		if err != nil {
			return nil, err
		}
		if !l.stopped && l.since < oldest.since {
			oldest = l
		}
	}
	if oldest.since > now-longWait.Microseconds() {
		return ok("no task has been ready for longer than %v", longWait), nil
	}
	return warn("see whether a worker for it is connected and has room, and whether the limits of queue and application leave any",
		"the next task for handler %s %s in queue %q of %s/%s has been ready for %v",
		oldest.handler, oldest.version, oldest.queueName, oldest.application, oldest.namespace, ago(now, oldest.since)), nil
}

// first reads the next task of a lane. One that is empty by now is stopped.
func (e *examiner) first(ctx context.Context, id int64) (l lane, err error) {
	err = e.db.Read().QueryRowContext(ctx, selectFirst, id).Scan(
		&l.since, &l.handler, &l.version, &l.queueName, &l.namespace, &l.application, &l.stopped)
	if errors.Is(err, sql.ErrNoRows) {
		return lane{stopped: true}, nil
	}
	return l, err
}

// A key above this version is never given again (TOK-007).
const maxVersion = math.MaxUint64 - 2

const selectExhausted = `
SELECT resource_key
FROM resource
WHERE version > ?
LIMIT ?`

// exhausted reads every key: no index has the versions.
func (e *examiner) exhausted(ctx context.Context) ([]Finding, error) {
	n := 0
	err := sqldb.EachRow(ctx, e.db.Read(), selectExhausted, []any{e.db.Dialect().Uint64(maxVersion), maxCounted}, func(func(...any) error) error {
		n++
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case n > 0:
		return fail("give the resources other keys: the tokens of these are used up, and nothing resets them (KEY-018)", "%s %s no token left", counted(n, "key"), have(n)), nil
	}
	return ok("every key has tokens left"), nil
}

func (e *examiner) contradictions(ctx context.Context) (found []Finding, err error) {
	lines, err := dispatch.Verify(ctx, e.db)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return ok("tasks, attempts, permits and events agree"), nil
	}
	for _, line := range lines {
		found = append(found, fail("keep a copy of the database and report it", "%s", line)...)
	}
	return found, nil
}

package dispatch

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// maxViolations bounds what Verify reports of one kind.
const maxViolations = 20

// Verify looks at one snapshot of the database for contradictions between tasks,
// attempts, permits, events and the dispatch columns, and returns a line for each that
// it found, at most 20 of one kind. It reads every task: it is meant for tests and for
// people, not for a timer.
func Verify(ctx context.Context, db *sqldb.DB) ([]string, error) {
	tx, err := db.Read().BeginTx(ctx, snapshot(db.Dialect()))
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	defer tx.Rollback() // nothing was written
	var found []string
	for _, inv := range invariants {
		err := sqldb.EachRow(ctx, tx, fmt.Sprintf("%s\nLIMIT %d", inv.violations, maxViolations), nil, func(scan func(...any) error) error {
			var id []byte
			err := scan(&id)
			found = append(found, fmt.Sprintf("%s: %x", inv.name, id))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("verify %s: %w", inv.name, err)
		}
	}
	for _, verify := range []func(context.Context, sqldb.Querier, *sqldb.Dialect) ([]string, error){verifyLanes, verifyKeys, verifyParked} {
		more, err := verify(ctx, tx, db.Dialect())
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// snapshot makes all reads of the transaction see one state. SQLite's do anyway.
func snapshot(d *sqldb.Dialect) *sql.TxOptions {
	if d == sqldb.SQLite {
		return &sql.TxOptions{ReadOnly: true}
	}
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
}

// An invariant is a query that returns the ids of what violates it.
type invariant struct{ name, violations string }

var invariants = []invariant{
	{"task is leased or running without its live attempt", `
SELECT t.id FROM task t
LEFT JOIN attempt a ON a.id = t.attempt_id AND a.task_id = t.id AND a.epoch = t.epoch AND a.live = 1 AND a.state = t.state - 1
WHERE t.state IN (2, 3) AND a.id IS NULL`},
	{"task names an attempt though it is neither leased nor running", `
SELECT id FROM task WHERE state NOT IN (2, 3) AND attempt_id IS NOT NULL`},
	{"live attempt is not its task's", `
SELECT a.id FROM attempt a LEFT JOIN task t ON t.attempt_id = a.id
WHERE a.live = 1 AND t.id IS NULL`},
	{"attempt is live and ended, or neither", `
SELECT id FROM attempt
WHERE (state = 3) <> (live IS NULL) OR (state = 3) <> (ended_at IS NOT NULL) OR (state = 3) <> (outcome IS NOT NULL)`},
	{"attempt is running and has no start or timeout, or the other way round", `
SELECT id FROM attempt
WHERE (started_at IS NULL) <> (timeout_at IS NULL) OR state = 2 AND started_at IS NULL OR state = 1 AND started_at IS NOT NULL`},
	{"lease goes past the timeout", `
SELECT id FROM attempt WHERE live = 1 AND lease_until > timeout_at`},
	{"attempts of a task are not counted right", `
SELECT t.id FROM task t
LEFT JOIN (SELECT task_id, COUNT(*) AS n, MAX(epoch) AS newest, SUM(CASE WHEN started_at IS NULL THEN 0 ELSE 1 END) AS started
           FROM attempt GROUP BY task_id) a ON a.task_id = t.id
WHERE t.attempt_count <> COALESCE(a.n, 0) OR t.epoch <> COALESCE(a.newest, 0) OR t.started_count <> COALESCE(a.started, 0)`},
	{"task started more attempts than it may", `
SELECT id FROM task WHERE started_count > max_attempts`},
	{"revisions and events of a task differ", `
SELECT t.id FROM task t
LEFT JOIN (SELECT task_id, COUNT(*) AS n, COUNT(DISTINCT revision) AS revisions, MAX(revision) AS newest
           FROM task_event GROUP BY task_id) e ON e.task_id = t.id
WHERE COALESCE(e.n, 0) <> t.revision OR COALESCE(e.revisions, 0) <> t.revision OR COALESCE(e.newest, 0) <> t.revision`},
	{"task is at an end without its time, or the other way round", `
SELECT id FROM task WHERE (state IN (5, 6, 7)) <> (completed_at IS NOT NULL)`},
	{"task is at an end with an unknown effect", `
SELECT id FROM task WHERE state IN (5, 6, 7) AND effect_uncertain = 1`},
	{"expiry of a task is not what its state and deadlines say", `
SELECT id FROM task
WHERE state = 1 AND (expire_at IS NULL OR expire_at <> CASE WHEN start_deadline_at < deadline_at THEN start_deadline_at ELSE deadline_at END)
   OR state <> 1 AND expire_at IS NOT NULL`},
	{"dispatch state does not fit the state", `
SELECT id FROM task WHERE (state = 1) <> (dispatch_state IN (1, 2, 3))`},
	{"dispatch lane does not fit the dispatch state", `
SELECT id FROM task
WHERE dispatch_state = 1 AND (dispatch_lane IS NULL OR dispatch_lane <> lane OR lane = 0)
   OR dispatch_state = 2 AND (dispatch_lane IS NULL OR dispatch_lane <> 0)
   OR dispatch_state IN (0, 3) AND dispatch_lane IS NOT NULL
   OR dispatch_state = 3 AND LENGTH(concurrency_key_digest) = 0`},
	{"order value does not fit the dispatch state", `
SELECT id FROM task
WHERE dispatch_state IN (1, 3) AND order_value <> available_at - priority * 30000000
   OR dispatch_state = 2 AND order_value <> available_at`},
	// The version is the token, or above it if it was raised meanwhile (TOK-018).
	{"live attempt of a keyed task does not hold its key with its token", `
SELECT a.id FROM attempt a
JOIN task t ON t.id = a.task_id
LEFT JOIN resource r ON r.digest = t.concurrency_key_digest AND r.holder_task_id = a.task_id AND r.holder_epoch = a.epoch
                    AND r.version >= a.concurrency_token
WHERE a.live = 1 AND LENGTH(t.concurrency_key_digest) > 0 AND r.digest IS NULL`},
	{"key is held by no live attempt", `
SELECT r.digest FROM resource r
LEFT JOIN attempt a ON a.task_id = r.holder_task_id AND a.epoch = r.holder_epoch AND a.live = 1
WHERE r.holder_task_id IS NOT NULL AND a.id IS NULL`},
	{"holder of a key is half set", `
SELECT digest FROM resource WHERE (holder_task_id IS NULL) <> (holder_epoch IS NULL)`},
	{"keyed task has no row of its key", `
SELECT t.id FROM task t LEFT JOIN resource r ON r.digest = t.concurrency_key_digest
WHERE LENGTH(t.concurrency_key_digest) > 0 AND (r.digest IS NULL OR r.resource_key <> t.concurrency_key OR r.namespace_id <> t.namespace_id)`},
	// A limit may be set below what is live by then; what is claimed afterwards violates it.
	{"queue has more live attempts than its limit", `
SELECT q.id FROM queue q
WHERE q.max_concurrency > 0
  AND (SELECT COUNT(*) FROM attempt a WHERE a.queue_id = q.id AND a.live = 1) > q.max_concurrency
  AND (SELECT MAX(a.claimed_at) FROM attempt a WHERE a.queue_id = q.id AND a.live = 1) > q.updated_at`},
	{"application has more live attempts than its limit", `
SELECT x.application_id FROM application_quota x
JOIN application p ON p.id = x.application_id
WHERE x.max_active_attempts > 0
  AND (SELECT COUNT(*) FROM attempt a WHERE a.application_id = x.application_id AND a.live = 1) > x.max_active_attempts
  AND (SELECT MAX(a.claimed_at) FROM attempt a WHERE a.application_id = x.application_id AND a.live = 1) > p.updated_at`},
	{"queue counts other unfinished tasks than it has", `
SELECT q.id FROM queue q
WHERE q.unfinished < 0
   OR q.max_backlog > 0
  AND q.unfinished <> (SELECT COUNT(*) FROM task t WHERE t.queue_id = q.id AND t.state IN (1, 2, 3, 4))`},
	{"application counts other unfinished tasks than it has", `
SELECT x.application_id FROM application_quota x
WHERE x.unfinished < 0
   OR x.max_unfinished > 0
  AND x.unfinished <> (SELECT COUNT(*) FROM namespace n JOIN queue q ON q.namespace_id = n.id JOIN task t ON t.queue_id = q.id
                       WHERE n.application_id = x.application_id AND t.state IN (1, 2, 3, 4))`},
}

const selectWaiting = `
SELECT id, namespace_id, queue_id, handler, handler_version, concurrency_key, concurrency_key_digest, lane
FROM task
WHERE state = 1`

// verifyLanes holds the hashes of waiting tasks to what they are hashes of. A task in
// the timer may have no lane yet.
func verifyLanes(ctx context.Context, q sqldb.Querier, _ *sqldb.Dialect) (found []string, err error) {
	err = sqldb.EachRow(ctx, q, selectWaiting, nil, func(scan func(...any) error) error {
		var (
			id, namespace, queue sqldb.ID
			handler, version     string
			key, digest          []byte
			lane                 int64
		)
		if err := scan(&id, &namespace, &queue, &handler, &version, &key, &digest, &lane); err != nil {
			return err
		}
		if want := task.Lane(queue, handler, version, len(key) > 0); lane != 0 && lane != want {
			found = append(found, fmt.Sprintf("lane of a waiting task is not its hash: %v", id))
		}
		var want []byte
		if len(key) > 0 {
			sum := task.KeyDigest(namespace, string(key))
			want = sum[:]
		}
		if string(want) != string(digest) {
			found = append(found, fmt.Sprintf("key digest of a waiting task is not its hash: %v", id))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("verify lanes: %w", err)
	}
	return found[:min(len(found), maxViolations)], nil
}

const (
	selectTokens = `
SELECT t.concurrency_key_digest, a.concurrency_token, a.claimed_at, a.ended_at, r.version
FROM attempt a
JOIN task t ON t.id = a.task_id
JOIN resource r ON r.digest = t.concurrency_key_digest
WHERE LENGTH(t.concurrency_key_digest) > 0
ORDER BY t.concurrency_key_digest, a.concurrency_token`

	selectEventTimes = `
SELECT created_at
FROM task_event
ORDER BY seq`

	// The bound value is zero in the form of the token's column.
	selectMispaired = `
SELECT a.id
FROM attempt a
JOIN task t ON t.id = a.task_id
WHERE (LENGTH(t.concurrency_key_digest) > 0) <> (a.concurrency_token > ?)`

	selectStranded = `
SELECT r.digest, r.version
FROM resource r
WHERE r.holder_task_id IS NULL
  AND EXISTS (SELECT 1 FROM task p
              WHERE p.concurrency_key_digest = r.digest AND p.dispatch_state = 3
                AND NOT EXISTS (SELECT 1 FROM task o
                                WHERE o.concurrency_key_digest = r.digest AND o.dispatch_state = 1 AND o.lane = p.lane))`
)

// A permit is an attempt of a keyed task, in the history of its key.
type permit struct {
	digest         []byte
	token, version uint64
	claimed        int64
	ended          sql.NullInt64
}

// contradicts tells what is wrong with p after the permit before it, or "", if the clock
// went back by no more than back.
func (p *permit) contradicts(last *permit, back int64) string {
	same := string(p.digest) == string(last.digest)
	switch {
	case same && p.token <= last.token+1:
		return fmt.Sprintf("tokens %d and %d of a key do not leave room for a release: %x", last.token, p.token, p.digest)
	case same && (!last.ended.Valid || last.ended.Int64 > p.claimed+back):
		return fmt.Sprintf("attempts with tokens %d and %d held a key at once: %x", last.token, p.token, p.digest)
	case p.token > p.version || p.ended.Valid && p.token == p.version:
		return fmt.Sprintf("token %d does not fit version %d of its key: %x", p.token, p.version, p.digest)
	}
	return ""
}

// stepBack returns by how many microseconds the clock was set back, as far as the events
// show it: in the order in which they were written, by how much the time of one is before
// the latest until then. Transactions side by side do that too, but by less than a second,
// as they read the clock after their locks or do not go by it for longer than
// [settle.Freshness]: that counts as zero.
func stepBack(ctx context.Context, q sqldb.Querier) (back int64, err error) {
	var latest int64
	err = sqldb.EachRow(ctx, q, selectEventTimes, nil, func(scan func(...any) error) error {
		var at int64
		err := scan(&at)
		latest = max(latest, at)
		back = max(back, latest-at)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("verify the times of events: %w", err)
	}
	if back < time.Second.Microseconds() {
		return 0, nil
	}
	return back, nil
}

// verifyKeys holds the permits of each key to its history: tokens grow, and an attempt
// ends before the next is claimed.
func verifyKeys(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect) (found []string, err error) {
	back, err := stepBack(ctx, q)
	if err != nil {
		return nil, err
	}
	var last permit
	err = sqldb.EachRow(ctx, q, selectTokens, nil, func(scan func(...any) error) error {
		var p permit
		err := scan(&p.digest, d.ScanUint64(&p.token), &p.claimed, &p.ended, d.ScanUint64(&p.version))
		if fault := p.contradicts(&last, back); fault != "" && err == nil {
			found = append(found, fault)
		}
		last = p
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("verify tokens: %w", err)
	}
	err = sqldb.EachRow(ctx, q, selectMispaired, []any{d.Uint64(0)}, func(scan func(...any) error) error {
		var id sqldb.ID
		err := scan(&id)
		found = append(found, fmt.Sprintf("attempt has a token without a key, or a key without a token: %v", id))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("verify tokens: %w", err)
	}
	return found[:min(len(found), maxViolations)], nil
}

// verifyParked finds keys that nobody holds, that could be given, and that have parked
// tasks in a lane with no READY one.
func verifyParked(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect) (found []string, err error) {
	err = sqldb.EachRow(ctx, q, selectStranded, nil, func(scan func(...any) error) error {
		var k settle.Key
		var digest []byte
		err := scan(&digest, d.ScanUint64(&k.Version))
		if err == nil && !k.Exhausted() {
			found = append(found, fmt.Sprintf("parked tasks wait for a key that nobody holds: %x", digest))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("verify parked tasks: %w", err)
	}
	return found[:min(len(found), maxViolations)], nil
}

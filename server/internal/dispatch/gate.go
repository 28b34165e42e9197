package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// stateActive is the state of an application and of a namespace in use.
const stateActive = 1

// A gate says whether, and for how many attempts more, a queue may dispatch.
type gate struct {
	namespace   sqldb.ID
	application sqldb.ID
	open        bool
	limit       int64 // of live attempts in the queue when it was read, 0 for none
	appLimit    int64
	room        *room // of the queue; nil for no limit
	appRoom     *room // of the application, shared by its queues; nil for no limit
}

// A room is what is left of a limit.
type room struct{ left int64 }

// take reports whether there is room for one more, and uses it.
func (g *gate) take() bool {
	if g.full() {
		return false
	}
	for _, r := range []*room{g.room, g.appRoom} {
		if r != nil {
			r.left--
		}
	}
	return true
}

func (g *gate) full() bool {
	return g.room != nil && g.room.left <= 0 || g.appRoom != nil && g.appRoom.left <= 0
}

// errLimited reports that a limit was met where none was expected. The transaction is
// rolled back and begun again with the locks that a limit needs, instead of raising
// shared locks to exclusive ones (REF-QUOTA-002).
var errLimited = errors.New("a queue or its application has a limit")

// limitedQueues remembers which queues have a limit, so that the right locks are taken
// at once. It is a hint only: the locked rows decide.
type limitedQueues struct {
	mu     sync.Mutex
	queues map[sqldb.ID]struct{}
}

const maxLimitedQueues = 10_000

func (l *limitedQueues) has(queue sqldb.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.queues[queue]
	return ok
}

func (l *limitedQueues) set(queue sqldb.ID, limited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !limited {
		delete(l.queues, queue)
		return
	}
	if l.queues == nil || len(l.queues) >= maxLimitedQueues {
		l.queues = make(map[sqldb.ID]struct{})
	}
	l.queues[queue] = struct{}{}
}

const selectGates = `
SELECT q.id, n.id, a.id, q.paused, n.state, a.state, a.dispatch_stopped,
       q.max_concurrency, COALESCE(x.max_active_attempts, 0), q.max_backlog + COALESCE(x.max_unfinished, 0)
FROM queue q
JOIN namespace n ON n.id = q.namespace_id
JOIN application a ON a.id = n.application_id
LEFT JOIN application_quota x ON x.application_id = a.id
WHERE q.id IN `

// shareGates reads whether queues without limits may dispatch. The rows are
// share-locked, so that who pauses a queue or sets a limit waits for this claim and is
// obeyed by the next.
func (d *Dispatcher) shareGates(ctx context.Context, tx *sqldb.Tx, queues []sqldb.ID) (map[sqldb.ID]*gate, error) {
	gates, limited, err := d.readGates(ctx, tx, queues, tx.Dialect().Share)
	if err == nil && limited {
		err = errLimited
	}
	return gates, err
}

func (d *Dispatcher) readGates(ctx context.Context, tx *sqldb.Tx, queues []sqldb.ID, lock string) (gates map[sqldb.ID]*gate, limited bool, err error) {
	rows, err := tx.QueryContext(ctx, selectGates+sqldb.Placeholders(len(queues))+" ORDER BY q.id"+lock, settle.IDArgs(queues)...)
	if err != nil {
		return nil, false, fmt.Errorf("read queues: %w", err)
	}
	defer rows.Close()
	gates = make(map[sqldb.ID]*gate, len(queues))
	for rows.Next() {
		var (
			queue                    sqldb.ID
			g                        gate
			paused, stopped          bool
			namespace, app, backlogs int64
		)
		if err := rows.Scan(&queue, &g.namespace, &g.application, &paused, &namespace, &app, &stopped, &g.limit, &g.appLimit, &backlogs); err != nil {
			return nil, false, fmt.Errorf("read queues: %w", err)
		}
		g.open = !paused && !stopped && namespace == stateActive && app == stateActive
		gates[queue] = &g
		// Limits of a backlog are no business of a claim. But where there is one, rows are
		// locked against each other, and so in their order: this query does not promise it.
		some := g.limit+g.appLimit+backlogs > 0
		limited = limited || some
		d.limited.set(queue, some)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("read queues: %w", err)
	}
	return gates, limited, nil
}

// lockGates is shareGates for queues that have a limit, or whose application has one: it
// locks first the quotas of the applications, then the queues, those with a limit of live
// attempts for themselves and the others in share mode, and counts the live attempts. Ends
// of attempts do not touch these numbers, so they cannot drift.
func (d *Dispatcher) lockGates(ctx context.Context, tx *sqldb.Tx, queues []sqldb.ID) (map[sqldb.ID]*gate, error) {
	gates, _, err := d.readGates(ctx, tx, queues, "")
	if err != nil {
		return nil, err
	}
	apps, byQueue, err := lockLimits(ctx, tx, gates)
	if err != nil {
		return nil, fmt.Errorf("lock limits: %w", err)
	}
	appRooms, err := roomsOf(ctx, tx, applicationLimits, apps)
	if err != nil {
		return nil, fmt.Errorf("count live attempts of applications: %w", err)
	}
	rooms, err := roomsOf(ctx, tx, queueLimits, byQueue)
	if err != nil {
		return nil, fmt.Errorf("count live attempts of queues: %w", err)
	}
	for id, g := range gates {
		g.room, g.appRoom = rooms[id], appRooms[g.application]
		g.open = g.open && !byQueue[id].paused
	}
	return gates, nil
}

// limits are the two statements that make rooms.
type limits struct{ lock, count string }

var (
	applicationLimits = limits{
		lock: `
SELECT 1, application_id, max_active_attempts, 0
FROM application_quota
WHERE application_id = ?`,
		count: `
SELECT application_id, COUNT(*)
FROM attempt
WHERE live = 1 AND application_id IN %s
GROUP BY application_id`,
	}
	queueLimits = limits{
		lock: `
SELECT 0, id, max_concurrency, paused
FROM queue
WHERE id = ?`,
		count: `
SELECT queue_id, COUNT(*)
FROM attempt
WHERE live = 1 AND queue_id IN %s
GROUP BY queue_id`,
	}
)

// A locked row of a queue or of a quota.
type locked struct {
	most   int64 // live attempts, 0 for any number
	paused bool
}

// lockLimits locks the rows that gates were read from, each in the mode that its limit
// wants, and reads them again. A limit that was set or lifted in between wants another
// mode: the transaction runs anew.
func lockLimits(ctx context.Context, tx *sqldb.Tx, gates map[sqldb.ID]*gate) (apps, queues map[sqldb.ID]locked, err error) {
	rows := rowsToLock(gates)
	expected := make(map[sqldb.ID]bool, len(rows))
	for _, r := range rows {
		expected[r.ID] = r.Exclusive
	}
	apps, queues = make(map[sqldb.ID]locked), make(map[sqldb.ID]locked)
	err = quota.Lock(ctx, tx, rows, func(scan func(...any) error) error {
		var (
			app bool
			id  sqldb.ID
			l   locked
		)
		if err := scan(&app, &id, &l.most, &l.paused); err != nil {
			return err
		}
		if (l.most > 0) != expected[id] {
			return fmt.Errorf("limit was set or lifted: %w", sqldb.ErrAgain)
		}
		if app {
			apps[id] = l
		} else {
			queues[id] = l
		}
		return nil
	})
	return apps, queues, err
}

// rowsToLock returns the quotas of applications, then the queues, each sorted.
func rowsToLock(gates map[sqldb.ID]*gate) []quota.Row {
	var queues, apps []sqldb.ID
	limited := make(map[sqldb.ID]bool)
	for id, g := range gates {
		queues, apps = append(queues, id), append(apps, g.application)
		limited[id], limited[g.application] = g.limit > 0, g.appLimit > 0
	}
	var rows []quota.Row
	for _, id := range settle.SortedIDs(apps) {
		rows = append(rows, quota.Row{Select: applicationLimits.lock, ID: id, Exclusive: limited[id]})
	}
	for _, id := range settle.SortedIDs(queues) {
		rows = append(rows, quota.Row{Select: queueLimits.lock, ID: id, Exclusive: limited[id]})
	}
	return rows
}

// roomsOf tells what is left of the limits of locked rows.
func roomsOf(ctx context.Context, tx *sqldb.Tx, l limits, rows map[sqldb.ID]locked) (map[sqldb.ID]*room, error) {
	rooms := make(map[sqldb.ID]*room)
	var limited []sqldb.ID
	for id, row := range rows {
		if row.most > 0 {
			rooms[id], limited = &room{row.most}, append(limited, id)
		}
	}
	if len(limited) == 0 {
		return rooms, nil
	}
	query := fmt.Sprintf(l.count, sqldb.Placeholders(len(limited)))
	err := eachRow(ctx, tx, query, settle.IDArgs(limited), func(scan func(...any) error) error {
		var (
			id   sqldb.ID
			live int64
		)
		if err := scan(&id, &live); err != nil {
			return err
		}
		rooms[id].left -= live
		return nil
	})
	return rooms, err
}

// eachRow runs a query and calls f with the scan of each row.
func eachRow(ctx context.Context, q sqldb.Querier, query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

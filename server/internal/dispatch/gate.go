package dispatch

import (
	"context"
	"fmt"

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

// why tells which limit is reached, the application's if both are.
func (g *gate) why() LaneEnd {
	if g.appRoom != nil && g.appRoom.left <= 0 {
		return LaneAppFull
	}
	return LaneFull
}

// openGates locks what decides about queues and tells how many attempts each may still
// have. A row with a limit of live attempts is locked for this claim alone, which then
// counts them; the others are shared, so that who stops a queue or sets a limit waits for
// this claim and is obeyed by the next (REF-QUOTA-002). Ends of attempts touch none of
// these rows for it, so the counts cannot drift. If a limit is met where none was expected
// the error wraps [sqldb.ErrAgain]. Rows of other kinds that are also wanted are read by the
// same statement, before a lock, and go to sees.
func (d *Dispatcher) openGates(ctx context.Context, tx *sqldb.Tx, queues []sqldb.ID, also []quota.Row, sees func(rowKey, gateRow)) (map[sqldb.ID]*gate, error) {
	owners, err := d.modes.OwnersOf(ctx, tx, queues)
	if err != nil {
		return nil, err
	}
	rows, err := d.lockGates(ctx, tx, owners, also, sees)
	if err != nil {
		return nil, fmt.Errorf("lock queues: %w", err)
	}
	rooms, err := countRooms(ctx, tx, queueRow, rows)
	if err != nil {
		return nil, fmt.Errorf("count live attempts of queues: %w", err)
	}
	appRooms, err := countRooms(ctx, tx, quotaRow, rows)
	if err != nil {
		return nil, fmt.Errorf("count live attempts of applications: %w", err)
	}
	gates := make(map[sqldb.ID]*gate, len(owners))
	for queue, app := range owners {
		q, n, a := rows[rowKey{queueRow, queue}], rows[rowKey{namespaceRow, queue}], rows[rowKey{applicationRow, app}]
		gates[queue] = &gate{
			namespace: q.namespace, application: app, room: rooms[queue], appRoom: appRooms[app],
			open: !q.stopped && !a.stopped && n.number == stateActive && a.number == stateActive,
		}
	}
	return gates, nil
}

// Kinds of the rows that decide about a queue, in the order in which they are locked.
const (
	applicationRow = iota
	quotaRow       // of the application
	queueRow
	namespaceRow // by the queue
	sessionRow   // this and the next are not locked
	clockRow
)

var selectGateRow = [...]string{
	applicationRow: `
SELECT 0, id, id, state, dispatch_stopped
FROM application
WHERE id = ?`,
	quotaRow: `
SELECT 1, application_id, application_id, max_active_attempts, 0
FROM application_quota
WHERE application_id = ?`,
	queueRow: `
SELECT 2, id, namespace_id, max_concurrency, paused
FROM queue
WHERE id = ?`,
	namespaceRow: `
SELECT 3, q.id, n.id, n.state, 0
FROM queue q
JOIN namespace n ON n.id = q.namespace_id
WHERE q.id = ?`,
}

type rowKey struct {
	kind int
	id   sqldb.ID
}

// A gateRow is what a row says. Its number is a state or a limit.
type gateRow struct {
	namespace sqldb.ID // of a queue
	number    int64
	stopped   bool
}

func scanGateRow(scan func(...any) error) (at rowKey, r gateRow, err error) {
	err = scan(&at.kind, &at.id, &r.namespace, &r.number, &r.stopped)
	return at, r, err
}

// lockGates locks the rows of queues and their applications by one statement.
func (d *Dispatcher) lockGates(ctx context.Context, tx *sqldb.Tx, owners map[sqldb.ID]sqldb.ID, also []quota.Row, sees func(rowKey, gateRow)) (map[rowKey]gateRow, error) {
	list := d.gateRows(tx, owners)
	exclusive := make(map[sqldb.ID]bool, len(list))
	for _, r := range list {
		exclusive[r.ID] = exclusive[r.ID] || r.Exclusive
	}
	rows := make(map[rowKey]gateRow, len(list))
	surprised := false
	err := quota.Lock(ctx, tx, append(also, list...), func(scan func(...any) error) error {
		at, r, err := scanGateRow(scan)
		if err != nil {
			return err
		}
		if at.kind >= sessionRow {
			sees(at, r)
			return nil
		}
		rows[at] = r
		if at.kind == quotaRow || at.kind == queueRow {
			d.active.SetLimited(at.id, r.number > 0)
			surprised = surprised || r.number > 0 && !exclusive[at.id]
		}
		return nil
	})
	if err == nil && surprised {
		err = fmt.Errorf("a limit was set: %w", sqldb.ErrAgain)
	}
	return rows, err
}

// gateRows lists the rows to lock, sorted within each kind.
func (d *Dispatcher) gateRows(tx *sqldb.Tx, owners map[sqldb.ID]sqldb.ID) []quota.Row {
	var queues, apps []sqldb.ID
	for queue, app := range owners {
		queues, apps = append(queues, queue), append(apps, app)
	}
	queues, apps = settle.SortedIDs(queues), settle.SortedIDs(apps)
	var list []quota.Row
	for kind, ids := range [][]sqldb.ID{applicationRow: apps, quotaRow: apps, queueRow: queues, namespaceRow: queues} {
		for _, id := range ids {
			exclusive := (kind == quotaRow || kind == queueRow) && d.active.Expected(tx, id)
			list = append(list, quota.Row{Select: selectGateRow[kind], ID: id, Exclusive: exclusive})
		}
	}
	return list
}

// What counts the live attempts of locked rows.
const (
	countOfApplications = `
SELECT application_id, COUNT(*)
FROM attempt%s
WHERE live = 1 AND application_id IN %s
GROUP BY application_id`

	countOfQueues = `
SELECT queue_id, COUNT(*)
FROM attempt%s
WHERE live = 1 AND queue_id IN %s
GROUP BY queue_id`
)

// countRooms tells what is left of the limits of the rows of a kind.
func countRooms(ctx context.Context, tx *sqldb.Tx, kind int, rows map[rowKey]gateRow) (map[sqldb.ID]*room, error) {
	rooms := make(map[sqldb.ID]*room)
	var limited []sqldb.ID
	for at, r := range rows {
		if at.kind == kind && r.number > 0 {
			rooms[at.id], limited = &room{r.number}, append(limited, at.id)
		}
	}
	if len(limited) == 0 {
		return rooms, nil
	}
	query, index := countOfQueues, "attempt_queue"
	if kind == quotaRow {
		query, index = countOfApplications, "attempt_application"
	}
	query = fmt.Sprintf(query, tx.Dialect().ByIndex(index), sqldb.Placeholders(len(limited)))
	err := sqldb.EachRow(ctx, tx, query, settle.IDArgs(limited), func(scan func(...any) error) error {
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

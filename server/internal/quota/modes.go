package quota

import (
	"context"
	"fmt"
	"sync"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// maxRemembered bounds each of the two memories of Modes, together some 5 MiB. A full one
// begins anew.
const maxRemembered = 1 << 15

// Modes is what a process remembers of queues and applications: which application a queue
// belongs to, which never changes, and which of them had a limit when last seen: of
// unfinished tasks, or of whatever else its owner keeps it for. That is a hint; the locked
// rows decide. The zero value is ready to use, for several goroutines.
type Modes struct {
	mu      sync.Mutex
	owners  map[sqldb.ID]sqldb.ID // application by queue
	limited map[sqldb.ID]struct{} // queues and applications
}

// Limited reports whether the queue or application had a limit when last seen.
func (m *Modes) Limited(id sqldb.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, limited := m.limited[id]
	return limited
}

// Expected reports whether a transaction must be ready to find a limit: one was there when
// last seen, or the transaction has been surprised twice and takes no chances.
func (m *Modes) Expected(tx *sqldb.Tx, id sqldb.ID) bool {
	return tx.Again() > 1 || m.Limited(id)
}

// SetLimited notes whether the queue or application has a limit.
func (m *Modes) SetLimited(id sqldb.ID, limited bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !limited {
		delete(m.limited, id)
		return
	}
	if m.limited == nil || len(m.limited) >= maxRemembered {
		m.limited = make(map[sqldb.ID]struct{})
	}
	m.limited[id] = struct{}{}
}

// OwnersOf returns the applications of queues. A queue that does not exist has none.
func (m *Modes) OwnersOf(ctx context.Context, q sqldb.Querier, queues []sqldb.ID) (map[sqldb.ID]sqldb.ID, error) {
	owners, unknown := m.known(queues)
	if len(unknown) == 0 {
		return owners, nil
	}
	read, err := readOwners(ctx, q, unknown)
	if err != nil {
		return nil, fmt.Errorf("read applications of queues: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for queue, application := range read {
		if m.owners == nil || len(m.owners) >= maxRemembered {
			m.owners = make(map[sqldb.ID]sqldb.ID)
		}
		m.owners[queue], owners[queue] = application, application
	}
	return owners, nil
}

func (m *Modes) known(queues []sqldb.ID) (owners map[sqldb.ID]sqldb.ID, unknown []sqldb.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	owners = make(map[sqldb.ID]sqldb.ID, len(queues))
	for _, queue := range queues {
		if application, known := m.owners[queue]; known {
			owners[queue] = application
		} else {
			unknown = append(unknown, queue)
		}
	}
	return owners, unknown
}

const selectOwners = `
SELECT q.id, n.application_id
FROM queue q
JOIN namespace n ON n.id = q.namespace_id
WHERE q.id IN `

func readOwners(ctx context.Context, q sqldb.Querier, queues []sqldb.ID) (map[sqldb.ID]sqldb.ID, error) {
	rows, err := q.QueryContext(ctx, selectOwners+sqldb.Placeholders(len(queues)), args(queues)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	owners := make(map[sqldb.ID]sqldb.ID, len(queues))
	for rows.Next() {
		var queue, application sqldb.ID
		if err := rows.Scan(&queue, &application); err != nil {
			return nil, err
		}
		owners[queue] = application
	}
	return owners, rows.Err()
}

func args(ids []sqldb.ID) []any {
	list := make([]any, len(ids))
	for i, id := range ids {
		list[i] = id
	}
	return list
}

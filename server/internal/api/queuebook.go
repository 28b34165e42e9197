package api

import (
	"context"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// knownQueues is how many queues a node remembers to exist, about 2 MiB.
const knownQueues = 1 << 14

// A queueBook knows which queues a namespace has. Queues are never deleted and never
// move, so to have seen one is enough.
type queueBook struct {
	db    *sqldb.DB
	known *lru.Cache[namespaceQueue, struct{}]
}

type namespaceQueue struct{ namespace, queue sqldb.ID }

func newQueueBook(db *sqldb.DB) *queueBook {
	known, err := lru.New[namespaceQueue, struct{}](knownQueues)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &queueBook{db: db, known: known}
}

// existing returns which of queues exist in namespace.
func (b *queueBook) existing(ctx context.Context, namespace sqldb.ID, queues []sqldb.ID) (map[sqldb.ID]bool, error) {
	found := map[sqldb.ID]bool{}
	asked := map[sqldb.ID]bool{}
	args := []any{namespace}
	for _, queue := range queues {
		if _, known := b.known.Get(namespaceQueue{namespace, queue}); known {
			found[queue] = true
		} else if !asked[queue] {
			asked[queue] = true
			args = append(args, queue)
		}
	}
	if len(asked) == 0 {
		return found, nil
	}
	return found, b.read(ctx, args, found)
}

const selectQueues = `
SELECT namespace_id, id
FROM queue
WHERE namespace_id = ?
  AND id IN `

func (b *queueBook) read(ctx context.Context, args []any, found map[sqldb.ID]bool) error {
	rows, err := b.db.Read().QueryContext(ctx, selectQueues+sqldb.Placeholders(len(args)-1), args...)
	if err != nil {
		return fmt.Errorf("look up queues: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var q namespaceQueue
		if err := rows.Scan(&q.namespace, &q.queue); err != nil {
			return fmt.Errorf("look up queues: %w", err)
		}
		found[q.queue] = true
		b.known.Add(q, struct{}{})
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("look up queues: %w", err)
	}
	return nil
}

package accept

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// A record is the stored identity of an accepted item.
type record struct {
	task      sqldb.ID
	algorithm []byte
	content   []byte
	receipt   Receipt
}

// replay settles the members that were accepted before, by another request or by an
// earlier round whose commit was unknown, and returns the others.
func (c *Committer) replay(ctx context.Context, q sqldb.Querier, members []*member) ([]*member, error) {
	records, err := readRecords(ctx, q, members)
	if err != nil || len(records) == 0 {
		return members, err
	}
	c.repeats.Store(repeatsExpected)
	if err := readPayloads(ctx, q, records, members); err != nil {
		return members, err
	}
	c.wake(ownLanes(records, members))
	var left []*member
	for _, m := range members {
		r, found := records[m.digest]
		switch {
		case !found:
			left = append(left, m)
		case !r.same(m):
			m.settle(Outcome{Err: ErrConflict})
		case m.unshown:
			m.settle(Outcome{Err: ErrTooLong})
		case !r.whole(m):
			m.fail(fmt.Errorf("receipt of task %s is damaged", r.task))
		default:
			m.settle(Outcome{Task: r.task, Deduplicated: r.task != m.id, Receipt: r.receipt})
		}
	}
	return left, nil
}

// ownLanes returns the lanes of the members that an earlier round has accepted.
func ownLanes(records map[idempotency.Identity]*record, members []*member) (lanes []int64) {
	for _, m := range members {
		if r, found := records[m.digest]; found && r.task == m.id {
			lanes = m.draft.appendLane(lanes)
		}
	}
	return lanes
}

// same reports whether the record is of the content that m carries.
func (r *record) same(m *member) bool {
	content := m.content()
	return string(r.algorithm) == orbit.DigestAlgorithm && bytes.Equal(r.content, content[:])
}

// whole reports whether the receipt can be given.
func (r *record) whole(m *member) bool {
	at, size := r.receipt.payloadAt, len(r.receipt.task)
	return 0 < at && at < size && (m.Minimal || r.receipt.payload != nil)
}

const selectRecords = `
SELECT digest, task_id, algorithm, content_digest, receipt, payload_at
FROM idempotency
WHERE digest IN `

func readRecords(ctx context.Context, q sqldb.Querier, members []*member) (map[idempotency.Identity]*record, error) {
	args := make([]any, len(members))
	for i, m := range members {
		args[i] = m.digest[:]
	}
	rows, err := q.QueryContext(ctx, selectRecords+sqldb.Placeholders(len(args)), args...)
	if err != nil {
		return nil, fmt.Errorf("look up identities: %w", err)
	}
	defer rows.Close()
	records := map[idempotency.Identity]*record{}
	for rows.Next() {
		var digest []byte
		r := &record{}
		err := rows.Scan(&digest, &r.task, &r.algorithm, &r.content, &r.receipt.task, &r.receipt.payloadAt)
		if err != nil {
			return nil, fmt.Errorf("look up identities: %w", err)
		}
		records[idempotency.Identity(digest)] = r
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look up identities: %w", err)
	}
	return records, nil
}

const (
	// maxShown bounds the payloads of earlier submits that the answer to one Submit shows, in
	// bytes: a short request can ask for long receipts. Clients read 2 MiB of an answer.
	maxShown = 1 << 20
	// surelyShown receipts are within the bound, whatever their payloads.
	surelyShown = maxShown / orbit.MaxPayloadBytes
)

// readPayloads fills in the payloads of the receipts that will be shown: a receipt is
// stored without a second copy of it.
func readPayloads(ctx context.Context, q sqldb.Querier, records map[idempotency.Identity]*record, members []*member) error {
	showing := map[*group][]*member{}
	shown := map[sqldb.ID]*record{}
	for _, m := range members {
		m.unshown = false
		if r, found := records[m.digest]; found && !m.Minimal && r.same(m) {
			showing[m.group] = append(showing[m.group], m)
			shown[r.task] = r
		}
	}
	for _, list := range showing {
		if err := leaveOut(ctx, q, records, list, shown); err != nil {
			return err
		}
	}
	return readShown(ctx, q, shown)
}

const selectSizes = `
SELECT id, LENGTH(payload)
FROM task
WHERE id IN `

// leaveOut marks the members of one group that are beyond the bound, in their order, and
// takes the tasks that nobody is shown out of shown.
func leaveOut(ctx context.Context, q sqldb.Querier, records map[idempotency.Identity]*record, list []*member, shown map[sqldb.ID]*record) error {
	g := list[0].group
	if len(g.outcomes) <= surelyShown {
		return nil
	}
	sizes := map[sqldb.ID]int{}
	var args []any
	for _, m := range list {
		if task := records[m.digest].task; sizes[task] == 0 {
			sizes[task] = -1
			args = append(args, task)
		}
	}
	err := sqldb.EachRow(ctx, q, selectSizes+sqldb.Placeholders(len(args)), args, func(scan func(...any) error) error {
		var id sqldb.ID
		var size int
		err := scan(&id, &size)
		sizes[id] = size
		return err
	})
	if err != nil {
		return fmt.Errorf("read sizes of receipts: %w", err)
	}
	kept := map[sqldb.ID]bool{}
	for _, m := range list {
		task := records[m.digest].task
		// Members with one key are in different transactions, so the group keeps the sum.
		if g.shown.Add(int64(sizes[task])) > maxShown {
			m.unshown = true
		} else {
			kept[task] = true
		}
	}
	for task := range sizes {
		if !kept[task] {
			delete(shown, task)
		}
	}
	return nil
}

const selectPayloads = `
SELECT id, payload
FROM task
WHERE id IN `

func readShown(ctx context.Context, q sqldb.Querier, shown map[sqldb.ID]*record) error {
	if len(shown) == 0 {
		return nil
	}
	var args []any
	for id := range shown {
		args = append(args, id)
	}
	err := sqldb.EachRow(ctx, q, selectPayloads+sqldb.Placeholders(len(args)), args, func(scan func(...any) error) error {
		var id sqldb.ID
		var payload sql.RawBytes
		err := scan(&id, &payload)
		if err == nil {
			shown[id].receipt.payload = bytes.Clone(payload)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read payloads of receipts: %w", err)
	}
	return nil
}

package dispatch

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// inlinePayload is the largest payload that is read with its candidate. Larger ones are
// read once it is known that the task is granted.
const inlinePayload = 16 << 10

// A candidate is a task at the head of a lane, locked.
type candidate struct {
	lane        int64
	order       int64
	availableAt int64
	size        int // of the payload
	application sqldb.ID
	task        settle.Task // with what of it a node remembers
	grant       Grant
}

const (
	candidateColumns = `id, namespace_id, queue_id, handler, handler_version, payload_version, business_key, concurrency_key,
       concurrency_key_digest, priority, recovery_safety, effect_uncertain, retry_of, operation_root, traceparent,
       state, dispatch_state, revision, epoch, attempt_count, order_value, available_at, start_deadline_at, deadline_at,
       max_attempts, attempt_timeout_ms, initial_delay_ms, max_delay_ms, started_count, unstarted_count, cancel_requested_at, lane,
       LENGTH(payload), CASE WHEN LENGTH(payload) <= ? THEN payload END`

	selectHead = `
SELECT ` + candidateColumns + `
FROM task
WHERE dispatch_lane = ?
ORDER BY order_value, id
LIMIT ?`

	selectAfter = `
SELECT ` + candidateColumns + `
FROM task
WHERE dispatch_lane = ? AND (order_value > ? OR (order_value = ? AND id > ?))
ORDER BY order_value, id
LIMIT ?`
)

// A place in a lane: claims go on behind it.
type place struct {
	order int64
	id    sqldb.ID
}

// readCandidates locks up to n tasks at the head of a lane, or behind after, passing
// over those that others hold.
func readCandidates(ctx context.Context, tx *sqldb.Tx, lane int64, after *place, n int) ([]*candidate, error) {
	query, args := selectHead, []any{inlinePayload, lane, n}
	if after != nil {
		query, args = selectAfter, []any{inlinePayload, lane, after.order, after.order, after.id, n}
	}
	var list []*candidate
	err := sqldb.EachRow(ctx, tx, query+tx.Dialect().SkipLocked, args, func(scan func(...any) error) error {
		c, err := scanCandidate(scan)
		if err == nil {
			c.lane = lane
			list = append(list, c)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read candidates: %w", err)
	}
	return list, nil
}

func scanCandidate(scan func(...any) error) (*candidate, error) {
	var (
		c               candidate
		g, t            = &c.grant, &c.task
		digest, payload []byte
		safety          int
		attempts        int64
	)
	err := scan(&g.Task, &g.Namespace, &g.Queue, &g.Handler, &g.HandlerVersion, &g.PayloadVersion, &g.BusinessKey, &g.ConcurrencyKey,
		&digest, &g.Priority, &safety, &g.EffectUncertain, &g.RetryOf, &g.OperationRoot, &g.Traceparent,
		&t.State, &t.Dispatch, &t.Revision, &t.Epoch, &attempts, &c.order, &c.availableAt, &t.StartDeadlineAt, &t.DeadlineAt,
		&t.Retry.MaxAttempts, &t.Retry.AttemptTimeoutMS, &t.Retry.InitialDelayMS, &t.Retry.MaxDelayMS, &t.Started, &t.Unstarted, &t.CancelAt, &t.Lane,
		&c.size, &payload)
	if err != nil {
		return nil, err
	}
	if t.Key, t.Keyed, err = settle.ParseDigest(digest); err != nil {
		return nil, err
	}
	if g.OperationRoot.IsZero() {
		g.OperationRoot = g.Task
	}
	g.Idempotent = safety == task.SafetyIdempotent
	g.Epoch, g.Number = t.Epoch+1, attempts+1
	t.ID, t.Namespace, t.Queue, t.Handler, t.HandlerVersion = g.Task, g.Namespace, g.Queue, g.Handler, g.HandlerVersion
	t.Idempotent, t.Uncertain = g.Idempotent, g.EffectUncertain
	g.Payload = json.RawMessage(payload)
	return &c, nil
}

// fits reports whether the task is what its lane says. Two kinds of task with one hash
// are told apart here.
func (c *candidate) fits(l Lane, namespace sqldb.ID) bool {
	g := &c.grant
	return g.Queue == l.Queue && g.Namespace == namespace && g.Handler == l.Handler && g.HandlerVersion == l.Version && c.task.Keyed == l.Keyed
}

// claimable reports whether the task, which is available, may be given away at the time
// now. Those whose deadline has passed are left to recovery.
func (c *candidate) claimable(now int64) bool {
	t := &c.task
	return t.State == task.Waiting && t.Dispatch == task.DispatchReady &&
		t.TooLate(now) == "" && uint64(t.Started) < t.Retry.MaxAttempts
}

const selectPayloads = `
SELECT id, payload
FROM task
WHERE id IN `

// readPayloads fills in the payloads that were too large to read at once.
func readPayloads(ctx context.Context, tx *sqldb.Tx, grants []Grant) error {
	byTask := make(map[sqldb.ID]*Grant)
	var list []sqldb.ID
	for i := range grants {
		if g := &grants[i]; g.Payload == nil {
			byTask[g.Task], list = g, append(list, g.Task)
		}
	}
	if len(list) == 0 {
		return nil
	}
	err := sqldb.EachRow(ctx, tx, selectPayloads+sqldb.Placeholders(len(list)), settle.IDArgs(list), func(scan func(...any) error) error {
		var (
			id      sqldb.ID
			payload []byte
		)
		err := scan(&id, &payload)
		if g := byTask[id]; g != nil {
			g.Payload = payload
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read payloads: %w", err)
	}
	return nil
}

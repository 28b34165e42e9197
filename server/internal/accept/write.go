package accept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

// write makes the rows of members in one transaction. Members are in order of arrival, no
// two with one identity. Locks are taken in the order of LIC-014: identities by digest,
// quotas of applications and then of queues, resource keys by digest; tasks, events and
// audit rows are new.
func write(ctx context.Context, tx *sqldb.Tx, modes *quota.Modes, members []*member) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		m.draft = newDraft(m, now)
	}
	if err := insertIdentities(ctx, tx, members); err != nil {
		return err
	}
	w := tx.Writes()
	kept, err := refuse(ctx, tx, w, modes, members)
	if err != nil {
		return err
	}
	if err := place(ctx, tx, kept); err != nil {
		return err
	}
	addTasks(w, kept)
	addEvents(w, kept)
	addAudits(w, kept)
	return w.Run(ctx)
}

const insertIdentity = `
INSERT INTO idempotency (digest, namespace_id, operation, task_id, idempotency_key,
	algorithm, content_digest, status, receipt, payload_at, created_at, retain_until)
VALUES `

// insertIdentities fails with a duplicate if another node has accepted one of the keys
// since it was looked up; the row is committed by then and can be read.
func insertIdentities(ctx context.Context, tx *sqldb.Tx, members []*member) error {
	sorted := slices.SortedFunc(slices.Values(members), func(a, b *member) int {
		return bytes.Compare(a.digest[:], b.digest[:])
	})
	const columns = 12
	args := make([]any, 0, len(sorted)*columns)
	for _, m := range sorted {
		d := &m.draft
		content := m.content()
		args = append(args, m.digest[:], m.Namespace, int(m.operation()), m.id, []byte(m.Key),
			[]byte(orbit.DigestAlgorithm), content[:], http.StatusCreated, d.stored, d.payloadAt,
			d.now, d.now+orbit.IdempotencyRetention.Microseconds())
	}
	if _, err := tx.ExecContext(ctx, insertIdentity+sqldb.Rows(len(sorted), columns), args...); err != nil {
		return fmt.Errorf("insert identities: %w", err)
	}
	return nil
}

const deleteIdentity = `
DELETE FROM idempotency
WHERE digest = ?`

// errAllRefused rolls back a transaction whose members were all refused: that takes their
// identities back at once.
var errAllRefused = errors.New("every member was refused")

// refuse holds members to the rules of the moment, first to the times and then to the
// quotas of application and queue, and takes back the identities of those that break one.
// It returns the others. The last places of a quota go to the members that came first.
func refuse(ctx context.Context, tx *sqldb.Tx, w *sqldb.Writes, modes *quota.Modes, members []*member) ([]*member, error) {
	var timely []*member
	for _, m := range members {
		if m.draft.refused = m.Submission.CheckAt(sqldb.Time(m.draft.now)); m.draft.refused == nil {
			timely = append(timely, m)
		}
	}
	if err := admit(ctx, tx, w, modes, timely); err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return m.draft.refused != nil })
	if len(kept) == 0 {
		return nil, errAllRefused
	}
	return kept, takeBack(ctx, tx, members)
}

// takeBack deletes the identities of refused members. Each is found by its key: one
// statement for all may scan a short table, and wait for identities of others while it
// holds quotas.
func takeBack(ctx context.Context, tx *sqldb.Tx, members []*member) error {
	for _, m := range members {
		if m.draft.refused == nil {
			continue
		}
		if _, err := tx.ExecContext(ctx, deleteIdentity, m.digest[:]); err != nil {
			return fmt.Errorf("take back identity: %w", err)
		}
	}
	return nil
}

// admit counts members, which are in order of arrival, in their quotas, which it locks.
func admit(ctx context.Context, tx *sqldb.Tx, w *sqldb.Writes, modes *quota.Modes, members []*member) error {
	queues := make([]sqldb.ID, len(members))
	for i, m := range members {
		queues[i] = m.Queue
	}
	ledger, err := quota.Open(ctx, tx, modes, queues)
	if err != nil {
		return err
	}
	for _, m := range members {
		m.draft.refused = ledger.Admit(m.Queue)
	}
	ledger.AddChanged(w)
	return nil
}

const insertTask = `
INSERT INTO task (id, namespace_id, queue_id, state, revision, handler, handler_version,
	payload_version, payload, business_key, available_at, start_deadline_at, deadline_at,
	task_timeout_ms, credential_id, created_at, updated_at, recovery_safety, max_attempts,
	attempt_timeout_ms, initial_delay_ms, max_delay_ms, expire_at, concurrency_key,
	concurrency_key_digest, priority, lane, dispatch_state, dispatch_lane, order_value, traceparent,
	retry_of, operation_root)
VALUES `

func addTasks(w *sqldb.Writes, members []*member) {
	const columns = 33
	args := make([]any, 0, len(members)*columns)
	for _, m := range members {
		r, d := &m.Submission.Request, &m.draft
		args = append(args, m.id, m.Namespace, m.Queue, task.Waiting, 1, []byte(r.Handler), []byte(r.HandlerVersion),
			[]byte(r.PayloadVersion), []byte(r.Payload), []byte(r.BusinessKey), d.availableAt, d.startBy, d.deadlineAt,
			int64(r.TaskTimeoutMS), m.Credential, d.now, d.now, recoverySafety(r), int64(r.Retry.MaxAttempts),
			int64(r.Retry.AttemptTimeoutMS), int64(r.Retry.InitialDelayMS), int64(r.Retry.MaxDelayMS), d.expireAt(), []byte(r.ConcurrencyKey),
			d.key, r.Priority, d.lane, d.dispatch, d.dispatchLane(), d.order, traceparent(m.Traceparent),
			m.retryOf(), m.operationRoot())
	}
	w.Add("insert tasks", insertTask+sqldb.Rows(len(members), columns), args...)
}

func recoverySafety(r *orbit.SubmitTaskRequest) int {
	if r.RecoverySafety == orbit.RecoveryIdempotent {
		return task.SafetyIdempotent
	}
	return task.SafetyReconcileOnly
}

// traceparent is a trace context as it is stored and handed on. One of a later version is
// made one of version 00, as the W3C demands of who does not know that version: its ids,
// and of its flags the one that says whether the trace is sampled.
func traceparent(text string) []byte {
	const version, flags, size = "00", 53, 55
	if len(text) < size || text[:len(version)] == version {
		return []byte(text)
	}
	sampled := byte('0')
	if strings.IndexByte("13579bdf", text[size-1]) >= 0 {
		sampled = '1'
	}
	return append([]byte(version+text[len(version):flags]+"0"), sampled)
}

func addEvents(w *sqldb.Writes, members []*member) {
	events := make([]task.Event, len(members))
	for i, m := range members {
		events[i] = task.Event{
			Task: m.id, Revision: 1, Kind: task.EventAccepted, Credential: m.auditedCredential(), Reason: m.reason(), At: m.draft.now,
		}
	}
	task.AddEvents(w, events)
}

// Actions in the audit. The audit tells who, where and what kind, and copies nothing of
// the business (SUB-063).
const (
	actionSubmit = "task.submit"
	actionRetry  = "task.retry"
)

const insertAudit = `
INSERT INTO audit (namespace_id, credential_id, actor, action, target_id, queue_id, handler,
	handler_version, request_id, note, created_at)
VALUES `

func addAudits(w *sqldb.Writes, members []*member) {
	const columns = 11
	args := make([]any, 0, len(members)*columns)
	for _, m := range members {
		r := &m.Submission.Request
		action, note := m.audit()
		args = append(args, m.Namespace, m.auditedCredential(), []byte(m.Actor), action, m.id, m.Queue, []byte(r.Handler),
			[]byte(r.HandlerVersion), m.Request, note, m.draft.now)
	}
	w.Add("insert audit rows", insertAudit+sqldb.Rows(len(members), columns), args...)
}

package outboxtest

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// An EnqueuedCancel is a cancel in an outbox.
type EnqueuedCancel struct {
	outbox.Cancel
	Seq    int64
	Digest orbit.Digest
}

// EnqueueCancel is [outbox.Outbox.EnqueueCancel]. It treats keys of open transactions as
// Enqueue does.
func (f *Fake) EnqueueCancel(ctx context.Context, tx outbox.Tx, c outbox.Cancel) (outbox.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own, err := f.open(ctx, tx)
	if err != nil {
		return outbox.Receipt{}, err
	}
	digest, err := c.Validate()
	if err != nil {
		return outbox.Receipt{}, fmt.Errorf("outbox: enqueue cancel: %w", err)
	}
	return f.enqueue(fakeRow{Enqueued: Enqueued{Digest: digest}, cancel: &c, tx: own})
}

// A CancelMatch tells cancels apart. Empty fields match everything.
type CancelMatch struct {
	Key    string
	Target string
	TaskID string
	Reason string
}

// RequireCancelEnqueued ends the test unless exactly one cancel matches, and returns it.
func RequireCancelEnqueued(t testing.TB, in Reader, want CancelMatch) EnqueuedCancel {
	t.Helper()
	all, found := lookForCancels(t, in, want)
	if len(found) != 1 {
		t.Fatalf("outboxtest: %d cancels match %v, want 1; enqueued are%s", len(found), want, listCancels(all))
	}
	return found[0]
}

// RequireNoCancelEnqueued ends the test if a cancel matches. The empty CancelMatch matches them
// all.
func RequireNoCancelEnqueued(t testing.TB, in Reader, unwanted CancelMatch) {
	t.Helper()
	if _, found := lookForCancels(t, in, unwanted); len(found) > 0 {
		t.Fatalf("outboxtest: %d cancels match %v, want none:%s", len(found), unwanted, listCancels(found))
	}
}

func lookForCancels(t testing.TB, in Reader, m CancelMatch) (all, found []EnqueuedCancel) {
	t.Helper()
	all, err := in.Cancels(t.Context())
	if err != nil {
		t.Fatalf("outboxtest: read the outbox: %v", err)
	}
	same := func(want, got string) bool { return want == "" || want == got }
	for _, c := range all {
		if same(m.Key, c.Key) && same(m.Target, c.Target) && same(m.TaskID, c.TaskID) && same(m.Reason, c.Request.Reason) {
			found = append(found, c)
		}
	}
	return all, found
}

// String shows the fields that are set, but for the reason.
func (m CancelMatch) String() string {
	var set []string
	for _, field := range [][2]string{{"key", m.Key}, {"target", m.Target}, {"task", m.TaskID}} {
		if field[1] != "" {
			set = append(set, fmt.Sprintf("%s %q", field[0], field[1]))
		}
	}
	if m.Reason != "" {
		set = append(set, "a reason")
	}
	if set == nil {
		return "anything"
	}
	return strings.Join(set, ", ")
}

// listCancels names cancels, without their reasons.
func listCancels(all []EnqueuedCancel) string {
	if len(all) == 0 {
		return " none"
	}
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "\n  key %q to %q, task %s", c.Key, c.Target, c.TaskID)
	}
	return b.String()
}

func (t table) Cancels(ctx context.Context) (all []EnqueuedCancel, err error) {
	rows, err := t.QueryContext(ctx, `
SELECT seq, target, idempotency_key, request, traceparent, COALESCE(not_before, 0), COALESCE(not_after, 0), operation_task_id
FROM orbit_outbox
WHERE operation = ?
ORDER BY seq
LIMIT ?`, int64(outbox.OperationCancel), maxRead+1)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		c, err := scanCancel(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) > maxRead {
		return nil, fmt.Errorf("there are more than %d cancels", maxRead)
	}
	return all, rows.Err()
}

func scanCancel(rows *sql.Rows) (c EnqueuedCancel, err error) {
	var target, key, request, trace, task []byte
	var notBefore, notAfter int64
	if err := rows.Scan(&c.Seq, &target, &key, &request, &trace, &notBefore, &notAfter, &task); err != nil {
		return EnqueuedCancel{}, err
	}
	if c.Request, c.Digest, err = orbit.ParseCancel(request); err != nil {
		return EnqueuedCancel{}, fmt.Errorf("request of row %d: %w", c.Seq, err)
	}
	c.Target, c.Key, c.Traceparent, c.TaskID = string(target), string(key), string(trace), hex.EncodeToString(task)
	c.NotBefore, c.NotAfter = timeOf(notBefore), timeOf(notAfter)
	return c, nil
}

// timeOf returns the time of a column, or none.
func timeOf(microseconds int64) time.Time {
	if microseconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(microseconds).UTC()
}

package outboxtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// An Enqueued is a message in an outbox. Its request is as it was frozen, so that defaults
// stand in it.
type Enqueued struct {
	outbox.Message
	Seq    int64
	Digest orbit.Digest
}

// A Reader is what assertions look at: a [*Fake], a [*FakeTx], or a database by way of [In].
type Reader interface {
	Messages(context.Context) ([]Enqueued, error)
	Cancels(context.Context) ([]EnqueuedCancel, error)
}

// A Match tells messages apart. Empty fields match everything.
type Match struct {
	Key     string
	Target  string
	QueueID string
	Handler string
	// Payload is compared by content, as the server compares it (orbit-json-v1): the order
	// of members, blanks and the form of a number do not matter.
	Payload json.RawMessage
}

// RequireEnqueued ends the test unless exactly one message matches, and returns that message.
func RequireEnqueued(t testing.TB, in Reader, want Match) Enqueued {
	t.Helper()
	all, found := look(t, in, want)
	if len(found) != 1 {
		t.Fatalf("outboxtest: %d messages match %v, want 1; enqueued are%s", len(found), want, list(all))
	}
	return found[0]
}

// RequireNothingEnqueued ends the test if a message matches. The empty Match matches them all.
// Cancels are no messages: see [RequireNoCancelEnqueued].
func RequireNothingEnqueued(t testing.TB, in Reader, unwanted Match) {
	t.Helper()
	if _, found := look(t, in, unwanted); len(found) > 0 {
		t.Fatalf("outboxtest: %d messages match %v, want none:%s", len(found), unwanted, list(found))
	}
}

func look(t testing.TB, in Reader, m Match) (all, found []Enqueued) {
	t.Helper()
	all, err := in.Messages(t.Context())
	if err != nil {
		t.Fatalf("outboxtest: read the outbox: %v", err)
	}
	for _, e := range all {
		matches, err := m.matches(e)
		if err != nil {
			t.Fatalf("outboxtest: payload to match: %v", err)
		}
		if matches {
			found = append(found, e)
		}
	}
	return all, found
}

func (m Match) matches(e Enqueued) (bool, error) {
	same := func(want, got string) bool { return want == "" || want == got }
	if !same(m.Key, e.Key) || !same(m.Target, e.Target) || !same(m.QueueID, e.Request.QueueID) || !same(m.Handler, e.Request.Handler) {
		return false, nil
	}
	if m.Payload == nil {
		return true, nil
	}
	other := e.Request
	other.Payload = m.Payload
	_, frozen, err := other.Freeze()
	return frozen.Digest == e.Digest, err
}

// String shows the fields that are set. Payloads are not shown.
func (m Match) String() string {
	var set []string
	for _, field := range [][2]string{{"key", m.Key}, {"target", m.Target}, {"queue", m.QueueID}, {"handler", m.Handler}} {
		if field[1] != "" {
			set = append(set, fmt.Sprintf("%s %q", field[0], field[1]))
		}
	}
	if m.Payload != nil {
		set = append(set, "a payload")
	}
	if set == nil {
		return "anything"
	}
	return strings.Join(set, ", ")
}

// list names messages, without their payloads.
func list(all []Enqueued) string {
	if len(all) == 0 {
		return " none"
	}
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "\n  key %q to %q, handler %q", e.Key, e.Target, e.Request.Handler)
	}
	return b.String()
}

// A Querier is a *sql.DB, *sql.Tx or *sql.Conn, or what an ORM has in their place.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// In reads the outbox of a database: a transaction sees its own messages before they are
// committed, a pool only committed ones. At most 1,000 messages are read, and as many cancels,
// delivered ones among them; more are an error.
func In(q Querier) Reader { return table{q} }

type table struct{ Querier }

const maxRead = 1000

func (t table) Messages(ctx context.Context) (all []Enqueued, err error) {
	rows, err := t.QueryContext(ctx, `
SELECT seq, target, idempotency_key, request, traceparent, COALESCE(not_before, 0), COALESCE(not_after, 0)
FROM orbit_outbox
WHERE operation = ?
ORDER BY seq
LIMIT ?`, int64(outbox.OperationSubmit), maxRead+1)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		e, err := scanEnqueued(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if len(all) > maxRead {
		return nil, fmt.Errorf("there are more than %d messages", maxRead)
	}
	return all, rows.Err()
}

func scanEnqueued(rows *sql.Rows) (e Enqueued, err error) {
	var target, key, request, trace []byte
	var notBefore, notAfter int64
	if err := rows.Scan(&e.Seq, &target, &key, &request, &trace, &notBefore, &notAfter); err != nil {
		return Enqueued{}, err
	}
	frozen, err := orbit.ParseSubmission(request)
	if err != nil {
		return Enqueued{}, fmt.Errorf("request of row %d: %w", e.Seq, err)
	}
	e.Target, e.Key, e.Traceparent = string(target), string(key), string(trace)
	e.Request, e.Digest = frozen.Request, frozen.Digest
	e.NotBefore, e.NotAfter = timeOf(notBefore), timeOf(notAfter)
	return e, nil
}

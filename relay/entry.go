package relay

import (
	"context"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// An entry is a row on its way from the reader to the ledger.
type entry struct {
	row  outbox.Row
	read time.Time // by this process's clock, when row.ReadAt was the database's
	size int       // reserved in its pipe

	gateTrial, laneTrial bool // the row tries whether more may follow

	// suspect: the leader before was not able to say that it had no answer for this
	// row. It may have sent it, and it may have died of it.
	suspect bool
	// alone: the row's batch was refused as a whole.
	alone bool
}

// now returns the database's time, as far as this process can tell without asking.
func (e *entry) now() time.Time { return e.row.ReadAt.Add(time.Since(e.read)) }

// uncertain reports whether an earlier send may have been accepted.
func (e *entry) uncertain() bool { return e.suspect || e.row.Last.Unknown }

// company returns how many rows may share a request with this one. A row whose outcome
// stays unknown may be the reason for it: it takes fewer and fewer others along.
func (e *entry) company(most, ramp int) int {
	switch {
	case e.alone, e.gateTrial, e.laneTrial, e.row.Operation != outbox.OperationSubmit:
		return 1 // a batch is of submits
	case e.suspect:
		most = min(most, ramp)
	}
	if e.row.Last.Unknown {
		most = max(1, most>>min(2*e.row.Attempts, 16))
	}
	return most
}

// sendAlone sends the row in a request of its own.
func (e *entry) sendAlone(ctx context.Context, c *orbit.Client, traceparent string) (orbit.Answer, error) {
	if e.row.Operation == outbox.OperationCancel {
		return c.CancelFrozen(ctx, e.row.CancelTaskID, e.row.Key, e.row.Request, traceparent)
	}
	return c.SubmitFrozen(ctx, e.row.Key, e.row.Request, traceparent)
}

// acceptedAt returns when the platform took the command, by its clock.
func (e *entry) acceptedAt(t *orbit.Task) time.Time {
	switch {
	case e.row.Operation != outbox.OperationCancel:
		return t.CreatedAt
	case t.CancelRequestedAt != nil:
		return *t.CancelRequestedAt
	}
	return t.UpdatedAt
}

func (e *entry) item() orbit.FrozenItem {
	return orbit.FrozenItem{Key: e.row.Key, Body: e.row.Request, Traceparent: e.row.Traceparent}
}

// unsendable returns why the row must not be sent (any more), or OutcomeNone. Only its
// target's server says how long a key is known.
func (e *entry) unsendable(window time.Duration) (outbox.Outcome, string) {
	now := e.now()
	switch {
	case !e.row.Intact():
		return outbox.OutcomeDamaged, "stored request does not match its SHA-256"
	case e.row.Operation != outbox.OperationSubmit && e.row.Operation != outbox.OperationCancel:
		return outbox.OutcomeDamaged, "the operation is none that this relay knows"
	case now.Sub(e.row.WindowFrom) >= window:
		return outbox.OutcomeTooOld, "the server may not know the key any more: a second task could come of it"
	case !e.row.NotAfter.IsZero() && !now.Before(e.row.NotAfter) && !e.row.LateAllowed:
		return outbox.OutcomeExpired, "the time to send has passed"
	}
	return outbox.OutcomeNone, ""
}

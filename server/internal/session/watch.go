package session

import (
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// A Watch is told what happens on connections of workers. Its functions must not block; one
// that is left out is not called.
type Watch struct {
	// Answered is told of each message of a worker that needs the database: how long it took
	// from its arrival to its answer, and why it was not done. Code is empty if it was done,
	// else the code of the refusal or the status of a report or resume that came too late.
	Answered func(message string, took time.Duration, code string)
	// Batched is told of each batch of such messages, which is one transaction as a rule.
	Batched func(message string, items int, took time.Duration, err error)
	// Closed is told why a connection ends: one of the Closed constants.
	Closed func(cause string)
}

// Why connections end.
const (
	ClosedByWorker   = "worker"               // it closed the connection, or was lost
	ClosedWrite      = "write"                // nothing could be written in time
	ClosedOverflow   = "overflow"             // it did not read its answers
	ClosedReplaced   = "replaced"             // its process connected again
	ClosedCredential = "credential"           // its credential counts no more, or may do less
	ClosedProtocol   = "protocol"             // it broke the protocol
	ClosedRefused    = "refused"              // its registration was not taken
	ClosedStop       = "node_stops"           // the node stops
	ClosedOther      = "other"                //
	notRead          = "answers are not read" // the reason of ClosedOverflow
)

// Messages that need the database, as a Watch is told of them.
const (
	messageStart  = wire.TypeStart
	messageResume = wire.TypeResume
	messageRenew  = wire.TypeRenew
	messageFinish = wire.TypeFinish
	messageReturn = wire.TypeReturn
	messageDrain  = wire.TypeDrain
)

func (w Watch) orNobody() Watch {
	if w.Answered == nil {
		w.Answered = func(string, time.Duration, string) {}
	}
	if w.Batched == nil {
		w.Batched = func(string, int, time.Duration, error) {}
	}
	if w.Closed == nil {
		w.Closed = func(string) {}
	}
	return w
}

func closedBy(code int, reason string) string {
	switch code {
	case websocket.CloseNormalClosure:
		return ClosedByWorker
	case websocket.CloseAbnormalClosure:
		return ClosedWrite
	case wire.CloseReplaced:
		return ClosedReplaced
	case wire.CloseUnauthenticated:
		return ClosedCredential
	case wire.CloseProtocolError:
		return ClosedProtocol
	case websocket.CloseGoingAway:
		return ClosedStop
	case websocket.CloseTryAgainLater:
		return ClosedRefused
	case websocket.ClosePolicyViolation:
		if reason == notRead {
			return ClosedOverflow
		}
		return ClosedRefused
	}
	return ClosedOther
}

// watched has a batcher tell w of its batches and answers. Code tells why an item was not
// done, or nothing.
func watched[Q, A any](b *batcher[Q, A], w Watch, message string, code func(*A) string) {
	b.told = func(batch []job[Q, A], answers []A, took time.Duration, err error) {
		w.Batched(message, len(batch), took, err)
		for i := range batch {
			why := orbit.CodeUnavailable
			if err == nil {
				why = code(&answers[i])
			}
			w.Answered(message, time.Since(batch[i].at), why)
		}
	}
}

// watch has all batchers tell w.
func (h *Hub) watch(w Watch) {
	watched(h.starts, w, messageStart, func(a *dispatch.Started) string { return codeOf(a.Refusal) })
	watched(h.renewals, w, messageRenew, func(a *dispatch.Renewed) string { return codeOf(a.Refusal) })
	watched(h.returns, w, messageReturn, func(a *dispatch.Returned) string { return codeOf(a.Refusal) })
	watched(h.drains, w, messageDrain, func(*struct{}) string { return "" })
	watched(h.resumes, w, messageResume, func(a *dispatch.Resumed) string {
		return codeOr(a.Refusal, a.Status, wire.ResumeKeep)
	})
	watched(h.finishes, w, messageFinish, func(a *dispatch.Finished) string {
		return codeOr(a.Refusal, a.Status, wire.FinishRecorded)
	})
}

func codeOf(r *dispatch.Refusal) string {
	if r == nil {
		return ""
	}
	return r.Code
}

// codeOr is the code of a refusal, or a status that is not the good one.
func codeOr(r *dispatch.Refusal, status, good string) string {
	if r == nil && status != good {
		return status
	}
	return codeOf(r)
}

// Stats are counts of the moment.
type Stats struct {
	Connections int // open sockets, those included whose hello is under way
	Sessions    int // registered processes
	FreeSlots   int // assignments that they take now: credit within capacity
	Held        int // attempts that they hold, as far as is known here
}

// Stats counts what is connected now. It takes time in proportion to that.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	s := Stats{Connections: len(h.open), Sessions: len(h.sessions)}
	h.mu.Unlock()
	connected := h.connected()
	h.board.mu.Lock()
	defer h.board.mu.Unlock()
	for _, one := range connected {
		s.FreeSlots += max(0, one.slots())
		s.Held += len(one.place.held)
	}
	return s
}

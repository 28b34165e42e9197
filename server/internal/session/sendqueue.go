package session

import (
	"sync"
	"time"

	"github.com/orbitkit/orbit/server/internal/dispatch"
)

const (
	// assignRoom bounds the payload bytes of assignments that wait to be written to one
	// connection. More is claimed for it only while the largest payload still fits.
	assignRoom = 1 << 20
	// answerRoom bounds the answers that wait. Who does not read them is disconnected.
	answerRoom = 4 << 20
)

// An assignment is a grant on its way to its worker.
type assignment struct {
	grant *dispatch.Grant
	at    time.Time // when its lease and deadline were counted
}

// A sendQueue holds what waits to be written to a connection, bounded by bytes. Answers
// go before assignments, so that a renewal never waits behind payloads.
type sendQueue struct {
	ready chan struct{} // something waits

	mu          sync.Mutex
	answers     [][]byte
	answerBytes int
	assigns     []assignment
	assignBytes int
}

func newSendQueue() *sendQueue { return &sendQueue{ready: make(chan struct{}, 1)} }

// answer adds a frame and reports false if there is no room for it.
func (q *sendQueue) answer(frame []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.answerBytes+len(frame) > answerRoom {
		return false
	}
	q.answers = append(q.answers, frame)
	q.answerBytes += len(frame)
	q.signal()
	return true
}

// assign adds an assignment. Its room was found before it was claimed.
func (q *sendQueue) assign(a assignment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.assigns = append(q.assigns, a)
	q.assignBytes += len(a.grant.Payload)
	q.signal()
}

func (q *sendQueue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// room is how many payload bytes may be assigned now.
func (q *sendQueue) room() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return assignRoom - q.assignBytes
}

// next removes what is to be written next: an answer, or else an assignment.
func (q *sendQueue) next() (frame []byte, a assignment, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.answers) > 0 {
		frame = q.answers[0]
		q.answerBytes -= len(frame)
		if q.answers = q.answers[1:]; len(q.answers) == 0 {
			q.answers = nil
		}
		return frame, assignment{}, true
	}
	if len(q.assigns) == 0 {
		return nil, assignment{}, false
	}
	a = q.assigns[0]
	q.assignBytes -= len(a.grant.Payload)
	if q.assigns = q.assigns[1:]; len(q.assigns) == 0 {
		q.assigns = nil
	}
	return nil, a, true
}

// unsent removes and returns the assignments that were not written.
func (q *sendQueue) unsent() []assignment {
	q.mu.Lock()
	defer q.mu.Unlock()
	rest := q.assigns
	q.assigns, q.assignBytes = nil, 0
	return rest
}

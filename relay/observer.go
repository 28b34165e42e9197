package relay

import (
	"time"

	"github.com/orbitkit/orbit/outbox"
)

// An Observer is told what a relay does, such as package relaymetrics. Its methods are
// called from many goroutines and must not block. Targets are those that the relay was
// made with, so there are few.
type Observer interface {
	// Requested reports a request with so many rows, from dialling to the end of its
	// answer or of the patience for it.
	Requested(target string, rows int, took time.Duration)
	// Answered reports what an answer, or the lack of one, means for a row.
	Answered(target string, outcome outbox.Outcome)
	// Accepted reports a row that became a task, and how long after it was enqueued, or
	// after its earliest time to be sent, by the database's clock.
	Accepted(target string, lag time.Duration)
	// LeaseLost reports that a lead ended because another relay leads.
	LeaseLost(shard int)
}

// nobody observes nothing.
type nobody struct{}

func (nobody) Requested(string, int, time.Duration) {}
func (nobody) Answered(string, outbox.Outcome)      {}
func (nobody) Accepted(string, time.Duration)       {}
func (nobody) LeaseLost(int)                        {}

// lag returns how long a row has been waiting to be sent.
func (e *entry) lag() time.Duration {
	from := e.row.CreatedAt
	if e.row.NotBefore.After(from) {
		from = e.row.NotBefore
	}
	return max(0, e.now().Sub(from))
}

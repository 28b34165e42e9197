// Package relay forwards what the outbox holds to task servers, under the same keys and
// byte for byte, until each row has an exact answer.
//
// A relay leads shards. For each one, under a lease:
//
//	outbox ──► reader ──► pipe per target ──► senders ──► task server
//	   ▲       lanes in turn,   bounded by      batches        │
//	   │       no claim         bytes           overlap        │ answer
//	   └────────────────────── ledger ◄──────── classify ◄─────┘
//	           one statement per outcome of what gathered
//	           while the last commit ran, or in 10 ms
//
// Which rows are in flight is known in memory only; reading them writes nothing, and no
// database transaction is ever open during a request. A relay that dies is followed,
// when its lease has ended, by another one that sends the same keys and bytes again:
// the server answers with the first receipt, and one task exists.
//
// # Answers
//
// The table of answers is closed. Accepted, refused, conflicting and blocked rows are
// settled; whatever the table does not list is an unknown outcome: the row stays, with a
// mark, and is sent again later. Only Orbit speaks for Orbit: what a proxy says about a
// row settles nothing.
//
// # Gates
//
// Each target has a gate. It is closed until the server has proved to be Orbit and to
// serve the right namespace. It closes again when the credential fails, when a request
// is redirected and while the server cannot be reached; it then opens for one row
// first. A full queue holds its lane alone, a full application its target.
//
// # Wake-up
//
// A relay sleeps while there is nothing to do. [Relay.Notify], a hook of the same
// process and POST /nudge of [Relay.Handler] wake it; they carry no data, and losing
// one costs no more than a poll. It then reads the lanes that had rows lately in one
// statement, sends what that finds, and looks at all lanes afterwards.
package relay

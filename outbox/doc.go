// Package outbox freezes submit requests in the transaction of the business change
// that calls for them, and gives a relay and its operators what they need to deliver
// them.
//
//	business transaction        relay                                operator
//	  change + Enqueue  ──►  PENDING ── accepted ────► DELIVERED
//	                            │ ├──── refused ─────► REJECTED ──────► DISCARDED
//	                            │ └──── needs person ► BLOCKED ───────► DISCARDED
//	                            └─ unknown, later: same key, same bytes   or PENDING
//
// A row exists if and only if the business change is committed. Its key, its request
// bytes and its target never change; every send uses exactly these, so that a repeat
// is the same command and the platform makes one task of all of them. DELIVERED means
// that the platform has taken the command, not that the business work is done.
//
// An unknown outcome (timeout, broken connection, 5xx) is neither success nor failure:
// the row stays PENDING with a mark, and only an exact answer to its key closes it.
//
// # Leaders
//
// Each shard is led by one relay at a time, under a lease that the database's clock
// judges. There is no claim of a row: the leader knows in memory what it has in
// flight. Each change of leader raises the epoch, and every settle is conditional on
// it in the same statement, so a deposed leader writes nothing. What it has sent does
// no harm, since key and bytes are the same.
//
// # Order
//
// None is promised, neither for acceptance nor for execution: seq is only a name. Two
// operations that must not run at once share a ConcurrencyKey.
//
// # Traces
//
// The trace of the business transaction can be frozen with its rows ([Config]). Package
// outboxtrace does so with OpenTelemetry, of which this package knows nothing.
//
// # Connections
//
// Enqueue runs on the caller's own connection, whatever its isolation level, time zone
// and flags: times are integers from the database's clock, and identities are bytes.
// It locks no row that a relay settles, with one exception: a repeat in a SERIALIZABLE
// transaction of MySQL locks the first row until that transaction ends. No credential is
// ever stored in a row.
package outbox

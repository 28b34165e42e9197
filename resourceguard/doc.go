// Package resourceguard lets the owner of a resource refuse writes that come too
// late, in the owner's own database transaction.
//
// The task server gives every attempt that holds a resource key a token, larger than
// all tokens of that key before it. The server cannot recall a request that has left:
// an attempt whose lease ended may still be running, and its write may arrive after
// that of its successor. Only the resource itself can refuse it. [Guard.Apply] does
// so in one atomic step, beside the business write:
//
//	authorise ─► lock the key's row ─► token < highest ───────────────► ErrStale
//	                  │                token = highest, other attempt ─► ErrTokenCollision
//	                  ▼
//	             look for the operation ─► there, other content ──────► ErrOperationConflict
//	                  │                 └► there, same content ─► raise ─► Replayed, its receipt
//	                  ▼
//	             record it ─► raise ─► fn, the business write ─► keep its receipt ─► Applied
//
// Everything happens in the transaction that the caller hands in, and commits or
// rolls back with it: highest token, record of the operation and business write. The
// package keeps nothing in memory. It runs on MySQL 8.0.16+, MariaDB 10.6+, SQLite
// 3.42+ and PostgreSQL 15+ through database/sql and imports no driver. Its tables are the
// migration set "guard", applied to the owner's database. Keys stay in them for ever;
// [Guard.Prune] deletes the records of operations when they are old enough.
//
// # Three duties of the resource's owner
//
// A token alone protects nothing. Whoever owns the resource has to provide
//
//  1. the atomic token check: compare and raise in the same transaction as the write,
//     never as a question first and a write later ([Guard.Apply]);
//  2. operation idempotency: an operation identity that stays the same over all
//     retries of the task, so that a repeat is answered from the record and not
//     written twice ([Write].Operation);
//  3. where the business needs it, a freeze of its own: the platform releases a key
//     when an attempt ends with an unknown effect, so a rule such as "nothing moves
//     while that is being looked into" is a state of the business, checked in fn or
//     [Config].Check.
//
// A token is no credential. Authenticate the caller first; [New] asks for a function
// that decides what the caller may write, and there is no default.
//
// # What a guard cannot refuse
//
// The guard knows the highest token that has reached it. It refuses a late write only
// after it has seen a higher token; as long as the successor's token has not arrived,
// the local maximum cannot prove that an old lease is still valid, and the old write
// is taken. [Guard.Raise] makes that window small: a worker raises the resource before
// its first effect. Where that is not enough, the owner adds its own condition, an
// authorisation check or a version of the business row, as [Config].Check or in fn.
//
// Nor can it judge what leaves the transaction. A remote call inside fn happens even
// if the transaction rolls back, and is made while the key's row is locked.
//
// # Transactions
//
// Run Apply early in a short transaction: its key's row is locked until the end, and
// is the point where writers of one key wait for each other. A transaction that
// writes to several keys takes them in one fixed order. Any isolation level will do;
// verdicts come from locking reads, never from a snapshot or a count of affected rows.
//
// ErrStale, ErrTokenCollision, ErrOperationConflict and ErrRefused leave a transaction
// that may be committed; after any other error it must be rolled back. After
// [ErrRetryable] run the whole transaction again; [Guard.Retryable] says of other errors,
// that of Commit among them, whether they ask for the same. If the answer to COMMIT is
// lost, run it again too: the same operation is applied if it was not, and replayed if it
// was.
package resourceguard

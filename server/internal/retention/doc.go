// Package retention deletes what is old enough: a task at its end with everything that
// belongs to it, and records of idempotency keys that belong to no task.
//
// # What goes, and when
//
// A task goes, in one transaction, with its attempts, evidence, events, reviews and the
// records of its keys: that of the submit or manual retry that made it, those of the
// cancels and reviews that acted on it. It goes when
//
//   - it is SUCCEEDED, FAILED or CANCELLED,
//   - it has been so for the configured age, and
//   - the last retention deadline among its records has passed: what a submitter was
//     promised is never cut short (IDEM-017).
//
// A record without a task, of a change of a queue or an application, goes when its deadline
// has passed and it is as old as the age. Everything else stays: tasks under review, rows of
// resource keys (KEY-016), the audit, counters of quotas.
//
// # How
//
// A run walks the records by their deadline, a page at a time; each task is judged where
// its last record stands. Candidates are deleted in transactions that are bounded in tasks,
// rows and bytes; a task that is larger than the bound goes alone. Between transactions the
// run rests as long as it has worked.
//
// Every candidate is judged again under lock. Locks are taken in the common order (LIC-014)
// and none is waited for: what somebody else holds is left to the next run. So any number
// of nodes may run at one time, and submits wait for none of them.
package retention

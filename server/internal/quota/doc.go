// Package quota holds applications and queues to their limits of unfinished tasks. A task
// is unfinished until it succeeds, fails or is cancelled: one that waits, runs, or needs a
// review counts.
//
// # A counter only where there is a limit
//
// The number of unfinished tasks is stored beside the limit, and only while there is one.
// Every transaction that accepts tasks or may end some opens a [Ledger]: by one statement
// it reads, before any resource key and any task, the rows of the applications and then
// those of the queues (LIC-014). A row without a limit is read in share mode and never
// written, so it slows nobody down. A row with one is locked, counted in memory and
// written once for the whole batch.
//
// # Why the count is exact
//
// Who sets a limit locks the row, and so waits for all who read it without one and whose
// tasks are counted nowhere yet; then it counts the tasks and stores limit and number
// together. Who comes later finds the limit. A transaction that finds one where its node
// expected none has the wrong lock: it is rolled back and begins anew with the right one
// (REF-QUOTA-002).
package quota

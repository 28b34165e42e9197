// Package command carries out commands on one thing: cancel, review and retry of a task,
// and changes of queues and of the application. Submits come in numbers and have package
// accept.
//
// # One transaction
//
// A command is one transaction: its idempotency record, what it changes, the event, the
// audit row and the receipt come into force together or not at all. Locks are taken in
// the order of LIC-014: the record's identity first, then quotas and queues, resource
// keys, the task and its attempts. So of several commands with one key one acts while the
// others wait for its identity, and then get its receipt (IDEM-020). A command that is
// refused is rolled back and leaves no record (IDEM-021).
//
// # Order of checks
//
// Authentication, the form of the request and the permission have been checked by the
// caller. Here follow (IDEM-019, AMB-071)
//
//	exists, and lies in the queues of the caller   also for a repeat (IDEM-004)
//	look the identity up                           a repeat gets the first receipt and ends here
//	revision and state, under the lock             else *StateConflictError
//
// # Unknown commits
//
// Each command leaves an audit row that names the request. If the answer to COMMIT is lost,
// that row, read from the primary on another connection, tells whether the command is in
// force; if it is not, the command is run again, and should the first commit still come
// into force, its identity or the revision stops the second. Only what cannot be looked up
// is reported as unknown.
package command

// Package accept takes submits and manual retries in, exactly once each.
//
// # One transaction for many
//
// A node has one committer. While it commits, further submits gather; the next
// transaction takes what is there, so a busy server pays a fraction of a commit for each
// task and an idle one adds no wait. Only a transaction that would be full begins beside
// others, for waiting would not make it larger. An answer is given after the commit and
// never before. What one member gets wrong is that member's own answer: if the database refuses
// a transaction, its members are taken one by one.
//
// # Order of checks
//
// Authentication, form and static rules, permission and queue scope have been checked by
// the caller. Here follow (IDEM-019)
//
//	look the identity up    a repeat gets the first receipt and ends here (left to the
//	                        insert below while no repeats are about)
//	state                   a manual retry of a task that is not at an end is refused
//	make resource-key rows  in a short transaction of their own; they may stay
//	insert the identity     two first submits with one key: one waits and becomes a repeat
//	rules of the moment     times against the database's clock, then the quotas of the
//	                        application and of the queue
//	insert the rest         task, event, audit, with the identity and its receipt
//
// A refused member takes its identity back in the same transaction, so that it leaves no
// record (IDEM-021).
//
// # Unknown commits
//
// If the answer to COMMIT is lost, each member is looked up by its identity and, if
// nothing is there, written again: should the first commit still come into force, the
// identity makes the second a repeat. Only what cannot be looked up is reported as
// unknown.
//
// # Parked or ready
//
// A delayed task goes to the timer. A task without a resource key is READY. A keyed one is
// parked if its key is busy, or if a READY task of its key and lane comes before it;
// parking is decided under a shared lock of the key's row, for a release that ran in
// between would not see the parked task. READY is only a hint, so that takes no lock.
package accept

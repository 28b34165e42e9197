// Package settle ends attempts and takes tasks out of line, and gives back what they
// held: it is the one place that releases a resource key and lets the next task of that
// key go (LIC-006).
//
// A [Settlement] belongs to one transaction. Opening it locks, in the order that every
// waiting lock of the server follows, the quotas of applications and queues (see package
// quota), the resource keys (by digest), the tasks (by id) and the attempts of those tasks
// (by id), and only then reads the clock: what it decides, it decides at a time at which
// it holds the locks. The caller judges the locked rows, ends some of them, and flushes.
// Where the node remembers all tasks and attempts as it wrote them last ([Rows]) they are
// not read: what is decided is written under the condition that they are still so, else the
// transaction runs anew under locks. A key permit is the pair (task, epoch) on the key's row, the queue permit is the live
// attempt row, so a release that is foreign or comes twice touches nothing (LIC-005,
// LIC-015). A task that ends leaves the quotas that counted it.
//
// A key that becomes free lets, in the same transaction, the best parked task of each
// lane go that has no READY task. READY is a hint only: whether the key is free, its row
// decides when a claim comes.
package settle

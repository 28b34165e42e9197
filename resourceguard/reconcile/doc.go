// Package reconcile decides about tasks in NEEDS_REVIEW, where a guarded resource can
// prove what became of their effect, and leaves every other task to people.
//
// An attempt that ended with an unknown outcome may have written, and may still be
// running. The reconciler makes an end of both questions, in this order:
//
//	NEEDS_REVIEW ─► raise the resource to the attempt's fence_token, commit
//	                   │      from here on the attempt cannot write any more
//	                   ▼
//	                look the operation up
//	                   ├─ recorded, same content ─► review: SUCCEEDED, its receipt as the result
//	                   ├─ absent ─────────────────► review: FAILED, and a manual retry if the rule says so
//	                   └─ anything else ──────────► left to people
//
// Each decision carries its evidence: the fence, the operation and what the record says.
//
// # What it needs of a handler
//
// A [Rule] is a promise of whoever writes it: every effect of a task of this handler is
// one guarded write, under the task's namespace and concurrency_key, with the operation
// and content that the rule tells, as package guardworker does by default. A handler with
// an effect beside the guard must have no rule: an absent operation would be taken for
// proof that nothing has happened.
//
// # What it leaves
//
// A task without a concurrency_key, of a handler without a rule, with a key that lies in
// no store, without an attempt that ended unknown, whose chain of retries cannot be
// followed to its root, whose operation was recorded with other content, whose absent
// record may have been pruned because of its age, or whose operation is absent while a later
// token was seen that may be that of another repeat of it. [Config].Observer is told the
// [Reason].
//
// # Repeats
//
// It keeps no state of its own. Every step may be repeated, by this process, by one beside
// it, or after a kill at any point: a raise changes nothing the second time, and reviews
// and retries carry keys made from the task. A person who decides first is never
// overruled: the review names the revision that was looked at. A review or retry whose answer is
// lost is sent again under its key, and is nothing until it is answered.
package reconcile

// Package handoff is the contract of handing a task over between processes: a step of
// the work of process A goes on in process B. It says where the hand-over point is,
// whether it is atomic, what makes a repeat harmless, who gets the receipt, and what
// happens when nobody acts in time. Without these, two errors pass unnoticed, since each
// looks normal by itself: both sides think that the other is responsible, or nobody is.
//
// Life cycle: Experimental (graded at v0.35.0). The package may change, be split or be
// removed; it promises no compatibility, and whoever upgrades does so at their own risk.
// The reason stands in api-lifecycle.yaml, the rules of grades in docs/api-compat.md.
//
// # What the package gives and what it does not
//
// It gives the contract ([Ticket], [Receipt], [Store]) and its judges
// ([Ticket.Validate], [Receipt.Validate] and [Check], which are pure functions, and
// [ConcurrentTake]). It gives no store that works across processes: tables, bounds of
// transactions and persistence belong to the host. [LocalDesk] proves that the contract
// can be kept, inside one process and nowhere else.
//
// # The hand-over
//
//	                 Take by To                Reply with the token
//	Offer ──► offered ─────────────► accepted ─────────────────────► closed
//	             │  │                   │
//	  Cancel by  │  └─────────┬─────────┘ the deadline has passed
//	  From       ▼            ▼
//	         withdrawn     expired                Offer after any end: the next generation
//
// Where is the hand-over point? The [Store]. It holds the tickets. A ticket is data and
// no message: handing over pushes nothing through a pipe, it rewrites who is responsible,
// once.
//
// Is it atomic? Responsibility goes from From to To in the one atomic operation of a
// successful Take. Before it From is responsible and may Cancel, after it To is and may
// Reply; there is no state in which both are. The store provides that, and
// [ConcurrentTake] judges it by its results.
//
// What is the idempotency key? [Ticket].Key, which comes from the caller's business; the
// package makes no keys. Offering a key again that has a ticket under way is a replay: it
// answers the ticket that is there. After the ticket has ended, offering is a new
// hand-over, and a new generation. Generations of a key only grow, so whoever comes late
// is refused by generation and token.
//
// Who gets the receipt? Who stands in [Ticket].ReplyTo, which is mandatory. It is not
// assumed that it goes to whoever offered: the source may have crashed meanwhile, and
// have come back under another identity. Only To may take ([ErrNotAddressee]). A reply is
// taken by the token that the store minted at Take, never by its content ([ErrLeaseLost]).
//
// What if time runs out? [Ticket].TTL is one time line for taking and replying together;
// the store computes the deadline from its own clock, since clocks of processes differ.
// A ticket that was not taken, or not replied to, when its deadline comes is
// [StateExpired]. A late Take and a late Reply are refused ([ErrExpired]), and the source
// may offer anew. A ticket without a time limit is invalid: it would leave a lock that
// nobody dares to touch.
//
// # Files
//
// contention.go holds ConcurrentTake, a judge and no style of testing: a host that runs
// its store through it has had the contract checked. judge.go holds Validate and Check;
// they stand in the package, and not only in its tests, so that a host can judge a
// snapshot of its store at any time. local.go holds LocalDesk with its injected clock.
// Package handofftest holds the whole conformance suite for stores of hosts.
package handoff

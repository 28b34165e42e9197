// Package dispatch gives tasks to workers and takes their results, as transactions on
// the database. It keeps no state of its own: any node may answer for any attempt.
//
// A claim (see [Dispatcher.Claim]) reads the head of the lanes that workers can take,
// passing over what others hold, then the resource keys of what it found, also passing
// over; it waits for no task and no key. Each condition is checked on the locked rows:
// two nodes that saw the same free key give one claim (LIC-020). Task, key, attempt and
// event change together or not at all (LIC-001, LIC-012).
//
// Everything that follows names the attempt and its epoch, and may be repeated: the
// answer to a repeat is the stored one, and a late word is told apart exactly
// ([Refusal], and the statuses of [Finished]).
//
//	WAITING ──Claim──▶ LEASED ──Start──▶ RUNNING ──Finish──▶ SUCCEEDED, FAILED, CANCELLED,
//	   ▲                  │                 │                 WAITING (retry), NEEDS_REVIEW
//	   └──Return, expiry──┘                 └─expiry─▶ NEEDS_REVIEW, WAITING (idempotent)
//
// All methods take slices and write them in one transaction: commits bound the
// throughput, so callers gather what arrives while the last commit runs. One bad item
// never fails its neighbours: it is then run by itself.
package dispatch

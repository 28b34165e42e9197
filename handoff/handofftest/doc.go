// Package handofftest is the conformance suite of hand-over stores. It holds any
// implementation of handoff.Store to a model of the contract: replays and generations,
// who may take, reply and cancel and in which order refusals apply, deadlines to the
// microsecond, crashes after Take, bytes that must not change, and races, whose histories
// must be linearizable.
//
// The owner of a store gives the suite a fresh one, and a clock to turn, for each clause:
//
//	func TestStoreKeepsTheContract(t *testing.T) {
//		handofftest.Run(t, func(ctx context.Context) (handofftest.Host, error) { return openHost(ctx) })
//	}
//
// [Check] does the same without package testing, but for the last clause, which rapid
// plays. What a host cannot do, for want of [Host].Reopen or Receipt, is reported as
// skipped, never as passed.
//
// Each refusal has to be the sentinel of package handoff, invalid arguments a
// *handoff.InvalidError. Any other error is a fault and fails the clause.
//
// Life cycle: Experimental, as that of package handoff.
package handofftest

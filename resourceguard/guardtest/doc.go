// Package guardtest is the conformance suite of resource guards. It proves of any
// guard, whatever store it protects, that late writes are refused, repeats are
// answered from the record, keys and tokens are exact, a rollback restores
// everything, and races change none of this.
//
// The owner of a store wraps it into a [Store], a log per resource key that is written
// through the guard, and runs the suite on it:
//
//	func TestGuard(t *testing.T) {
//		guardtest.Run(t, func(ctx context.Context) (guardtest.Store, error) { return openStore(ctx) })
//	}
//
// [Check] does the same without package testing, for a readiness probe or a command.
//
// What a store cannot do is reported as not evaluated, never as passed: it lacks one
// of the optional interfaces [Raiser], [Looker] and [Reopener], or answers
// [ErrUnsupported]. A race in which no two writes were under way at the same moment
// proves nothing: it is run again, and reported as not evaluated if that never happens.
package guardtest

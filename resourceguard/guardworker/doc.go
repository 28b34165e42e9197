// Package guardworker carries an attempt of a worker into a resource guard, for the
// usual handler: one whose whole effect is one guarded write in a database of its own.
//
//	stock, err := guardworker.New(guard, stockDB)
//
//	Handlers: map[worker.Handler]worker.HandlerFunc{
//		{Name: "stock.reserve", Version: "v1"}: worker.Wrap(reserve, stock.Fence),
//	}
//
//	func reserve(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
//		return stock.Apply(ctx, e, takeOut)
//	}
//
// [Resource.Fence] raises the resource to the attempt's token before the handler has any
// effect, so that an earlier attempt that still runs is shut out at once.
// [Resource.Apply] does the write under the identity that stays the same over all attempts
// and manual retries (AMB-073), runs it again where that is safe, and returns the error
// that ends the attempt as what is known of it: nothing written is a failure, and only an
// unknown COMMIT is UNKNOWN.
//
// A handler that writes more than once takes [Write] and [Resource.Transact]. One that runs
// its transaction by itself hands the error to [Outcome], which cannot know as much.
package guardworker

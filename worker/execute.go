package worker

import (
	"context"
	"errors"
)

// Execute calls f for one attempt as a Worker does, and returns the report that a Worker
// would send: it turns panics and errors into outcomes and holds results and texts to
// their bounds (WRK-026). The error is what a Worker would tell Config.OnError: a
// [*PanicError], or an [*orbit.InvalidArgumentError] about a result that cannot be
// reported or a text that had to be shortened. There is a report all the same.
//
// Execute is for those who build their own runner on Conn: it waits for f, and keeps no
// lease. A cancel intent, the end of the lease and the attempt's timeout have to end ctx,
// with one of this package's causes.
func Execute(ctx context.Context, f HandlerFunc, e Execution) (Report, error) {
	done := make(chan answer, 1)
	go call(ctx, f, e, done) // its own goroutine, since f may end it
	got := <-done
	report, err := newReport(got.result, got.err, errors.Is(context.Cause(ctx), ErrCancelRequested))
	if got.panicked != nil {
		err = errors.Join(got.panicked, err)
	}
	return report, err
}

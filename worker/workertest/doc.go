// Package workertest tests handlers and worker programs without a task server, a database
// or, if wanted, a socket.
//
// [Run] calls one handler for one attempt, as a worker would, and returns what a worker
// would report. [Start] does the same while the test takes part: it asks for a cancel,
// takes the lease away, or lets the attempt's time pass.
//
//	func TestReserve(t *testing.T) {
//		got := workertest.Run(t, reserve, workertest.Execution{
//			Task: worker.Task{Payload: json.RawMessage(`{"order":17}`), ConcurrencyKey: "stock/7"},
//		})
//		if got.String() != `SUCCEEDED {"left":1}` {
//			t.Error(got)
//		}
//	}
//
// [NewServer] is a task server in memory for a whole worker program: real WebSockets over
// TLS, tasks with leases, tokens and retries, and faults on demand.
//
// [Listen] is the bare other end of a worker's connection, on which the test says each
// word itself.
//
// Nothing here sleeps. Inside [testing/synctest] the timeouts and leases run on the
// bubble's clock, so that an hour costs nothing; Server and Listener then need InMemory.
package workertest

// A TB is what the package needs of a [testing.TB].
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

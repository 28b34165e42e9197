// Package worker runs tasks: it connects to a task server, takes attempts, and
// calls handlers for them.
//
// A [Worker] does everything by itself. It starts each attempt, renews its lease
// every third of it, resumes after a lost connection, repeats a result until the
// server has confirmed it, and drains when it is told to stop:
//
//	w, err := worker.NewWorker(url, token, worker.Config{
//		Queues:   []string{queueID},
//		Capacity: 4,
//		Handlers: map[worker.Handler]worker.HandlerFunc{
//			{Name: "object.update", Version: "v1"}: updateObject,
//		},
//	})
//	…
//	err = w.Run(ctx) // nil after a clean drain
//
// # The life of an attempt
//
//	          ┌ refused, lost ─────────────────────────► forgotten, no handler ran
//	assigned ─┤ draining ──► returned ─────────────────► forgotten, no handler ran
//	          └ start ─► confirmed ─► running ─► finish ─► confirmed ─► forgotten
//	                                    │
//	                                    └ right lost: the context ends, the result is still sent
//
// An attempt lives through any number of connections. The handler is called once
// for an attempt, and only after the server has confirmed the present right to
// execute. The lease, not the connection, decides how long that right lasts: the
// worker measures it on its own monotonic clock, from before it asked for it, less
// a margin. When it ends the handler's context is cancelled with one of the causes
// [ErrLeaseLost], [ErrAttemptTimeout], [ErrCancelRequested] or [ErrDraining]
// (see [context.Cause]).
//
// A cancelled context cannot recall a request that has already left. Who writes to
// a shared resource therefore hands the attempt's ConcurrencyToken to the resource,
// which refuses outdated writes (package resourceguard), and uses OperationRoot as
// the stable identity of the operation. A process that gets no processor time cannot
// renew: its handlers find their context cancelled when it runs again.
//
// # What a handler's answer means
//
//	return result, nil                SUCCEEDED
//	return nil, worker.Failed(err)    FAILED, final: nothing happened, and a repeat would fail too
//	return nil, worker.Retryable(err) FAILED, may be repeated: nothing happened
//	return nil, worker.Cancelled(err) CANCELLED: stopped cleanly after a cancel request
//	return nil, worker.Unknown(err)   UNKNOWN: there may be an effect
//	return nil, err                   UNKNOWN, like a panic
//
// A plain error is UNKNOWN on purpose. A handler that gets an error from a network
// call cannot know whether the other side has acted; reporting that as a failure
// would state something nobody knows, and a keyed retry could act twice. UNKNOWN
// costs nothing where a repeat is harmless: the server runs a task with recovery
// safety IDEMPOTENT again, and hands only RECONCILE_ONLY tasks to a person. A
// handler that does know says so with one of the functions above.
//
// # Capacity, middleware, a look inside
//
// Config.Capacity bounds what all handlers together hold; Config.HandlerCapacity bounds
// what one of them holds of that, such as one for a device that takes one job at a time.
// Config.Middleware surrounds every handler. [Worker.Slots] shows what each slot is
// occupied with, also by a handler that ignores the end of its context.
//
// Package workertest calls handlers without a server, and runs whole workers against a
// server in memory that loses answers, connections and leases on demand.
//
// # Under the automatic worker
//
// [Dial] and [Conn] are the protocol itself, one method for each message, for those
// who build their own runner. [Execute] calls a handler for them as a Worker does.
package worker

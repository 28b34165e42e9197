package workertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// example stands for the *testing.T of a test function.
type example struct{ cleanups []func() }

func (*example) Helper()                           {}
func (*example) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *example) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }

func (t *example) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

// reserve is the handler under test.
func reserve(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	var order struct{ Pieces int }
	if err := json.Unmarshal(e.Task.Payload, &order); err != nil {
		return nil, worker.Failed(err)
	}
	if order.Pieces > 3 {
		return nil, worker.Failed(errors.New("not enough stock"))
	}
	return fmt.Appendf(nil, `{"left":%d,"token":%d}`, 3-order.Pieces, e.ConcurrencyToken), nil
}

// One call of a handler, and what a worker would report.
func ExampleRun() {
	t := new(example)
	for _, payload := range []string{`{"pieces":2}`, `{"pieces":4}`} {
		fmt.Println(workertest.Run(t, reserve, workertest.Execution{
			Task:             worker.Task{Payload: json.RawMessage(payload), ConcurrencyKey: "stock/7"},
			ConcurrencyToken: 17,
		}))
	}
	panics := func(context.Context, worker.Execution) (json.RawMessage, error) { panic("no such shelf") }
	fmt.Println(workertest.Run(t, panics, workertest.Execution{}))
	// Output:
	// SUCCEEDED {"left":1,"token":17}
	// FAILED, final: not enough stock
	// UNKNOWN: handler panicked: no such shelf
}

// A handler that is told to stop in the middle of its work.
func ExampleStart() {
	t := new(example)
	render := func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		e.Progress("first frame")
		<-ctx.Done() // where the next frames would be
		if errors.Is(context.Cause(ctx), worker.ErrCancelRequested) {
			return nil, worker.Cancelled(errors.New("nothing published"))
		}
		return nil, context.Cause(ctx) // the outcome is unknown
	}
	for _, end := range []func(*workertest.Call){
		func(c *workertest.Call) { c.RequestCancel("customer left") },
		(*workertest.Call).LoseLease,
	} {
		call := workertest.Start(t, render, workertest.Execution{})
		call.AwaitProgress("first frame")
		end(call)
		fmt.Println(call.Wait())
	}
	// Output:
	// CANCELLED: nothing published
	// UNKNOWN: worker: the right to execute was lost
}

// A whole worker against a server that loses the answer to its first report: the report is
// repeated on a new connection, and the handler does not run again.
func ExampleNewServer() {
	t := new(example)
	defer t.end() // a real test ends by itself
	server := workertest.NewServer(t, workertest.ServerConfig{})
	server.Inject(workertest.Fault{Message: workertest.MessageFinish, Lose: true})
	drain := server.Work(worker.Config{
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "stock.reserve", Version: "v1"}: reserve},
		Log:      slog.New(slog.DiscardHandler),
		OnError:  func(error) {}, // the lost connection
	})
	id := server.Submit(orbit.SubmitTaskRequest{
		Handler: "stock.reserve", Payload: json.RawMessage(`{"pieces":2}`), ConcurrencyKey: "stock/7",
	})
	server.Want(id, orbit.StateSucceeded)
	drain()
	server.WantDrained()

	attempt := server.Task(id).Attempts[0]
	fmt.Printf("attempts=%d reports=%d result=%s\n", len(server.Task(id).Attempts), attempt.Finishes, attempt.Result)
	// Output: attempts=1 reports=2 result={"left":1,"token":1}
}

// The bare protocol: the test says each word of the server.
func ExampleListen() {
	t := new(example)
	defer t.end()
	listener := workertest.Listen(t, workertest.ListenerConfig{})
	done := make(chan error)
	go func() {
		_, err := worker.Dial(context.Background(), listener.URL(), "token", worker.Registration{
			ProcessID: worker.NewProcessID(), Capacity: 1, Queues: []string{"11111111111111111111111111111111"},
			Handlers: []worker.Handler{{Name: "stock.reserve", Version: "v1"}},
		}, listener.Network())
		done <- err
	}()
	conn := listener.Accept()
	hello := conn.Expect("hello")
	conn.Send("error", hello.ID, map[string]string{"code": "STATE_CONFLICT", "message": "the registration has changed"})
	fmt.Println(<-done)
	// Output: worker: server refused hello: STATE_CONFLICT: the registration has changed
}

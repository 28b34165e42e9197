package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/worker"
)

var errNoStock = errors.New("not enough stock")

// reserve stands for a write to the resource, which checks the token and knows an
// operation that it has applied before.
func reserve(ctx context.Context, key string, token uint64, operation string, order json.RawMessage) (int, error) {
	return 1, nil
}

// A worker that runs until the process is told to stop, and then drains.
func ExampleNewWorker() {
	credentials, err := orbit.LoadCredentials("credentials.json")
	if err != nil {
		log.Fatal(err)
	}
	w, err := worker.NewWorker("https://orbit.example:8443", credentials.Token, worker.Config{
		Queues:   []string{credentials.QueueID},
		Capacity: 4,
		Handlers: map[worker.Handler]worker.HandlerFunc{
			{Name: "stock.reserve", Version: "v1"}: func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
				left, err := reserve(ctx, e.Task.ConcurrencyKey, e.ConcurrencyToken, e.OperationRoot, e.Task.Payload)
				switch {
				case errors.Is(err, errNoStock):
					return nil, worker.Failed(err) // nothing happened, and that is known
				case err != nil:
					return nil, err // UNKNOWN: the write may have happened
				}
				return json.Marshal(map[string]int{"left": left})
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = w.Run(ctx)
	fmt.Printf("worker_drained=%t\n", err == nil)
}

// The protocol by hand: one attempt at a time, without renewals, so only for what
// takes much less than a lease.
func ExampleDial() {
	ctx := context.Background()
	c, err := worker.Dial(ctx, "http://127.0.0.1:8080", os.Getenv("ORBIT_TOKEN"), worker.Registration{
		ProcessID: worker.NewProcessID(),
		Handlers:  []worker.Handler{{Name: "stock.reserve", Version: "v1"}},
		Queues:    []string{"11111111111111111111111111111111"},
		Capacity:  1,
		// The resource checks the token, so keyed tasks may come.
		ConcurrencyKeys: true,
	}, worker.Network{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for {
		if err := c.Credit(ctx, 1); err != nil {
			log.Fatal(err)
		}
		event, err := c.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		a, ok := event.(*worker.Assignment)
		if !ok {
			continue // a cancel, or the node stops
		}
		if _, err := c.Start(ctx, a.Attempt); err != nil {
			continue // no right to execute
		}
		report := worker.Report{Receipt: worker.NewProcessID(), Outcome: orbit.OutcomeSucceeded}
		if _, err := reserve(ctx, a.Task.ConcurrencyKey, a.ConcurrencyToken, a.OperationRoot, a.Task.Payload); err != nil {
			report.Outcome, report.Error = orbit.OutcomeUnknown, err.Error()
		}
		if _, err := c.Finish(ctx, a.Attempt, report); err != nil {
			log.Fatal(err) // to be repeated on the next connection
		}
	}
}

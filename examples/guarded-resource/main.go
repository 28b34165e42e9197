// Guarded-resource runs two worker processes that write to one table. The first is stopped in
// the middle of its task, by SIGSTOP, until its right to execute is over; the second does
// the task. When the first goes on as if nothing had happened, the guard of the table
// refuses its write.
//
// It needs a task server that runs: go run ./cmd/orbit dev starts one and prints the file to
// name here. From the repository's root:
//
//	export ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json
//	go run ./examples/guarded-resource                                     # on a SQLite file of its own
//	GUARDED_DATABASE='mysql:user:pw@tcp(host:3306)/db' go run ./examples/guarded-resource
//
// The database is the resource owner's and has nothing to do with the task server's. It is
// prepared by orbit-migrate up --set guard, and by this program with its own table.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
)

const (
	databaseVariable = "GUARDED_DATABASE" // mysql:<DSN> or sqlite:<path>
	queueVariable    = "GUARDED_QUEUE"    // set for the processes that are started
)

func main() {
	if os.Getenv(queueVariable) != "" {
		demo.Main("guarded-resource", workAsProcess)
		return
	}
	demo.Main("guarded-resource", play)
}

func play(ctx context.Context, d *demo.Demo) error {
	address := os.Getenv(databaseVariable)
	if address == "" {
		dir, err := os.MkdirTemp("", "orbit-guarded-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		address = "sqlite:" + filepath.Join(dir, "resource.db")
	}
	s, err := prepare(ctx, address, d.Credentials.NamespaceID)
	if err != nil {
		return err
	}
	defer s.db.Close()
	queue, err := d.Queue(ctx, "writes")
	if err != nil {
		return err
	}
	key := d.Key("stock/pen")
	accepted, err := d.Client.SubmitTask(ctx, d.Key("take-2"), orbit.SubmitTaskRequest{
		QueueID: queue.ID, Handler: "stock.take", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: []byte(`{"product":"pen","quantity":2}`), ConcurrencyKey: key,
		RecoverySafety: orbit.RecoveryIdempotent, // the guard knows an operation that it has applied
		TaskTimeoutMS:  40_000,
		// A lease is not renewed past the end of the attempt: after three seconds the right is over.
		Retry: orbit.RetryPolicy{MaxAttempts: 2, AttemptTimeoutMS: 3_000, InitialDelayMS: 50, MaxDelayMS: 50},
	})
	if err != nil {
		return err
	}
	return contest(ctx, d, s, address, accepted.Task)
}

// contest lets the two processes meet.
func contest(ctx context.Context, d *demo.Demo, s *stock, address string, task orbit.Task) error {
	sleeper, err := start(ctx, address, task.QueueID)
	if err != nil {
		return err
	}
	defer sleeper.kill()
	first, err := sleeper.read() // it has raised the resource to its token and is about to write
	if err != nil {
		return err
	}
	if err := sleeper.pause(); err != nil {
		return err
	}
	fmt.Printf("first: attempt=%d fenced=%t stopped=true\n", first.Attempt, first.Token > 0 && s.highest(ctx, task) == first.Token)

	heir, err := start(ctx, address, task.QueueID)
	if err != nil {
		return err
	}
	defer heir.kill()
	second, err := heir.read()
	if err != nil {
		return err
	}
	if err := heir.goOn(); err != nil {
		return err
	}
	if second, err = heir.read(); err != nil {
		return err
	}
	ended, err := d.Client.WaitTask(ctx, task.ID)
	if err != nil {
		return err
	}
	greater := second.Token > first.Token
	fmt.Printf("second: attempt=%d token_is_greater=%t wrote=%t task=%s result=%s\n", second.Attempt, greater, second.Wrote, ended.State, ended.Result)

	late, err := sleeper.wake()
	if err != nil {
		return err
	}
	presented, highest := late.Presented == first.Token, late.Highest == second.Token
	fmt.Printf("late: stale=%t presented_first_token=%t highest_is_second_token=%t already_applied=%t\n", late.Stale, presented, highest, late.AlreadyApplied)
	return errors.Join(
		demo.Same("token of the second attempt is greater", greater, true),
		demo.Same("second attempt wrote", second.Wrote, true),
		demo.Same("state of the task", ended.State, orbit.StateSucceeded),
		demo.Same("late write is refused as stale", late.Stale && presented && highest, true),
		count(ctx, s, task), sleeper.stop(), heir.stop(),
	)
}

// count reads back what the database holds.
func count(ctx context.Context, s *stock, task orbit.Task) error {
	c, err := s.count(ctx, task)
	if err != nil {
		return err
	}
	fmt.Printf("counts: rows=%d taken=%d operations=%d written_by_second=%t\n", c.rows, c.taken, c.operations, c.attempt == 2)
	return errors.Join(
		demo.Same("number of rows", c.rows, 1), demo.Same("quantity taken", c.taken, 2),
		demo.Same("number of operations on record", c.operations, 1), demo.Same("attempt that wrote", c.attempt, 2),
	)
}

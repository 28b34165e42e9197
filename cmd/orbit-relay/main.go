// Command orbit-relay forwards the outbox of a business database to a task server.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes: a mistake in flags, environment, address or schema is the caller's to
// mend; anything else may go away by itself.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], environment{get: os.Getenv, out: os.Stdout, err: os.Stderr}))
}

func execute(ctx context.Context, args []string, env environment) int {
	root := newRoot(env)
	root.SetArgs(args)
	root.SetOut(env.out)
	root.SetErr(env.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(env.err, "orbit-relay: %v\n", err)
	return exitCode(err)
}

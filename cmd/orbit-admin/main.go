// Command orbit-admin makes what only an operator makes: the first application,
// namespace, queue and credential, and further credentials.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes: a mistake in flags, environment, database or schema is the caller's to mend;
// anything else is a refusal or may go away by itself.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], environment{get: os.Getenv, out: os.Stdout, err: os.Stderr}))
}

func run(ctx context.Context, args []string, env environment) int {
	root := newRoot(env)
	root.SetArgs(args)
	root.SetOut(env.out)
	root.SetErr(env.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(env.err, "orbit-admin: %v\n", err)
	return exitCode(err)
}

// Handoff-mysql hands work over between processes, through a table of MySQL, MariaDB or
// SQLite. The store is what a host would write of its own; it keeps the whole contract of
// package handoff, as handofftest proves in store_test.go, and is there to be copied:
//
//	store.go        the five operations, each one transaction on one row
//	row.go          the table's columns and statements
//	engine.go       what MySQL, MariaDB and SQLite do in different ways
//	transaction.go  reruns, and the outcome that nobody knows
//	schema-*.sql    the table
//
// The demonstration starts processes, kills one and holds one up:
//
//	go run ./examples/handoff-mysql                                  # on a SQLite file of its own
//	HANDOFF_DATABASE='mysql:user:pw@tcp(host:3306)/db' go run ./examples/handoff-mysql
//
// It needs no task server.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	databaseVariable = "HANDOFF_DATABASE" // mysql:<DSN> or sqlite:<path>
	processVariable  = "HANDOFF_PROCESS"  // set for the processes that the demonstration starts
)

// limit bounds a run, whatever happens.
const limit = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	if err := run(ctx, os.Getenv(databaseVariable), os.Stdin, os.Stdout); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w (%w)", err, cause)
		}
		fmt.Fprintf(os.Stderr, "handoff-mysql: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string, in io.Reader, out io.Writer) error {
	if os.Getenv(processVariable) != "" {
		return serve(ctx, address, in, out)
	}
	if address == "" {
		dir, err := os.MkdirTemp("", "orbit-handoff-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		address = "sqlite:" + filepath.Join(dir, "handoff.db")
	}
	return demonstrate(ctx, address, out)
}

// Quickstart runs Orbit's whole chain once, with things going wrong on purpose:
//
//	business transaction → outbox → relay → task server → worker → guarded resource
//
// An order business takes orders, some of which are rolled back. The relay is killed
// after the server has accepted its requests and before it could note that. A worker
// is paused past the end of its lease and writes too late. Another one loses the
// answer to its write. At the end the program counts what the three databases hold.
//
//	go run ./examples/quickstart                                   # SQLite, needs nothing
//	go run ./examples/quickstart --mysql 'user:pw@tcp(host:3306)/' # MySQL or MariaDB
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var dsn string
	var keep bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:           "quickstart",
		Short:         "Run Orbit's whole chain once, with faults, and count the result",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), limit, fmt.Errorf("not done after %v", limit))
			defer cancel()
			err := play(ctx, cmd.OutOrStdout(), dsn, keep)
			if err != nil && ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dsn, "mysql", "", "run on this MySQL or MariaDB server; makes and drops databases of its own (user:password@tcp(host:port)/)")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the databases and logs")
	cmd.Flags().DurationVar(&limit, "limit", 10*time.Minute, "give up after this long")
	return cmd
}

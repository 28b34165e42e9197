package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

const verifyLong = `verify holds all tasks, attempts, permits, counters and events of the database against each
other, as they are at one moment, and prints a line for each contradiction, at most 20 of a
kind. It changes nothing; nodes may run. Exit code 1 means that there is one: keep a copy of
the database and report it.

It reads every row, several times: seconds for 100,000 tasks, minutes for millions, and all
that time the database keeps the snapshot. Not for a busy hour.`

func newVerify(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	c := &cobra.Command{
		Use:   "verify",
		Short: "Look for contradictions in the data",
		Long:  verifyLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd.Context(), env, func(db *sqldb.DB) error { return verify(cmd.Context(), db, &out) })
		},
	}
	out.Register(c.Flags())
	return c
}

// A verified is what verify has found, in the form that --json prints.
type verified struct {
	Violations []string `json:"violations"`
}

func verify(ctx context.Context, db *sqldb.DB, out *cli.Format) error {
	found, err := server.Verify(ctx, db)
	if err != nil {
		return err
	}
	err = out.Print(verified{append([]string{}, found...)}, func(w io.Writer) {
		if len(found) == 0 {
			fmt.Fprintln(w, "tasks, attempts, permits and events agree")
		}
		for _, line := range found {
			fmt.Fprintln(w, cli.Plain(line))
		}
	})
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("contradictions found: %d", len(found))
	}
	return err
}

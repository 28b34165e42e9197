package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
)

func newPurge(env cli.Environment) *cobra.Command {
	a := newActor(env)
	var older string
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete delivered rows of some age",
		Long: `purge deletes rows that were DELIVERED at least --older-than ago, in small batches, with
the answers in their journal. Rows in any other state stay, and so do audit rows. A purged
row ends the detection of its duplicate in the outbox; the server goes on knowing its key
for 90 days. Relays purge by themselves: see run --retain.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			age, err := cli.ParseDuration(older)
			if err != nil || age <= 0 {
				return cli.Usage(fmt.Errorf("--older-than %q: must be a duration such as 30d or 12h", older))
			}
			if err := a.check(); err != nil {
				return err
			}
			db, store, err := openOutbox(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer db.Close()
			rows, err := store.PurgeAll(cmd.Context(), age, a.act)
			if err != nil && rows == 0 {
				return err
			}
			return errors.Join(a.report(did{Action: "purge", Count: rows}, fmt.Sprintf("purge: %d rows", rows)), err)
		},
	}
	cmd.Flags().StringVar(&older, "older-than", "", "least `age` since delivery, such as 30d; required")
	a.register(cmd.Flags())
	return cmd
}

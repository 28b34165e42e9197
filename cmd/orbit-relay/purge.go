package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

func newPurge(env environment) *cobra.Command {
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
			age, err := parseAge(older)
			if err != nil {
				return flagged(err)
			}
			if err := a.check(); err != nil {
				return err
			}
			db, store, err := openOutbox(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer db.Close()
			d, err := purge(cmd.Context(), store, age, a.act)
			if err != nil && d.Count == 0 {
				return err
			}
			return errors.Join(a.report(d, fmt.Sprintf("purge: %d rows", d.Count)), err)
		},
	}
	cmd.Flags().StringVar(&older, "older-than", "", "least `age` since delivery, such as 30d; required")
	a.register(cmd.Flags())
	return cmd
}

func parseAge(text string) (time.Duration, error) {
	age, err := cli.ParseDuration(text)
	if err != nil || age <= 0 {
		return 0, &orbit.InvalidArgumentError{Field: "older_than", Rule: "must be a duration such as 30d or 12h"}
	}
	return age, nil
}

// purge deletes rows. With an error, what it returns was done before.
func purge(ctx context.Context, store *outbox.Store, age time.Duration, act outbox.Act) (did, error) {
	rows, err := store.PurgeAll(ctx, age, act)
	return did{Action: "purge", DryRun: act.DryRun, Count: rows}, err
}

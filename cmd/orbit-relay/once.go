package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/relay"
)

func newOnce(env cli.Environment) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "once",
		Short: "Send what is due, then exit",
		Long: `once sends what is due, settles it, prints what it did and exits: for cron and tests.
It exits 0 if every row that was due has its answer, and 1 if rows were left, such as
those with an unknown outcome or of a full queue. A shard that another relay leads is
left to that relay.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return relayOnce(cmd.Context(), env, &s) },
	}
	s.register(cmd.Flags())
	return cmd
}

func relayOnce(ctx context.Context, env cli.Environment, s *settings) error {
	db, store, err := openOutbox(ctx, env)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := s.build(env, store)
	if err != nil {
		return err
	}
	left, err := r.Drain(ctx)
	stats := r.Stats()
	fmt.Fprintf(env.Out, "accepted %d (%d of them known from an earlier send), rejected %d, blocked %d, unknown %d, not accepted %d\n",
		stats.Accepted, stats.Deduplicated, stats.Rejected, stats.Blocked, stats.Unknown, stats.NotAccepted)
	for _, l := range left {
		fmt.Fprintln(env.Out, describeLeft(l))
	}
	switch {
	case err != nil:
		return err
	case len(left) > 0 || stats.Unknown+stats.NotAccepted > 0:
		return fmt.Errorf("rows are left that were due")
	}
	return nil
}

func describeLeft(l relay.Left) string {
	switch {
	case l.Target == "":
		return fmt.Sprintf("left shard %d: %s", l.Shard, l.Reason)
	case l.QueueID == "":
		return fmt.Sprintf("left rows of target %s: %s", l.Target, l.Reason)
	}
	return fmt.Sprintf("left rows of target %s, queue %s: %s", l.Target, l.QueueID, l.Reason)
}

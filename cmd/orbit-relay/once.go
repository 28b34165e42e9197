package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/relay"
)

func newOnce(env environment) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "once",
		Short: "Send what is due, then exit",
		Long: `once sends what is due, settles it, prints what it did and exits: for cron and tests.
It exits 0 if every row that was due has its answer, and 1 if rows were left, such as
those with an unknown outcome or of a full queue, or if the database cannot be reached. A shard that another relay leads is
left to that relay. With --config it does so for each source, side by side.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return relayOnce(cmd.Context(), env, &s) },
	}
	s.register(cmd.Flags())
	return cmd
}

func relayOnce(ctx context.Context, env environment, s *settings) error {
	cfg, mistakes := s.read(env)
	if len(mistakes) > 0 {
		return cli.Usage(oneLine(mistakes...))
	}
	log := slog.New(slog.NewTextHandler(env.Err, nil))
	spans, stopSpans, err := startTracing(ctx, env, log)
	if err != nil {
		return err
	}
	defer stopSpans()
	errs, texts := make([]error, len(cfg.Sources)), make([]strings.Builder, len(cfg.Sources))
	var drains sync.WaitGroup
	for i, source := range cfg.Sources {
		source.Relay.TracerProvider = spans
		drains.Go(func() { errs[i] = drain(ctx, &texts[i], log, source) })
	}
	drains.Wait()
	for i, source := range cfg.Sources {
		for line := range strings.Lines(texts[i].String()) {
			if env.place.config != "" {
				line = source.Name + ": " + line
			}
			fmt.Fprint(env.Out, line)
		}
		if errs[i] != nil && env.place.config != "" {
			errs[i] = fmt.Errorf("%s: %w", source.Name, errs[i])
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	if err := errors.Join(errs...); err != nil {
		return oneLine(err)
	}
	return nil
}

// drain sends what is due of one source.
func drain(ctx context.Context, w io.Writer, log *slog.Logger, source config.Source) error {
	db, store, err := openSource(ctx, source)
	if err != nil {
		return err
	}
	defer db.Close()
	source.Relay.Log = log.With("source", source.Name)
	r, err := newRelay(store, source.Targets, source.Relay)
	if err != nil {
		return cli.Usage(err)
	}
	left, err := r.Drain(ctx)
	stats := r.Stats()
	fmt.Fprintf(w, "accepted %d (%d of them known from an earlier send), rejected %d, blocked %d, unknown %d, not accepted %d\n",
		stats.Accepted, stats.Deduplicated, stats.Rejected, stats.Blocked, stats.Unknown, stats.NotAccepted)
	for _, l := range left {
		fmt.Fprintln(w, describeLeft(l))
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

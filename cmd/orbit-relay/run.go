package main

import (
	"context"

	"github.com/oklog/run"
	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
)

func newRun(env cli.Environment) *cobra.Command {
	var s settings
	var l listeners
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay until stopped",
		Long: `run relays until SIGTERM or SIGINT. It then sends nothing new, finishes and settles
what is under way, gives its shards back and exits 0; it exits 1 if something had to be
left to the lease.

With --nudge-address it serves POST /nudge (look for rows at once), GET /healthz and
GET /status on a loopback address, with --metrics-address GET /metrics for Prometheus.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return relayUntilStopped(cmd.Context(), env, &s, &l) },
	}
	s.register(cmd.Flags())
	l.register(cmd.Flags())
	return cmd
}

func relayUntilStopped(ctx context.Context, env cli.Environment, s *settings, l *listeners) error {
	if err := l.validate(); err != nil {
		return cli.Usage(err)
	}
	db, store, err := openOutbox(ctx, env)
	if err != nil {
		return err
	}
	defer db.Close()
	metrics, shown := metricsOf()
	if l.metrics != "" {
		s.cfg.Observer = metrics
	}
	r, err := s.build(env, store)
	if err != nil {
		return err
	}
	var parts run.Group
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	parts.Add(func() error { return r.Run(relaying) }, func(error) { stop() })
	if l.nudge != "" {
		if err := serve(&parts, "--nudge-address", l.nudge, r.Handler(), s.cfg.Log); err != nil {
			return cli.Usage(err)
		}
	}
	if l.metrics != "" {
		if err := l.addMetrics(&parts, metrics, shown, r, store, s.cfg.Log); err != nil {
			return cli.Usage(err)
		}
	}
	return parts.Run()
}

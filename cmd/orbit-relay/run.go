package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/oklog/run"
	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/relay"
)

func newRun(env cli.Environment) *cobra.Command {
	var s settings
	var address string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay until stopped",
		Long: `run relays until SIGTERM or SIGINT. It then sends nothing new, finishes and settles
what is under way, gives its shards back and exits 0; it exits 1 if something had to be
left to the lease.

With --nudge-address it serves POST /nudge (look for rows at once), GET /healthz and
GET /status on a loopback address.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return relayUntilStopped(cmd.Context(), env, &s, address) },
	}
	s.register(cmd.Flags())
	cmd.Flags().StringVar(&address, "nudge-address", "", "loopback `host:port` for nudges, health and status (default none)")
	return cmd
}

func relayUntilStopped(ctx context.Context, env cli.Environment, s *settings, address string) error {
	db, err := openDatabase(ctx, env)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := s.build(env, db)
	if err != nil {
		return err
	}
	var parts run.Group
	if address != "" {
		if err := addNudges(&parts, address, r, s.cfg.Log); err != nil {
			return cli.Usage(err)
		}
	}
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	parts.Add(func() error { return r.Run(relaying) }, func(error) { stop() })
	return parts.Run()
}

// addNudges listens at once, so that an address in use is found before anything is sent.
func addNudges(parts *run.Group, address string, r *relay.Relay, log *slog.Logger) error {
	if err := checkLoopback(address); err != nil {
		return fmt.Errorf("--nudge-address: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--nudge-address: %w", err)
	}
	log.Info("serving nudges, health and status", "address", listener.Addr().String())
	const patience = 5 * time.Second
	server := &http.Server{Handler: r.Handler(), ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10}
	parts.Add(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, func(error) { server.Close() })
	return nil
}

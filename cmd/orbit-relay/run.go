package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/oklog/run"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/tracing"
)

func newRun(env environment) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay until stopped",
		Long: `run relays until SIGTERM or SIGINT. It then sends nothing new, finishes and settles
what is under way, gives its shards back and exits 0; it exits 1 if something had to be
left to the lease.

With --config it serves many databases, each with a relay of its own. SIGHUP reads the
file and the secrets again: what does not check is refused whole, else the sources that
changed are stopped and started, the others not touched.

With --nudge-address or --nudge-socket it serves POST /nudge (look for rows at once), GET
/healthz and GET /status, and with a token in ORBIT_RELAY_OPERATOR_TOKEN the operators'
commands over HTTP. With --metrics-address it serves GET /metrics for Prometheus. With
OTEL_EXPORTER_OTLP_ENDPOINT it sends traces to a collector by OTLP over HTTP.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return relayUntilStopped(cmd.Context(), env, &s) },
	}
	s.register(cmd.Flags())
	s.registerListen(cmd.Flags())
	return cmd
}

// startTracing makes what sends spans, if the environment names a collector.
func startTracing(ctx context.Context, env environment, log *slog.Logger) (trace.TracerProvider, func(), error) {
	spans, stop, err := tracing.Start(ctx, env.Get, tracing.About{Service: "orbit-relay", Instance: sqldb.NewID().String()}, log)
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	return spans, stop, nil
}

func relayUntilStopped(ctx context.Context, env environment, s *settings) error {
	reload := make(chan os.Signal, 1) // from the beginning: without this the signal ends the process
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	load := func() (config.Config, []error) { return s.read(env) }
	cfg, mistakes := load()
	if len(mistakes) > 0 {
		return cli.Usage(oneLine(mistakes...))
	}
	single := env.place.config == ""
	if single { // a mistake in the one address there is ends the program, an outage does not
		if err := tryOnce(ctx, cfg.Sources[0]); cli.IsUsage(err) {
			return err
		}
	}
	log := slog.New(slog.NewTextHandler(env.Err, nil))
	spans, stopSpans, err := startTracing(ctx, env, log)
	if err != nil {
		return err
	}
	defer stopSpans()
	sources := newSupervisor(log, single, spans)
	var parts run.Group
	if err := serveAll(&parts, cfg.Listen, sources); err != nil {
		return cli.Usage(err)
	}
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	parts.Add(func() error { return sources.run(relaying, cfg, reload, load) }, func(error) { stop() })
	return parts.Run()
}

package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/server"
)

const long = `orbit serves one node of the task platform: the HTTP interface for submitters and
the WebSocket interface for workers. Any number of nodes may share one database.

The database must have been migrated by orbit-migrate and given its first credential by
orbit-admin bootstrap. To try Orbit without any of that, run "orbit dev".

SIGINT and SIGTERM stop it gracefully: requests under way are finished, workers are asked
to go elsewhere, and what they run keeps its permits. A second signal ends it at once.`

// variables is what each --help says of the environment.
const variables = `ORBIT_MYSQL_DSN     user:password@tcp(host:3306)/database of a MySQL or MariaDB server
ORBIT_DATABASE      instead of it: mysql:<DSN> or sqlite:<path>
ORBIT_HTTP_ADDR     address to listen on (default 127.0.0.1:8080)
ORBIT_NODE_ID       name of this node, unlike that of any other (default random)
ORBIT_TLS_CERT      file with a certificate chain in PEM, to serve https
ORBIT_TLS_KEY       file with its private key; both are read anew when they change
ORBIT_RETENTION     age from its end at which a task is deleted, such as 180d (default 0: never)
ORBIT_METRICS_ADDR  address to serve /metrics on (default none)
OTEL_EXPORTER_OTLP_ENDPOINT
                    collector that traces are sent to by OTLP over HTTP, such as
                    http://127.0.0.1:4318 (default: no traces). The other variables of
                    OpenTelemetry count too: see docs/observability.md`

func newRoot(env cli.Environment) *cobra.Command {
	var s settings
	root := &cobra.Command{
		Use:   "orbit",
		Short: "Serve a node of the task platform",
		Long:  long,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), env, s) },
	}
	s.register(root.Flags())
	root.AddCommand(newDev(env))
	return root
}

// settings are what the flags of a node say.
type settings struct {
	nodeID      string
	lease       time.Duration
	stopTimeout time.Duration
	tlsCert     string
	tlsKey      string
	retention   string
	metricsAddr string
	room        server.Room
	logLevel    string
	logFormat   string
}

func (s *settings) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.nodeID, "node-id", "", "`name` of this node (default $ORBIT_NODE_ID or random)")
	flags.DurationVar(&s.lease, "lease", 0, "how long a worker keeps an attempt without renewing it, 5s to 5m (default 15s)")
	flags.DurationVar(&s.stopTimeout, "stop-timeout", 0, "bound of a graceful stop (default 20s)")
	flags.StringVar(&s.tlsCert, "tls-cert", "", "`file` with the certificate chain in PEM; serves https (default $"+envCert+")")
	flags.StringVar(&s.tlsKey, "tls-key", "", "`file` with the private key in PEM (default $"+envKey+")")
	flags.StringVar(&s.retention, "retention", "", "`age` from its end at which a task is deleted, such as 180d or 4320h; 0 for never (default $"+envRetention+" or 0)")
	flags.StringVar(&s.metricsAddr, "metrics-addr", "", "`address` to serve /metrics on, such as 127.0.0.1:9464 (default $"+envMetricsAddr+" or none)")
	flags.IntVar(&s.room.Connections, "max-connections", 0, "`number` of workers that may be connected (default 20000)")
	flags.IntVar(&s.room.ConnectionsPerCredential, "max-connections-per-credential", 0, "`number` of them that one credential may have (default half)")
	flags.IntVar(&s.room.Kinds, "max-kinds", 0, "`number` of kinds of task, queues times handlers, that workers may register (default 200000)")
	flags.IntVar(&s.room.KindsPerCredential, "max-kinds-per-credential", 0, "`number` of them that one credential may register (default half)")
	flags.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&s.logFormat, "log-format", "text", "text or json")
}

// checkDurations refuses durations that no node can have.
func (s *settings) checkDurations() error {
	if s.lease != 0 && (s.lease < server.MinLease || s.lease > server.MaxLease) {
		return cli.Usage(fmt.Errorf("--lease %v: must be at least %v and at most %v", s.lease, server.MinLease, server.MaxLease))
	}
	if s.stopTimeout < 0 {
		return cli.Usage(fmt.Errorf("--stop-timeout %v: must not be negative", s.stopTimeout))
	}
	return nil
}

// logger returns a logger that writes to w.
func (s *settings) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, cli.Usage(fmt.Errorf("--log-level %q: must be debug, info, warn or error", s.logLevel))
	}
	opts := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, cli.Usage(fmt.Errorf("--log-format %q: must be text or json", s.logFormat))
}

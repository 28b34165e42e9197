package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/api"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/depth"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/metrics"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/retention"
	"github.com/orbitkit/orbit/server/internal/session"
)

// The versions of the server's schema that this release runs on (MIG-008).
const minSchema, maxSchema = 15, 15

const (
	schemaTimeout   = 10 * time.Second
	headerTimeout   = 10 * time.Second
	readTimeout     = 60 * time.Second // a request from its first byte to its answer
	writeTimeout    = 75 * time.Second
	idleTimeout     = 2 * time.Minute
	maxHeaderBytes  = 16 << 10
	defaultStopping = 20 * time.Second
	maxPing         = time.Minute // what the worker takes as it is
)

// Bounds of a lease.
const (
	MinLease = dispatch.MinLease
	MaxLease = dispatch.MaxLease
)

// Config tunes a Server. The zero value is ready to use.
type Config struct {
	// NodeID names the node in attempts and logs, 1 to 64 bytes. Default: random for each
	// Server (CLI-019).
	NodeID string
	// Lease is how long a worker keeps an attempt without renewing it. Default 15s, at
	// least 5s, at most 5min.
	Lease time.Duration
	// ShortLease permits a Lease below 5s. For tests. Default false.
	ShortLease bool
	// Ping is how often a silent worker connection is asked for a sign of life; without one
	// for two and a half times as long it is given up. Default 15s, at most 1min; a negative
	// one is refused.
	Ping time.Duration
	// StopTimeout bounds a graceful stop; half of it is for workers to go elsewhere.
	// Default 20s; a negative one is refused.
	StopTimeout time.Duration
	// Ungrouped runs each submit, start, renewal and finish in a transaction of its own
	// instead of gathering those that come while the last one commits. Claims are batches
	// either way. To measure what grouping gives. Default false.
	Ungrouped bool
	// Retention is how long a task stays after its end before it is deleted with all that
	// is its own, at least MinRetention; never before the promise of its idempotency keys
	// has run out (IDEM-017). Default 0: nothing is deleted (IDEM-016).
	Retention time.Duration
	// Metrics is where /metrics is served, to whoever reaches it. Run closes it. Default
	// nil: nothing is served.
	Metrics net.Listener
	// TracerProvider makes the tracer whose spans continue the traces of those who submit.
	// Default: that of otel.GetTracerProvider, which makes none unless the program sets one.
	TracerProvider trace.TracerProvider
	// BatchItems is how many items of tasks:batch requests of one application this node has
	// under way at a time, at least 100; a request over it waits for a moment and is then
	// refused with UNAVAILABLE (see docs/api.md). It keeps an application from taking the
	// acceptance of a node for itself. Default 400.
	BatchItems int
	// Room bounds what the node holds of workers.
	Room Room
	// Log gets what happens and what is swallowed. Default: nothing is logged.
	Log *slog.Logger
}

// A Server is one node.
type Server struct {
	db        *sqldb.DB
	cfg       Config
	log       *slog.Logger
	api       *api.Handler
	committer *accept.Committer
	hub       *session.Hub
	recovery  *recovery.Recovery
	retention *retention.Retention // nil if nothing is deleted
	metrics   *metrics.Metrics
	depth     *depth.Reader // nil if nobody can ask for metrics
}

// New joins the parts of a node on db. Nothing runs yet.
func New(db *sqldb.DB, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.StopTimeout < 0 {
		return nil, fmt.Errorf("server: stop timeout %v must not be negative", cfg.StopTimeout)
	}
	if cfg.Ping < 0 || cfg.Ping > maxPing {
		return nil, fmt.Errorf("server: ping %v must be between 0 and %v", cfg.Ping, maxPing)
	}
	if cfg.BatchItems != 0 && cfg.BatchItems < orbit.MaxBatchItems {
		return nil, fmt.Errorf("server: batch items %d must be at least %d", cfg.BatchItems, orbit.MaxBatchItems)
	}
	if err := cfg.Room.check(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if cfg.StopTimeout == 0 {
		cfg.StopTimeout = defaultStopping
	}
	s := &Server{db: db, cfg: cfg, log: api.Quiet(slog.New(tracedHandler{cfg.Log.Handler()}), db.Dialect()), metrics: metrics.New()}
	authenticator := auth.New(db)
	modes := &quota.Modes{}
	var err error
	s.hub, err = session.New(db, authenticator, session.Config{
		Node: cfg.NodeID, Lease: cfg.Lease, ShortLease: cfg.ShortLease, Ping: cfg.Ping, DrainTimeout: cfg.StopTimeout / 2, Ungrouped: cfg.Ungrouped, Modes: modes,
		MaxSessions: cfg.Room.Connections, MaxPerCredential: cfg.Room.ConnectionsPerCredential,
		MaxLanes: cfg.Room.Kinds, MaxLanesPerCredential: cfg.Room.KindsPerCredential,
		Woken: func(lanes []int64) { s.recovery.Wake(lanes) }, Watch: s.metrics.Worker.Watch(), Dispatch: s.metrics.Attempts.Watch(), Log: s.log,
	})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.log = s.log.With("node_id", s.hub.Node())
	s.recovery = recovery.New(db, recovery.Config{Wake: s.hub.Wake, Watch: s.metrics.Recovery.Watch(s.metrics.Attempts.Settled), Modes: modes, Log: s.log})
	wake := func(lanes []int64) {
		s.hub.Wake(lanes)
		s.recovery.Wake(lanes)
	}
	s.committer = accept.New(db, accept.Config{Modes: modes, Alone: cfg.Ungrouped, Log: s.log, Wake: wake, Committed: s.metrics.Accept.Committed})
	commands := command.New(db, command.Config{Modes: modes, Wake: wake, Cancelled: s.hub.Cancel, Reopened: s.hub.Reopen, Settled: s.metrics.Attempts.Settled, Log: s.log})
	s.api = api.New(api.Config{
		DB: db, Auth: authenticator, Committer: s.committer, Commands: commands, Worker: s.hub, Ready: s.CheckSchema,
		Tracer: cfg.tracer(), BatchItems: cfg.BatchItems, Log: s.log,
	})
	if s.retention, err = s.newRetention(); err != nil {
		return nil, err
	}
	s.showMetrics()
	return s, nil
}

// NodeID returns the node's id.
func (s *Server) NodeID() string { return s.hub.Node() }

// CheckSchema returns nil if the database can be reached and its schema is one that this
// release runs on. What else it returns tells what to do.
func (s *Server) CheckSchema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	return migrations.Check(ctx, s.db, migrations.Server, minSchema, maxSchema)
}

// Run serves on l, which it closes, until ctx is canceled. Then it takes no new request
// and claims nothing more, finishes what is under way, asks the workers to go elsewhere,
// and returns nil. Attempts that run keep their permits: their leases decide. Run fails at
// once if the schema does not fit (see CheckSchema), and if a stop takes longer than the
// stop timeout.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	defer l.Close()
	if s.cfg.Metrics != nil {
		defer s.cfg.Metrics.Close()
	}
	if err := s.CheckSchema(ctx); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	n := s.start(ctx)
	web := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(l) }()
	s.log.InfoContext(ctx, "serving", "addr", l.Addr().String())

	var failed error
	select {
	case failed = <-served:
		failed = fmt.Errorf("server: %w", failed)
	case <-ctx.Done():
	}
	s.log.InfoContext(ctx, "stopping")
	err := n.stop(web)
	if failed == nil {
		<-served // closed by stop
	}
	return errors.Join(failed, err)
}

// parts are what runs beside the HTTP server.
type parts struct {
	s         *Server
	clients   context.CancelFunc // stops the hub and the sweepers
	committer context.CancelFunc
	running   sync.WaitGroup // hub and sweepers
	accepting sync.WaitGroup // the committer
}

func (s *Server) start(ctx context.Context) *parts {
	p := &parts{s: s}
	base := context.WithoutCancel(ctx) // each is stopped in its turn
	clients, stopClients := context.WithCancel(base)
	committer, stopCommitter := context.WithCancel(base)
	p.clients, p.committer = stopClients, stopCommitter
	p.running.Go(func() { s.part(clients, "worker sessions", s.hub.Run) })
	p.running.Go(func() { s.part(clients, "recovery", s.recovery.Run) })
	if s.retention != nil {
		p.running.Go(func() { s.part(clients, "retention", s.retention.Run) })
	}
	if s.cfg.Metrics != nil {
		p.running.Go(func() { s.part(clients, "metrics", s.serveMetrics) })
		p.running.Go(func() { s.part(clients, "depth of queues", s.depth.Run) })
	}
	p.accepting.Go(func() { s.part(committer, "acceptance", s.committer.Run) })
	return p
}

func (s *Server) part(ctx context.Context, name string, run func(context.Context) error) {
	if err := run(ctx); err != nil {
		s.log.ErrorContext(ctx, "part of the server failed", "part", name, "err", err)
	}
}

// stop ends the parts in the order in which they need each other: requests under way
// need the committer.
func (p *parts) stop(web *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.s.cfg.StopTimeout)
	defer cancel()
	p.s.api.Drain(p.s.cfg.StopTimeout / 4)
	p.clients()
	err := web.Shutdown(ctx)
	if err != nil {
		web.Close()
	}
	p.committer()
	stopped := make(chan struct{})
	go func() {
		p.running.Wait()
		p.accepting.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("server: not everything ended within the stop timeout of %v: %w", p.s.cfg.StopTimeout, err)
	}
	return nil
}

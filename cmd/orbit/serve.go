package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/tracing"
	"github.com/orbitkit/orbit/server"
)

const defaultAddr = "127.0.0.1:8080"

// serve runs a node on the database that the environment names.
func serve(ctx context.Context, env cli.Environment, s settings) error {
	log, err := s.logger(env.Err)
	if err != nil {
		return err
	}
	if err := s.checkDurations(); err != nil {
		return err
	}
	address, err := drivers.FromEnvironment(env.Get, "ORBIT_DATABASE", "ORBIT_MYSQL_DSN")
	if err != nil {
		return cli.Usage(err)
	}
	db, err := drivers.OpenExisting(ctx, address)
	if err != nil {
		return cli.Usage(err)
	}
	defer db.Close()
	s.nodeID = cmp.Or(s.nodeID, env.Get("ORBIT_NODE_ID"), sqldb.NewID().String())
	metrics, err := s.listenMetrics(env, log)
	if err != nil {
		return err
	}
	defer metrics.close()
	spans, stopSpans, err := tracing.Start(ctx, env.Get, tracing.About{Service: "orbit", Instance: s.nodeID}, log)
	if err != nil {
		return cli.Usage(err)
	}
	defer stopSpans()
	node, err := s.node(ctx, env, db, metrics, spans, log)
	if err != nil {
		return err
	}
	s.readTLS(env)
	listener, err := s.listen(cmp.Or(env.Get("ORBIT_HTTP_ADDR"), defaultAddr), log)
	if err != nil {
		return err
	}
	return node.Run(ctx, listener)
}

// node makes the node. That the schema fits is asked before the address is taken.
func (s *settings) node(ctx context.Context, env cli.Environment, db *sqldb.DB, metrics metricsListener, spans trace.TracerProvider, log *slog.Logger) (*server.Server, error) {
	retention, err := s.readRetention(env)
	if err != nil {
		return nil, cli.Usage(err)
	}
	node, err := server.New(db, server.Config{
		NodeID: s.nodeID, Lease: s.lease, StopTimeout: s.stopTimeout, Retention: retention, Metrics: metrics.Listener,
		TracerProvider: spans, Room: s.room, Log: log,
	})
	if err != nil {
		return nil, cli.Usage(err)
	}
	if err := node.CheckSchema(ctx); err != nil {
		return nil, cli.Usage(err)
	}
	return node, nil
}

// listen opens the address, with TLS if a certificate is given.
func (s *settings) listen(addr string, log *slog.Logger) (net.Listener, error) {
	config, err := s.tls(log)
	if err != nil {
		return nil, cli.Usage(err)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("listen on %q: %w", addr, err))
	}
	if config != nil {
		return tls.NewListener(listener, config), nil
	}
	if exposed(listener.Addr()) {
		log.Warn("tokens travel in plain text: give --tls-cert and --tls-key, or let a proxy do TLS", "addr", listener.Addr().String())
	}
	return listener, nil
}

// exposed reports whether others than this machine can reach addr.
func exposed(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

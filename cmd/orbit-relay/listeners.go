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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
	"github.com/orbitkit/orbit/relay/relaymetrics"
)

// listeners are the addresses that run serves on.
type listeners struct {
	nudge   string
	metrics string
}

func (l *listeners) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.nudge, "nudge-address", "", "loopback `host:port` for nudges, health and status (default none)")
	flags.StringVar(&l.metrics, "metrics-address", "", "`host:port` for GET /metrics of Prometheus (default none)")
}

func (l *listeners) validate() error {
	if l.nudge != "" {
		if err := checkLoopback(l.nudge); err != nil {
			return fmt.Errorf("--nudge-address: %w", err)
		}
	}
	if l.metrics != "" {
		if _, _, err := net.SplitHostPort(l.metrics); err != nil {
			return fmt.Errorf("--metrics-address: address %q is not of the form host:port", l.metrics)
		}
	}
	return nil
}

// metricsOf returns what observes the relay, and the handler that shows it.
func metricsOf() (*relaymetrics.Metrics, http.Handler) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return relaymetrics.New(registry), mux
}

// addMetrics serves the metrics and keeps those of the outbox up to date.
func (l *listeners) addMetrics(parts *run.Group, m *relaymetrics.Metrics, h http.Handler, r *relay.Relay, store *outbox.Store, log *slog.Logger) error {
	m.Show(r)
	if err := serve(parts, "--metrics-address", l.metrics, h, log); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	parts.Add(func() error { m.Watch(ctx, store, log); return nil }, func(error) { stop() })
	return nil
}

// serve listens at once, so that an address in use is found before anything is sent.
func serve(parts *run.Group, flag, address string, h http.Handler, log *slog.Logger) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	log.Info("serving", "for", flag, "address", listener.Addr().String())
	const patience = 5 * time.Second
	server := &http.Server{Handler: h, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10}
	parts.Add(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, func(error) { server.Close() })
	return nil
}

package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/server"
)

// The names of the environment variables.
const (
	envRetention   = "ORBIT_RETENTION"
	envMetricsAddr = "ORBIT_METRICS_ADDR"
)

// readRetention returns the age at which tasks are deleted, zero if they are not. The flag
// goes before its variable.
func (s *settings) readRetention(env cli.Environment) (time.Duration, error) {
	text := cmp.Or(s.retention, env.Get(envRetention))
	if text == "" {
		return 0, nil
	}
	age, err := cli.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("--retention (%s) %q: must be a duration such as 180d or 4320h, or 0", envRetention, text)
	}
	if age != 0 && age < server.MinRetention {
		return 0, fmt.Errorf("--retention (%s) %s: must be at least %s, or 0 for never", envRetention, cli.FormatDuration(age), cli.FormatDuration(server.MinRetention))
	}
	return age, nil
}

// A metricsListener is where /metrics is served, or nowhere.
type metricsListener struct{ net.Listener }

func (l metricsListener) close() {
	if l.Listener != nil {
		l.Close()
	}
}

// listenMetrics opens the address for /metrics, if one is given.
func (s *settings) listenMetrics(env cli.Environment, log *slog.Logger) (metricsListener, error) {
	addr := cmp.Or(s.metricsAddr, env.Get(envMetricsAddr))
	if addr == "" {
		return metricsListener{}, nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return metricsListener{}, cli.Usage(fmt.Errorf("--metrics-addr (%s): listen on %q: %w", envMetricsAddr, addr, err))
	}
	if exposed(listener.Addr()) {
		log.Warn("metrics are shown to whoever reaches their address: no credential is asked for", "addr", listener.Addr().String())
	}
	return metricsListener{listener}, nil
}

package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/orbitkit/orbit/internal/version"
	"github.com/orbitkit/orbit/server/internal/api"
	"github.com/orbitkit/orbit/server/internal/depth"
)

const metricsTimeout = 30 * time.Second // of one request for them

// showMetrics adds what is only looked at when somebody asks.
func (s *Server) showMetrics() {
	if s.cfg.Metrics == nil {
		return
	}
	s.depth = depth.New(s.db, depth.Config{Log: s.log})
	s.metrics.ShowNode(s.hub.Node(), version.String())
	s.metrics.ShowQueues(s.depth.Last)
	s.metrics.Worker.Show(s.hub.Stats)
	for name, pool := range s.db.Pools() {
		s.metrics.ShowPool(name, pool)
	}
}

// handler serves the HTTP interface, and counts if somebody can ask for the counts.
func (s *Server) handler() http.Handler {
	if s.cfg.Metrics == nil {
		return s.api
	}
	return s.metrics.HTTP.Handler(s.api, api.Pattern)
}

// serveMetrics serves /metrics until ctx is canceled. Nobody waits for a scrape that is
// under way then.
func (s *Server) serveMetrics(ctx context.Context) error {
	web := &http.Server{
		Handler:           s.metrics.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       metricsTimeout,
		WriteTimeout:      metricsTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { web.Close() })
	defer stop()
	s.log.InfoContext(ctx, "serving metrics", "addr", s.cfg.Metrics.Addr().String())
	if err := web.Serve(s.cfg.Metrics); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/oklog/run"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
)

// serveAll listens at once, so that an address in use is found before anything is sent.
// Nothing is served before the parts run.
func serveAll(parts *run.Group, l config.Listen, sources *supervisor) error {
	var open []net.Listener
	add := func(what string, listener net.Listener, err error, h http.Handler, patience time.Duration) error {
		if err != nil {
			for _, o := range open {
				o.Close()
			}
			return fmt.Errorf("%s: %w", what, err)
		}
		open = append(open, listener)
		serve(parts, what, listener, h, sources.log, patience)
		return nil
	}
	if l.Metrics != "" {
		sources.metrics = newExposition(sources)
		listener, err := net.Listen("tcp", l.Metrics)
		if err := add("--metrics-address", listener, err, sources.metrics.handler(), 5*time.Second); err != nil {
			return err
		}
	}
	if l.Address != "" {
		listener, err := net.Listen("tcp", l.Address)
		if err := add("--nudge-address", listener, err, sources.handler(l.Remote), operatorPatience); err != nil {
			return err
		}
	}
	if l.Socket != "" {
		listener, err := listenSocket(l.Socket)
		if err := add("--nudge-socket", listener, err, sources.handler(false), operatorPatience); err != nil {
			return err
		}
	}
	return nil
}

// serve adds a server to the parts. An answer takes no longer than patience.
func serve(parts *run.Group, what string, listener net.Listener, h http.Handler, log *slog.Logger, patience time.Duration) {
	log.Info("serving", "for", what, "address", listener.Addr().String())
	server := &http.Server{
		Handler: h, ReadTimeout: 5 * time.Second, WriteTimeout: patience + 5*time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	parts.Add(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, func(error) { server.Close() })
}

// listenSocket listens on a Unix socket that its owner and group may write to. A socket that
// a killed process has left behind is replaced, one that somebody serves is not.
func listenSocket(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("socket %s is in use", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

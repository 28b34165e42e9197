package main

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/orbitkit/orbit/internal/cli"
)

// The names of the environment variables.
const (
	envCert = "ORBIT_TLS_CERT"
	envKey  = "ORBIT_TLS_KEY"
)

// readTLS completes the settings by the environment. A flag goes before its variable.
func (s *settings) readTLS(env cli.Environment) {
	s.tlsCert = cmp.Or(s.tlsCert, env.Get(envCert))
	s.tlsKey = cmp.Or(s.tlsKey, env.Get(envKey))
}

// tls returns nil without a certificate. HTTP/2 is not offered: workers' WebSockets need
// HTTP/1.1.
func (s *settings) tls(log *slog.Logger) (*tls.Config, error) {
	switch {
	case s.tlsCert == "" && s.tlsKey == "":
		return nil, nil
	case s.tlsKey == "":
		return nil, fmt.Errorf("--tls-cert (%s) needs --tls-key (%s) too", envCert, envKey)
	case s.tlsCert == "":
		return nil, fmt.Errorf("--tls-key (%s) needs --tls-cert (%s) too", envKey, envCert)
	}
	c := &certificate{certFile: s.tlsCert, keyFile: s.tlsKey, log: log}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", s.tlsCert, s.tlsKey, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current(), nil
		},
	}, nil
}

// A certificate is one in two files, read anew when they change, so that a renewal needs
// no restart. It is safe for concurrent use.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	loaded [2]stamp // of the files that pair was read from
	failed [2]stamp // of the files that could not be used
}

// A stamp tells whether a file is another one than before.
type stamp struct {
	size    int64
	changed time.Time
}

// current returns the pair that is in the files. While they hold none, as between the two
// writes of a renewal, the last one goes on.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.stamps()
	if now == c.loaded || now == c.failed {
		return c.pair
	}
	if err := c.read(now); err != nil {
		c.failed = now
		c.log.Warn("new certificate cannot be used, the old one goes on", "cert", c.certFile, "key", c.keyFile, "err", err)
		return c.pair
	}
	c.failed = [2]stamp{}
	c.log.Info("new certificate in use", "cert", c.certFile, "not_after", c.pair.Leaf.NotAfter)
	return c.pair
}

func (c *certificate) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(c.stamps())
}

// read reads the files, which had the stamps before: if they change meanwhile, the next
// look sees it.
func (c *certificate) read(before [2]stamp) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.pair, c.loaded = &pair, before
	return nil
}

func (c *certificate) stamps() (s [2]stamp) {
	for i, file := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(file); err == nil {
			s[i] = stamp{info.Size(), info.ModTime()}
		}
	}
	return s
}

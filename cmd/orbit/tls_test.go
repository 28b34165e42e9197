package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/worker"
)

// A pair is a certificate for 127.0.0.1 and its key, in files.
type pair struct {
	cert, key string
	pool      *x509.CertPool
}

// newPair makes the files of a certificate with a serial number.
func newPair(t *testing.T, dir string, serial int64) pair {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	p := pair{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), pool: x509.NewCertPool()}
	for file, block := range map[string]*pem.Block{p.cert: {Type: "CERTIFICATE", Bytes: der}, p.key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return p
}

// secureNode runs a node that serves https with p.
func secureNode(t *testing.T, p pair) (addr string, errs *output, creds orbit.Credentials) {
	t.Helper()
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	creds = bootstrap(t, db)
	env := map[string]string{"ORBIT_DATABASE": db.Address, "ORBIT_HTTP_ADDR": "127.0.0.1:0", envCert: p.cert, envKey: p.key}
	addr, errs, _ = runNode(t, env)
	return addr, errs, creds
}

// With a certificate a node serves https, from TLS 1.2 on, without HTTP/2, and workers
// connect by wss.
func TestServeTLS(t *testing.T) {
	p := newPair(t, t.TempDir(), 1)
	addr, _, creds := secureNode(t, p)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.pool}, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	client, err := orbit.NewClient("https://"+addr, creds.Token, orbit.ClientConfig{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Capabilities(t.Context()); err != nil {
		t.Errorf("https: %v", err)
	}
	conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: p.pool, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the node speaks %q with a client that offers h2, want http/1.1", got)
	}
	conn.Close()
	old := &tls.Config{RootCAs: p.pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if conn, err := tls.Dial("tcp", addr, old); err == nil {
		conn.Close()
		t.Error("the node speaks TLS 1.1")
	}
}

// The worker's protocol over TLS: a task runs from submit to its end.
func TestWorkerConnectsOverTLS(t *testing.T) {
	p := newPair(t, t.TempDir(), 1)
	addr, _, creds := secureNode(t, p)
	client, err := orbit.NewClient("https://"+addr, creds.Token, orbit.ClientConfig{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.pool}, DisableKeepAlives: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := submit(t, client, creds.QueueID, "k", "IDEMPOTENT")
	w, err := worker.NewWorker("https://"+addr, creds.Token, worker.Config{
		Queues: []string{creds.QueueID}, Log: slog.New(slog.DiscardHandler),
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "work", Version: "v1"}: func(context.Context, worker.Execution) (json.RawMessage, error) {
			return json.RawMessage(`{"done":true}`), nil
		}},
		Network: worker.Network{TLS: &tls.Config{RootCAs: p.pool}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	awaitState(t, client, id, orbit.StateSucceeded)
}

// A renewed certificate is used without a restart; while its files do not fit together the
// old one goes on, and the log tells so once.
func TestCertificateIsReadAnew(t *testing.T) {
	dir := t.TempDir()
	p := newPair(t, dir, 1)
	addr, errs, _ := secureNode(t, p)
	serial := func() int64 {
		t.Helper()
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Fatalf("serial number %d, want 1", got)
	}
	next := newPair(t, t.TempDir(), 2)
	rename(t, next.cert, p.cert)
	for range 3 {
		if got := serial(); got != 1 {
			t.Errorf("with a key that does not fit: serial number %d, want 1", got)
		}
	}
	if n := strings.Count(errs.String(), "new certificate cannot be used"); n != 1 {
		t.Errorf("the log tells %d times of files that do not fit, want once: %s", n, errs)
	}
	rename(t, next.key, p.key)
	if got := serial(); got != 2 {
		t.Errorf("after the renewal: serial number %d, want 2", got)
	}
	if err := os.Remove(p.cert); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != 2 {
		t.Errorf("without its file: serial number %d, want 2", got)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// CLI-017: what is wrong with the files of TLS is one clear line and exit code 2, and holds
// nothing of the key.
func TestMistakesInTLS(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	p, other := newPair(t, t.TempDir(), 1), newPair(t, t.TempDir(), 2)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		env  map[string]string
		args []string
		says string
	}{
		{"certificate alone", nil, []string{"--tls-cert", p.cert}, "--tls-key"},
		{"key alone", nil, []string{"--tls-key", p.key}, "--tls-cert"},
		{"certificate alone in the environment", map[string]string{envCert: p.cert}, nil, envKey},
		{"key of another", nil, []string{"--tls-cert", p.cert, "--tls-key", other.key}, "does not match"},
		{"the flag goes before the variable", map[string]string{envCert: p.cert, envKey: p.key}, []string{"--tls-key", other.key}, "does not match"},
		{"no file", nil, []string{"--tls-cert", "/no/such.pem", "--tls-key", p.key}, "/no/such.pem"},
		{"empty file", nil, []string{"--tls-cert", empty, "--tls-key", p.key}, empty},
		{"swapped", nil, []string{"--tls-cert", p.key, "--tls-key", p.cert}, "switched"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			env := map[string]string{"ORBIT_DATABASE": db.Address, "ORBIT_HTTP_ADDR": "127.0.0.1:0"}
			for name, value := range c.env {
				env[name] = value
			}
			code, out, errs := invoke(t.Context(), env, c.args...)
			if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.says) || strings.Contains(errs, "BEGIN") {
				t.Errorf("exit %d, %q, %q; want 2 and one line with %q", code, out, errs, c.says)
			}
		})
	}
}

package relay_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// A tlsSite is a task server behind TLS, under a name of its own.
type tlsSite struct {
	*httptest.Server
	name  string
	names *nameServer
	cert  atomic.Pointer[tls.Certificate]
	roots *x509.CertPool
	asked atomic.Int64 // requests that got through
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
}

func newTLSSite(t *testing.T, handler http.Handler) *tlsSite {
	t.Helper()
	s := &tlsSite{name: "orbit.test", names: startNameServer(t), roots: x509.NewCertPool()}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	s.ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	own := s.issue(t, s.ca)
	if s.ca, err = x509.ParseCertificate(own.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	s.roots.AddCert(s.ca)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		handler.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Load(), nil }}
	s.cert.Store(s.valid(t))
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// issue signs a certificate.
func (s *tlsSite) issue(t *testing.T, c *x509.Certificate) *tls.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, s.ca, &s.key.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: s.key}
}

// serverCertificate is one for a name and a time around now.
func (s *tlsSite) serverCertificate(t *testing.T, name string, from, to time.Duration) *tls.Certificate {
	t.Helper()
	return s.issue(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (s *tlsSite) valid(t *testing.T) *tls.Certificate {
	t.Helper()
	return s.serverCertificate(t, s.name, -time.Hour, time.Hour)
}

// client looks the site up by its name server.
func (s *tlsSite) client(t *testing.T) *orbit.Client {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.names.addr)
	}}}
	c, err := orbit.NewClient("https://"+s.name+":"+port, "secret-token", orbit.ClientConfig{
		MinimalBatchAnswers: true,
		Transport:           &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: s.roots}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A nameServer answers every question for an address with 127.0.0.1, or with a code.
type nameServer struct {
	addr  string
	code  atomic.Int32 // 2: failure, 3: no such name
	asked atomic.Int64
}

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameServer{addr: conn.LocalAddr().String()}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			size, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			n.asked.Add(1)
			conn.WriteTo(n.answer(buffer[:size]), from)
		}
	}()
	return n
}

// answer makes the answer to a question with one name.
func (n *nameServer) answer(q []byte) []byte {
	const header = 12
	end := header
	for end < len(q) && q[end] != 0 {
		end += 1 + int(q[end])
	}
	end += 5 // the root, type and class
	if end > len(q) {
		return nil
	}
	code := byte(n.code.Load())
	a := append([]byte{q[0], q[1], 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0}, q[header:end]...)
	if isA := q[end-3] == 1; code == 0 && isA {
		a[7] = 1
		a = append(a, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return a
}

// The issue, "DNS and TLS failures, expired certificate". Until name and certificate are
// right nothing of the relay gets to anyone, its token above all, and no row is touched;
// then each row becomes its task. The same when it begins amid the work.
func TestBrokenNamesAndCertificatesAreOutlived(t *testing.T) { // REL-007, REL-021, REL-026, OUT-009
	faults := map[string]struct {
		spoil func(t *testing.T, s *tlsSite)
		tells string
	}{
		"no such name":           {func(_ *testing.T, s *tlsSite) { s.names.code.Store(3) }, "no such host"},
		"the name server fails":  {func(_ *testing.T, s *tlsSite) { s.names.code.Store(2) }, "server misbehaving"},
		"certificate is expired": {func(t *testing.T, s *tlsSite) { s.cert.Store(s.serverCertificate(t, s.name, -2*time.Hour, -time.Hour)) }, "expired"},
		"certificate is early":   {func(t *testing.T, s *tlsSite) { s.cert.Store(s.serverCertificate(t, s.name, time.Hour, 2*time.Hour)) }, "not yet valid"},
		"of another name": {func(t *testing.T, s *tlsSite) {
			s.cert.Store(s.serverCertificate(t, "other.test", -time.Hour, time.Hour))
		}, "other.test"},
		"of nobody known": {func(t *testing.T, s *tlsSite) {
			stranger := newTLSSite(t, http.NotFoundHandler())
			s.cert.Store(stranger.valid(t))
		}, "unknown authority"},
		"handshake fails": {func(_ *testing.T, s *tlsSite) { s.cert.Store(&tls.Certificate{}) }, "tls"},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSQLite(t, func(t *testing.T, w *world) {
				site := newTLSSite(t, w.fake.handler())
				fault.spoil(t, site)
				r, err := relay.New(w.store, []relay.Target{{Name: "main", Client: site.client(t), NamespaceID: namespace}}, quick())
				if err != nil {
					t.Fatal(err)
				}
				w.start(r)
				seq := w.enqueueKeys("from-the-start")[0]
				w.eventually("the relay tells of the fault", func() bool { return strings.Contains(r.Stats().Targets[0].LastError, fault.tells) })
				if row, n := w.row(seq), site.asked.Load(); row.State != outbox.Pending || row.Attempts != 0 || n != 0 {
					t.Errorf("row is %v after %d sends, and the server was asked %d times: want it untouched", row.State, row.Attempts, n)
				}
				site.mend(t)
				w.untilState(seq, outbox.Delivered)

				fault.spoil(t, site)
				site.CloseClientConnections()
				before := site.asked.Load()
				again := w.enqueueKeys("amid-the-work")[0]
				w.eventually("the row is known to wait", func() bool { return w.row(again).Attempts > 0 })
				if n := site.asked.Load(); n != before {
					t.Errorf("the server was asked %d times", n-before)
				}
				site.mend(t)
				w.untilState(again, outbox.Delivered)
				if n := w.fake.taskCount(); n != 2 {
					t.Errorf("%d tasks of 2 rows", n)
				}
			})
		})
	}
}

func (s *tlsSite) mend(t *testing.T) {
	t.Helper()
	s.cert.Store(s.valid(t))
	s.names.code.Store(0)
}

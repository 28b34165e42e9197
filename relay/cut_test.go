package relay_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// A scissor is a TCP proxy that lets requests through and cuts the connection instead
// of the answer, so many times.
type scissor struct {
	listener net.Listener
	server   string
	left     atomic.Int64 // answers still to be cut
	cuts     atomic.Int64
	work     sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

func newScissor(t *testing.T, server string, cuts int64) *scissor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scissor{listener: l, server: strings.TrimPrefix(server, "http://")}
	s.left.Store(cuts)
	s.work.Go(s.accept)
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.work.Wait()
	})
	return s
}

func (s *scissor) url() string { return "http://" + s.listener.Addr().String() }

func (s *scissor) accept() {
	for {
		near, err := s.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", s.server)
		if err != nil {
			near.Close()
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, near, far)
		s.mu.Unlock()
		var submits atomic.Bool // the request under way is a submit
		s.work.Go(func() {
			s.forward(near, far, &submits)
			far.Close()
		})
		s.work.Go(func() {
			s.answer(near, far, &submits)
			near.Close()
		})
	}
}

// forward copies requests and notes what they are.
func (s *scissor) forward(near, far net.Conn, submits *atomic.Bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := near.Read(buf)
		if bytes.HasPrefix(buf[:n], []byte("POST ")) {
			submits.Store(true)
		}
		if _, werr := far.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// answer copies answers, until one is to be cut.
func (s *scissor) answer(near, far net.Conn, submits *atomic.Bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := far.Read(buf)
		if n > 0 && submits.Load() && s.left.Add(-1) >= 0 {
			s.cuts.Add(1)
			near.(*net.TCPConn).SetLinger(0) // a reset, not an end
			return
		}
		if _, werr := near.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// TEST-052, AMB-066, IDEM-013, IDEM-014, REL-007: the server has accepted and its answer is cut.
func TestACutAnswerIsAskedForAgainUntilItIsKnown(t *testing.T) {
	for _, rows := range []int{1, 40} {
		t.Run(fmt.Sprintf("%d rows", rows), func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				const cuts = 3
				keys := make([]string, rows)
				for i := range keys {
					keys[i] = fmt.Sprintf("k%d", i)
				}
				proxy := newScissor(t, w.fake.URL, cuts)
				client, err := orbit.NewClient(proxy.url(), "secret-token", orbit.ClientConfig{MinimalBatchAnswers: true})
				if err != nil {
					t.Fatal(err)
				}
				seqs := w.enqueueKeys(keys...)
				r, err := relay.New(w.store, []relay.Target{{Name: "main", Client: client}}, quick())
				if err != nil {
					t.Fatal(err)
				}
				w.start(r)
				deduplicated := 0
				for _, seq := range seqs {
					if w.untilState(seq, outbox.Delivered).Deduplicated {
						deduplicated++
					}
				}
				if n := proxy.cuts.Load(); n != cuts {
					t.Fatalf("%d answers were cut, want %d", n, cuts)
				}
				if n := w.fake.taskCount(); n != rows {
					t.Errorf("%d tasks of %d rows", n, rows)
				}
				if deduplicated == 0 {
					t.Error("no row knows that an earlier send was accepted")
				}
				// One POST of the relay is one POST at the server: nobody below repeats.
				if sent, arrived := r.Stats().Sent, len(w.fake.sends); int(sent) != arrived {
					t.Errorf("the relay sent %d rows and %d arrived", sent, arrived)
				}
				w.fake.checkIdentity(t, w.stored())
			})
		})
	}
}

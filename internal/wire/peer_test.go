package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// A tap stands between a worker and a server and holds what both say to the schema.
type tap struct {
	t      *testing.T
	server *workertest.Server
	schema map[string]map[string]error // by sender and type of message: the first fault, or nil

	mu      sync.Mutex
	running sync.WaitGroup
}

// newTap opens a tap for a worker that is given its address.
func newTap(t *testing.T, server *workertest.Server) (*tap, string) {
	p := &tap{t: t, server: server, schema: map[string]map[string]error{wiretest.Client: {}, wiretest.Server: {}}}
	front := httptest.NewServer(p)
	t.Cleanup(func() { front.Close(); p.running.Wait() })
	return p, front.URL
}

func (p *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.running.Add(1)
	defer p.running.Done()
	dialer := websocket.Dialer{Subprotocols: []string{wire.Protocol}, TLSClientConfig: p.server.Network().TLS}
	back, _, err := dialer.Dial("wss"+strings.TrimPrefix(p.server.URL(), "https")+wire.Path, http.Header{"Authorization": r.Header["Authorization"]})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{wire.Protocol}}
	front, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		back.Close()
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() { forward(back, front, func(frame []byte) { p.judge(wiretest.Server, frame) }) })
	forward(front, back, func(frame []byte) { p.judge(wiretest.Client, frame) })
	answers.Wait()
}

// forward copies frames until one side ends, and then ends both.
func forward(from, to *websocket.Conn, see func([]byte)) {
	defer from.Close()
	defer to.Close()
	for {
		kind, text, err := from.ReadMessage()
		if err != nil {
			return
		}
		see(text)
		if to.WriteMessage(kind, text) != nil {
			return
		}
	}
}

func (p *tap) judge(sender string, frame []byte) {
	var e wire.Envelope
	err := errors.Join(json.Unmarshal(frame, &e), wiretest.Check(sender, frame))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.schema[sender][e.Type] == nil {
		p.schema[sender][e.Type] = err
	}
}

// WRK-010, REF-WRK-003: every message that the automatic worker and the low-level client
// say fits the schema, and so does what the server for tests says.
func TestWhatWorkersSayFitsTheSchema(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{Lease: 300 * time.Millisecond})
	p, url := newTap(t, s)
	runWorker(t, s, url)
	sayByHand(t, s, url)
	p.mu.Lock()
	defer p.mu.Unlock()
	for sender, kinds := range p.schema {
		for kind, err := range kinds {
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		said, all := slices.Sorted(maps.Keys(kinds)), slices.Sorted(maps.Keys(messages[sender]))
		if !slices.Equal(said, all) {
			t.Errorf("the %ss said %v, want each of %v", sender, said, all)
		}
	}
}

// runWorker has the automatic worker report every outcome, renew and resume.
func runWorker(t *testing.T, s *workertest.Server, url string) {
	s.Inject(workertest.Fault{Message: workertest.MessageFinish, Lose: true})
	answer := func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		switch string(e.Task.Payload) {
		case `"final"`:
			return nil, worker.Failed(errors.New("no such object"))
		case `"again"`:
			return nil, worker.Retryable(errors.New("busy"))
		case `"unknown"`:
			return nil, errors.New("connection reset")
		case `"cancel"`:
			e.Progress("half \u2028 done") // an error would fail the wait below
			<-ctx.Done()
			return nil, worker.Cancelled(context.Cause(ctx))
		}
		return json.RawMessage(`{"n":1.50,"deep":[null]}`), nil
	}
	w, err := worker.NewWorker(url, s.Token, worker.Config{
		Queues: []string{s.QueueID}, Log: slog.New(slog.DiscardHandler), OnError: func(error) {}, MinReconnect: time.Millisecond,
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "h", Version: "v1"}: answer},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, drain := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for payload, state := range map[string]string{
		`{}`: orbit.StateSucceeded, `"final"`: orbit.StateFailed, `"again"`: orbit.StateFailed, `"unknown"`: orbit.StateNeedsReview,
	} {
		s.Want(s.Submit(orbit.SubmitTaskRequest{Handler: "h", Payload: json.RawMessage(payload), ConcurrencyKey: "object"}), state)
	}
	id := s.Submit(orbit.SubmitTaskRequest{Handler: "h", Payload: json.RawMessage(`"cancel"`)})
	s.AwaitUntil(id, func(one workertest.Task) bool { return len(one.Attempts) > 0 && one.Attempts[0].Renewals > 1 })
	s.Cancel(id, "changed my mind")
	s.Want(id, orbit.StateCancelled)
	drain()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// sayByHand says what the automatic worker says only in trouble.
func sayByHand(t *testing.T, s *workertest.Server, url string) {
	r := worker.Registration{
		ProcessID: worker.NewProcessID(), Handlers: []worker.Handler{{Name: "h", Version: "v1"}}, Queues: []string{s.QueueID}, Capacity: 1,
	}
	c, err := worker.Dial(t.Context(), url, s.Token, r, worker.Network{}, worker.Attempt{ID: worker.NewProcessID(), Epoch: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.Submit(orbit.SubmitTaskRequest{Handler: "h"})
	if err := c.Credit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	event, err := c.Next(t.Context())
	offer, ok := event.(*worker.Assignment)
	if err != nil || !ok {
		t.Fatalf("Next = %v, %v, want an assignment", event, err)
	}
	if _, err := c.Resume(t.Context(), offer.Attempt); err != nil {
		t.Errorf("Resume = %v", err)
	}
	if err := c.Return(t.Context(), offer.Attempt); err != nil {
		t.Errorf("Return = %v", err)
	}
	if _, err := c.Start(t.Context(), worker.Attempt{ID: worker.NewProcessID(), Epoch: 1}); err == nil {
		t.Error("an attempt of nobody was started")
	}
	if err := c.Drain(t.Context()); err != nil {
		t.Errorf("Drain = %v", err)
	}
	s.Drain(time.Second)
	if event, err := c.Next(t.Context()); err != nil {
		t.Errorf("Next = %v, %v, want that the node drains", event, err)
	}
}

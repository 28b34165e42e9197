package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A sink is the receiver of both relays: a local HTTP server that speaks Orbit's batch
// form and inserts each batch in one transaction before it answers. What it answers
// for a key was computed before the clock started.
type sink struct {
	url     string
	server  *http.Server
	db      *sql.DB
	answers map[string]prepared // by idempotency key
	kind    sinkKind

	mu       sync.Mutex
	seen     map[string]bool
	want     int
	done     chan struct{}
	requests atomic.Int64
}

// A sinkKind is what a receiver does before it answers a POST. The zero value commits what it
// was sent.
type sinkKind struct {
	instant bool          // answers at once
	delay   time.Duration // and this long afterwards
	arrived func(key string, at time.Time)
}

func startSink(db *sql.DB, answers map[string]prepared, kind sinkKind) (*sink, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{
		url: "http://" + ln.Addr().String(), db: db, answers: answers, kind: kind,
		seen: make(map[string]bool, len(answers)), want: len(answers), done: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/capabilities", s.capabilities)
	mux.HandleFunc("POST /v1/tasks:batch", s.batch)
	mux.HandleFunc("POST /v1/tasks", s.single)
	s.server = &http.Server{Handler: mux}
	go s.server.Serve(ln)
	return s, nil
}

func (s *sink) close() { s.server.Close() }

func (s *sink) capabilities(w http.ResponseWriter, _ *http.Request) {
	id := requestID()
	w.Header().Set("X-Request-ID", id)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"request_id":%q,"data":{"contract":"orbit.task.v1","digests":["orbit-json-v1"],"idempotency_retention_ms":7776000000,"batch":{"max_items":100,"max_bytes":524288},"worker_protocols":["orbit.worker.v1"],"application_id":%[2]q,"namespace_id":%[2]q,"permissions":["tasks:submit"]}}`, id, queue)
}

// A sentBatch is what the sink needs of a request.
type sentBatch struct {
	Items []sentItem `json:"items"`
}

type sentItem struct {
	Key  string          `json:"idempotency_key"`
	Task json.RawMessage `json:"task"`
}

func (b *sentBatch) add(key string, task []byte) {
	b.Items = append(b.Items, sentItem{key, task})
}

// A prepared answer is what the sink says to one key.
type prepared struct {
	digest string
	data   []byte
}

func (s *sink) batch(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	var sent sentBatch
	if err == nil {
		err = json.Unmarshal(body, &sent)
	}
	if err == nil {
		err = s.store(r.Context(), &sent)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	id := requestID()
	w.Header().Set("X-Request-ID", id)
	w.Header().Set("Content-Type", "application/json")
	w.Write(s.answer(id, &sent))
	s.count(&sent)
}

// single takes a row that a relay sends alone.
func (s *sink) single(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	var sent sentBatch
	sent.add(r.Header.Get("Idempotency-Key"), body)
	if err == nil {
		err = s.store(r.Context(), &sent)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	id, answer := requestID(), s.answers[sent.Items[0].Key]
	w.Header().Set("X-Request-ID", id)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Orbit-Content-Digest", answer.digest)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"request_id":%q,"data":%s}`, id, answer.data)
	s.count(&sent)
}

func (s *sink) answer(id string, sent *sentBatch) []byte {
	answer := fmt.Appendf(nil, `{"request_id":%q,"data":{"items":[`, id)
	for i, item := range sent.Items {
		if i > 0 {
			answer = append(answer, ',')
		}
		a := s.answers[item.Key]
		answer = fmt.Appendf(answer, `{"status":201,"content_digest":%q,"data":%s}`, a.digest, a.data)
	}
	return append(answer, "]}}"...)
}

// store inserts a batch in one statement, which is one transaction.
func (s *sink) store(ctx context.Context, sent *sentBatch) error {
	if s.kind.arrived != nil {
		now := time.Now()
		for _, item := range sent.Items {
			s.kind.arrived(item.Key, now)
		}
	}
	time.Sleep(s.kind.delay)
	if s.kind.instant {
		return nil
	}
	args := make([]any, 0, 2*len(sent.Items))
	for _, item := range sent.Items {
		args = append(args, []byte(item.Key), []byte(item.Task))
	}
	rows := strings.TrimSuffix(strings.Repeat("(?,?),", len(sent.Items)), ",")
	_, err := s.db.ExecContext(ctx, "INSERT IGNORE INTO sink (idempotency_key, body) VALUES "+rows, args...)
	return err
}

// count closes done when every key has arrived.
func (s *sink) count(sent *sentBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.seen)
	for _, item := range sent.Items {
		s.seen[item.Key] = true
	}
	if before < s.want && len(s.seen) == s.want {
		close(s.done)
	}
}

func prepare(digest string) prepared {
	return prepared{digest, fmt.Appendf(nil, `{"deduplicated":false,"task":{"id":%q,"queue_id":%q,"handler":"bench.work","state":"WAITING","revision":"1","created_at":"2026-01-01T00:00:00Z"}}`, requestID(), queue)}
}

func requestID() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

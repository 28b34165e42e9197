package relay_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// A sink accepts everything and keeps nothing: what is measured is the relay.
type sink struct {
	digests map[string]string // by key
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := requestID()
	w.Header().Set("X-Request-ID", id)
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/v1/capabilities":
		fmt.Fprintf(w, `{"request_id":%q,"data":%s}`, id, capabilities(orbit.IdempotencyRetention, namespace))
	case "/v1/tasks":
		w.Header().Set("Orbit-Content-Digest", s.digests[r.Header.Get("Idempotency-Key")])
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"request_id":%q,"data":%s}`, id, sinkReceipt)
	default:
		s.batch(w, id, body)
	}
}

const sinkReceipt = `{"deduplicated":false,"task":{"id":"0123456789abcdef0123456789abcdef","queue_id":"` + queueA + `","handler":"orders.ship","state":"WAITING","revision":"1","created_at":"2026-09-17T00:00:00Z"}}`

func (s *sink) batch(w http.ResponseWriter, id string, body []byte) {
	var doc struct {
		Items []struct {
			Key string `json:"idempotency_key"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"request_id":%q,"data":{"items":[`, id)
	for i, item := range doc.Items {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"status":201,"content_digest":%q,"data":%s}`, s.digests[item.Key], sinkReceipt)
	}
	b.WriteString(`]}}`)
	io.WriteString(w, b.String())
}

// BenchmarkDrain relays 5,000 rows of 1 KiB into a sink in the same process.
func BenchmarkDrain(b *testing.B) {
	const rows = 5000
	for _, engine := range dbtest.Engines() {
		b.Run(engine, func(b *testing.B) {
			db := dbtest.Open(b, engine, migrations.Outbox)
			s := &sink{digests: map[string]string{}}
			server := httptest.NewServer(s)
			defer server.Close()
			fill(b, db, s, rows)
			client, err := orbit.NewClient(server.URL, "secret-token", orbit.ClientConfig{MinimalBatchAnswers: true})
			if err != nil {
				b.Fatal(err)
			}
			store, err := outbox.Open(db.Dialect(), db.Write(), db.Read())
			if err != nil {
				b.Fatal(err)
			}
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				if _, err := db.Write().ExecContext(b.Context(), "UPDATE orbit_outbox SET state = 1, due_at = created_at"); err != nil {
					b.Fatal(err)
				}
				r, err := relay.New(store, []relay.Target{{Name: "main", Client: client}}, relay.Config{})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				start := time.Now()
				if left, err := r.Drain(b.Context()); err != nil || len(left) > 0 || r.Stats().Accepted != rows {
					b.Fatalf("Drain = %v, %v, %+v", left, err, r.Stats())
				}
				spent += time.Since(start)
			}
			b.ReportMetric(float64(rows*b.N)/spent.Seconds(), "rows/s")
		})
	}
}

func fill(b *testing.B, db *dbtest.DB, s *sink, rows int) {
	b.Helper()
	box, err := outbox.New(db.Dialect(), outbox.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for from := 0; from < rows; from += 500 {
		err := db.Tx(b.Context(), func(tx *sqldb.Tx) error {
			for i := from; i < from+500; i++ {
				m := message(fmt.Sprintf("k%d", i))
				m.Request.Payload = json.RawMessage(`{"text":"` + strings.Repeat("x", 1000) + `"}`)
				r, err := box.Enqueue(b.Context(), tx.Tx, m)
				if err != nil {
					return err
				}
				s.digests[m.Key] = r.Digest.String()
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

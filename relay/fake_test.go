package relay_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

const namespace = "0123456789abcdef0123456789abcdef"

// A send is one row in one request, as it arrived.
type send struct {
	key   string
	body  string // the single body, or the item's task, byte for byte
	trace string
	batch int // rows in the request
	at    time.Time
}

// A reply is what the fake answers to one row. The zero reply accepts as Orbit does.
type reply struct {
	status     int
	code       string
	retryAfter string
	raw        string            // whole body of a single answer instead of an envelope
	noID       bool              // without X-Request-ID
	header     map[string]string // more headers
	digest     string            // instead of the right one; "-" leaves it out
	queue      string            // echoed instead of the right one
	handler    string
	cut        bool          // the connection breaks instead of an answer
	accept     bool          // accept the row before the reply is made
	delay      time.Duration // before the reply
}

// An orbitFake is a task server that keeps its tasks in memory, and misbehaves as told.
type orbitFake struct {
	*httptest.Server

	mu     sync.Mutex
	tasks  map[string]fakeTask // by key
	sends  []send
	probes int

	// answer decides about one send, whole about a batch as a whole; nil accepts.
	answer func(s send) reply
	whole  func(rows []send) *reply
	caps   func() reply
}

type fakeTask struct {
	id      string
	digest  string
	created time.Time
}

func newFake(t testing.TB) *orbitFake {
	f := &orbitFake{tasks: map[string]fakeTask{}}
	f.Server = httptest.NewServer(f.handler())
	t.Cleanup(f.Close)
	return f
}

func (f *orbitFake) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/capabilities", f.capabilities)
	mux.HandleFunc("POST /v1/tasks", f.single)
	mux.HandleFunc("POST /v1/tasks:batch", f.batch)
	return mux
}

func requestID() string { return sqldb.NewID().String() }

func (f *orbitFake) capabilities(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	f.probes++
	caps := f.caps
	f.mu.Unlock()
	if caps != nil {
		r := caps()
		switch {
		case r.status != 0:
			f.write(w, r, "", "")
			return
		case r.raw != "":
			f.write(w, reply{}, r.raw, "")
			return
		}
	}
	f.write(w, reply{}, capabilities(orbit.IdempotencyRetention, namespace), "")
}

func (f *orbitFake) single(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s := send{key: r.Header.Get("Idempotency-Key"), body: string(body), trace: r.Header.Get("Traceparent"), batch: 1, at: time.Now()}
	rep := f.record(s)
	pause(r, rep.delay)
	if rep.cut {
		panic(http.ErrAbortHandler)
	}
	status, data, digest := f.judge(s, &rep)
	rep.status = status
	f.write(w, rep, data, digest)
}

// pause waits before an answer, unless the caller goes.
func pause(r *http.Request, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}

func (f *orbitFake) record(s send) reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sends = append(f.sends, s)
	if f.answer == nil {
		return reply{}
	}
	rep := f.answer(s)
	if rep.accept {
		f.acceptLocked(s)
	}
	return rep
}

// judge returns the status, data and digest of the answer to one row.
func (f *orbitFake) judge(s send, rep *reply) (status int, data, digest string) {
	if rep.status != 0 && rep.status != 200 && rep.status != 201 {
		return rep.status, "", ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	sub, err := orbit.ParseSubmission([]byte(s.body))
	if err != nil {
		rep.code = orbit.CodeInvalidArgument
		return 400, "", ""
	}
	task, existing := f.acceptLocked(s)
	if existing && task.digest != sub.Digest.String() {
		rep.code = orbit.CodeIdempotencyConflict
		return 409, "", ""
	}
	status = 201
	if existing {
		status = 200
	}
	if rep.status != 0 {
		status = rep.status
	}
	queue, handler, digest := sub.Request.QueueID, sub.Request.Handler, task.digest
	if rep.queue != "" {
		queue = rep.queue
	}
	if rep.handler != "" {
		handler = rep.handler
	}
	if rep.digest != "" {
		digest = rep.digest
	}
	return status, fmt.Sprintf(`{"deduplicated":%t,"task":{"id":%q,"queue_id":%q,"handler":%q,"state":"WAITING","revision":"1","created_at":%q}}`,
		existing, task.id, queue, handler, task.created.UTC().Format("2006-01-02T15:04:05.000000Z")), digest
}

func (f *orbitFake) acceptLocked(s send) (fakeTask, bool) {
	if task, ok := f.tasks[s.key]; ok {
		return task, true
	}
	sub, err := orbit.ParseSubmission([]byte(s.body))
	if err != nil {
		return fakeTask{}, false
	}
	task := fakeTask{id: requestID(), digest: sub.Digest.String(), created: time.Now()}
	f.tasks[s.key] = task
	return task, false
}

func (f *orbitFake) write(w http.ResponseWriter, rep reply, data, digest string) {
	id := requestID()
	if !rep.noID {
		w.Header().Set("X-Request-ID", id)
	}
	for name, value := range rep.header {
		w.Header().Set(name, value)
	}
	if rep.retryAfter != "" {
		w.Header().Set("Retry-After", rep.retryAfter)
	}
	if digest != "" && digest != "-" {
		w.Header().Set("Orbit-Content-Digest", digest)
	}
	w.Header().Set("Content-Type", "application/json")
	status := rep.status
	if status == 0 {
		status = 200
	}
	body := rep.raw
	switch {
	case body != "":
	case data != "":
		body = fmt.Sprintf(`{"request_id":%q,"data":%s}`, id, data)
	case rep.code != "":
		body = fmt.Sprintf(`{"request_id":%q,"error":{"code":%q,"message":"no"}}`, id, rep.code)
	}
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func (f *orbitFake) batch(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var doc struct {
		Items []struct {
			Key   string          `json:"idempotency_key"`
			Task  json.RawMessage `json:"task"`
			Trace string          `json:"traceparent"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		f.write(w, reply{status: 400, code: orbit.CodeInvalidArgument}, "", "")
		return
	}
	rows := make([]send, len(doc.Items))
	for i, item := range doc.Items {
		rows[i] = send{key: item.Key, body: string(item.Task), trace: item.Trace, batch: len(doc.Items), at: time.Now()}
	}
	f.mu.Lock()
	whole := f.whole
	f.mu.Unlock()
	if whole != nil {
		if rep := whole(rows); rep != nil {
			for _, s := range rows {
				f.mu.Lock()
				f.sends = append(f.sends, s)
				if rep.accept {
					f.acceptLocked(s)
				}
				f.mu.Unlock()
			}
			if rep.cut {
				panic(http.ErrAbortHandler)
			}
			f.write(w, *rep, "", "")
			return
		}
	}
	f.batchItems(w, r, rows)
}

func (f *orbitFake) batchItems(w http.ResponseWriter, r *http.Request, rows []send) {
	items := make([]json.RawMessage, len(rows))
	for i, s := range rows {
		rep := f.record(s)
		pause(r, rep.delay)
		if rep.cut {
			panic(http.ErrAbortHandler)
		}
		status, data, digest := f.judge(s, &rep)
		item := map[string]any{"status": status}
		if data != "" {
			item["data"] = json.RawMessage(data)
		} else if rep.code != "" {
			item["error"] = map[string]string{"code": rep.code, "message": "no"}
		}
		if digest != "" && digest != "-" {
			item["content_digest"] = digest
		}
		if n, err := strconv.Atoi(rep.retryAfter); err == nil {
			item["retry_after"] = n
		}
		items[i], _ = json.Marshal(item)
	}
	data, _ := json.Marshal(map[string]any{"items": items})
	f.write(w, reply{}, string(data), "")
}

// set changes what the fake does, also while it is asked.
func (f *orbitFake) set(change func(*orbitFake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *orbitFake) taskCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tasks)
}

func (f *orbitFake) probeCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probes
}

// sendsOf returns what arrived of a key.
func (f *orbitFake) sendsOf(key string) (all []send) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sends {
		if s.key == key {
			all = append(all, s)
		}
	}
	return all
}

// checkIdentity fails unless every send carried exactly what is stored of its row.
func (f *orbitFake) checkIdentity(t *testing.T, stored map[string][]byte) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sends) == 0 {
		t.Fatal("nothing was sent")
	}
	for _, s := range f.sends {
		if body, ok := stored[s.key]; !ok || string(body) != s.body {
			t.Errorf("key %q was sent with other bytes (SHA-256 %x) than are stored", s.key, sha256.Sum256([]byte(s.body)))
		}
	}
}

// capabilities is a proper answer, but for what it is given.
func capabilities(retention time.Duration, namespaceID string) string {
	return fmt.Sprintf(`{"contract":"orbit.task.v1","digests":["orbit-json-v1"],"idempotency_retention_ms":%d,"batch":{"max_items":100,"max_bytes":524288},"worker_protocols":["orbit.worker.v1"],"application_id":%q,"namespace_id":%q,"permissions":["tasks:submit"]}`,
		retention.Milliseconds(), namespace, namespaceID)
}

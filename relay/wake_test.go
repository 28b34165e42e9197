package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// seldom polls so rarely that a row which is sent soon was sent because of a wake-up.
func seldom() relay.Config {
	cfg := quick()
	cfg.Poll = time.Hour
	return cfg
}

// untilAsleep waits until polls have become rare.
func (w *world) untilAsleep(r *relay.Relay) {
	w.t.Helper()
	w.eventually("the target is proved and the shard is led", func() bool {
		s := r.Stats()
		return len(s.Shards) == 1 && s.Targets[0].State != "paused"
	})
	time.Sleep(200 * time.Millisecond) // polls double from 20ms: the next one is far off, or the test proves less
}

func TestAHookInTheSameProcessWakesTheRelay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		r := w.relay(seldom())
		w.start(r)
		w.untilAsleep(r)
		for i := range 5 {
			seq := w.enqueueKeys(fmt.Sprintf("k%d", i))[0]
			w.hook.Notify()
			w.untilState(seq, outbox.Delivered)
		}
	})
}

func TestANudgeFromAnotherProcessWakesTheRelay(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		r := w.relay(seldom())
		w.start(r)
		server := httptest.NewServer(r.Handler())
		defer server.Close()
		w.untilAsleep(r)
		seq := w.enqueueKeys("subject")[0]
		resp, err := http.Post(server.URL+"/nudge", "", nil)
		if err != nil || resp.StatusCode != http.StatusNoContent {
			t.Fatalf("nudge = %v, %v", resp, err)
		}
		resp.Body.Close()
		w.untilState(seq, outbox.Delivered)
	})
}

func TestTheHandlerTellsHealthAndStatus(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		r := w.relay(quick())
		w.start(r)
		server := httptest.NewServer(r.Handler())
		defer server.Close()
		w.untilState(w.enqueueKeys("subject")[0], outbox.Delivered)
		for path, want := range map[string]int{"/healthz": 200, "/status": 200, "/nudge": 405, "/other": 404} {
			resp, err := http.Get(server.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("GET %s = %d, want %d", path, resp.StatusCode, want)
			}
			var s relay.Stats
			if path == "/status" {
				if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || s.Accepted != 1 || len(s.Targets) != 1 || s.Targets[0].State != "open" {
					t.Errorf("status = %+v, %v", s, err)
				}
			}
		}
	})
}

func TestWithoutAnyWakeUpPollingFindsTheRow(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.start(w.relay(quick()))
		for i := range 3 {
			w.untilState(w.enqueueKeys(fmt.Sprintf("k%d", i))[0], outbox.Delivered)
		}
	})
}

func TestARowWithAnEarliestTimeIsSentThenWithoutAPoll(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		now, err := w.db.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := message("subject")
		m.NotBefore = time.UnixMicro(now).Add(700 * time.Millisecond)
		seq := w.enqueue(m)[0]
		r := w.relay(seldom())
		w.start(r)
		w.untilState(seq, outbox.Delivered)
		if early := m.NotBefore.Sub(w.fake.sendsOf("subject")[0].at); early > 50*time.Millisecond {
			t.Errorf("row was sent %v before its time", early)
		}
	})
}

func TestRowsOfEveryShardAreSent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		box, err := outbox.New(w.db.Dialect(), outbox.Config{Shards: 7})
		if err != nil {
			t.Fatal(err)
		}
		w.box = box
		w.start(w.relay(quick()))
		for i := range 60 {
			w.enqueueKeys(fmt.Sprintf("k%d", i))
			w.hook.Notify()
		}
		w.eventually("all is delivered", func() bool { return w.count(outbox.Delivered) == 60 })
	})
}

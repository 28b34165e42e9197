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

// A relay that has slept for hours, with polls an hour apart, sends a row in the moment
// in which it is woken.
func TestAWakeUpSendsARowAtOnce(t *testing.T) {
	wakes := map[string]func(b *timelapse, r *relay.Relay){
		"hook of the same process": func(b *timelapse, _ *relay.Relay) { b.hook.Notify() },
		"the relay's own method":   func(_ *timelapse, r *relay.Relay) { r.Notify() },
		"nudge of another process": func(b *timelapse, r *relay.Relay) {
			w := httptest.NewRecorder()
			r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/nudge", nil))
			if w.Code != http.StatusNoContent {
				b.t.Errorf("nudge = %d", w.Code)
			}
		},
	}
	for name, wake := range wakes {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *timelapse) {
				r, stop := b.start(relay.Config{Poll: time.Hour, Lease: 24 * time.Hour, Hook: &b.hook})
				defer stop()
				b.untilDelivered(b.enqueueKeys("warm-up")[0])
				time.Sleep(3 * time.Hour)
				seq := b.enqueueKeys("subject")[0]
				start := time.Now()
				wake(b, r)
				for b.row(seq).State != outbox.Delivered && time.Since(start) < time.Second {
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("the row was sent after %v", took)
				}
			})
		})
	}
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
	inBubble(t, func(t *testing.T, b *timelapse) {
		_, stop := b.start(relay.Config{Poll: time.Hour, Lease: 24 * time.Hour, Hook: &b.hook})
		defer stop()
		m := message("subject")
		m.NotBefore = time.Now().Add(10 * time.Minute)
		seq := b.enqueue(m)[0]
		b.hook.Notify()
		b.untilDelivered(seq)
		if late := b.fake.sendsOf("subject")[0].at.Sub(m.NotBefore); late < 0 || late > 100*time.Millisecond {
			t.Errorf("the row was sent %v after its earliest time", late)
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

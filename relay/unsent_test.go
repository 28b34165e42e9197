package relay_test

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// OUT-008, 014, 016: rows that must not be sent go to a person, and others on their way.
func TestARowThatMustNotBeSentIsBlockedUnsent(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		name    string
		spoil   func(w *world, seq int64)
		outcome outbox.Outcome
	}{
		{"damaged bytes", func(w *world, seq int64) {
			w.exec("UPDATE orbit_outbox SET request = ? WHERE seq = ?", []byte(`{"queue_id":"x"}`), seq)
		}, outbox.OutcomeDamaged},
		{"damaged, same length", func(w *world, seq int64) {
			spoiled := w.row(seq).Request
			spoiled[len(spoiled)/2] ^= 1
			w.exec("UPDATE orbit_outbox SET request = ? WHERE seq = ?", spoiled, seq)
		}, outbox.OutcomeDamaged},
		{"too old, never sent", func(w *world, seq int64) { w.age(seq, 89*day+time.Minute) }, outbox.OutcomeTooOld},
		{"too old, with an unknown send", func(w *world, seq int64) {
			w.age(seq, 90*day)
			w.exec("UPDATE orbit_outbox SET outcome = 2, outcome_unknown = 1, attempts = 9 WHERE seq = ?", seq)
		}, outbox.OutcomeTooOld},
		{"not after has passed", func(w *world, seq int64) {
			w.exec("UPDATE orbit_outbox SET not_after = ? WHERE seq = ?", sqldb.Micros(time.Now().Add(-time.Minute)), seq)
		}, outbox.OutcomeExpired},
		{"a key that cannot be sent", func(w *world, seq int64) {
			w.exec("UPDATE orbit_outbox SET idempotency_key = ? WHERE seq = ?", []byte("two words"), seq)
		}, outbox.OutcomeDamaged},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				seqs := w.enqueueKeys("subject", "neighbour", "another")
				test.spoil(w, seqs[0])
				before := w.row(seqs[0])
				w.start(w.relay(quick()))
				r := w.untilState(seqs[0], outbox.Blocked)
				if r.Last.Outcome != test.outcome || r.Last.Message == "" || r.Last.Unknown != before.Last.Unknown {
					t.Errorf("row keeps %+v, want outcome %v, a message and mark %t", r.Last, test.outcome, before.Last.Unknown)
				}
				w.untilState(seqs[1], outbox.Delivered)
				w.untilState(seqs[2], outbox.Delivered)
				if n := len(w.fake.sendsOf("subject")); n != 0 {
					t.Errorf("row was sent %d times", n)
				}
			})
		})
	}
}

// age makes a row look as if it had been enqueued that long ago.
func (w *world) age(seq int64, by time.Duration) {
	w.exec("UPDATE orbit_outbox SET window_from = window_from - ?, created_at = created_at - ? WHERE seq = ?", by.Microseconds(), by.Microseconds(), seq)
}

func TestARowInsideTheRetentionLessADayIsSent(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		seq := w.enqueueKeys("subject")[0]
		w.age(seq, 89*24*time.Hour-time.Minute)
		w.start(w.relay(quick()))
		w.untilState(seq, outbox.Delivered)
	})
}

func TestTheServersOwnRetentionIsWhatCounts(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		w.fake.caps = func() reply {
			return reply{raw: capabilities(30*24*time.Hour, namespace)}
		}
		seq := w.enqueueKeys("subject")[0]
		w.age(seq, 29*24*time.Hour+time.Minute)
		w.start(w.relay(quick()))
		if r := w.untilState(seq, outbox.Blocked); r.Last.Outcome != outbox.OutcomeTooOld {
			t.Errorf("outcome %v, want %v", r.Last.Outcome, outbox.OutcomeTooOld)
		}
	})
}

// OUT-009: the relay refuses to send rows with the credential of another target.
func TestRowsOfATargetWithoutCredentialAreLeftAloneAndShown(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		other := message("other")
		other.Target = "elsewhere"
		seqs := w.enqueue(other, message("mine"))
		r := w.relay(quick())
		w.start(r)
		w.untilState(seqs[1], outbox.Delivered)
		w.eventually("the target is shown", func() bool {
			u := r.Stats().Unclaimed
			return len(u) == 1 && u[0] == "elsewhere"
		})
		if row := w.row(seqs[0]); row.State != outbox.Pending || row.Attempts != 0 {
			t.Errorf("foreign row is %v with %d attempts", row.State, row.Attempts)
		}
		if n := len(w.fake.sendsOf("other")); n != 0 {
			t.Errorf("foreign row was sent %d times", n)
		}
	})
}

func TestNothingIsSentToWhoeverIsNotTheRightServer(t *testing.T) {
	tests := []struct {
		name string
		caps reply
	}{
		{"another namespace", reply{raw: capabilities(90*24*time.Hour, "ffffffffffffffffffffffffffffffff")}},
		{"another service", reply{raw: `{"hello":"world"}`}},
		{"no such page", reply{status: 404, raw: "nginx"}},
		{"credential refused", reply{status: 401, code: orbit.CodeUnauthenticated}},
		{"redirect", reply{status: 302, header: map[string]string{"Location": "/v1/capabilities"}}},
		{"a promise shorter than the margin", reply{raw: capabilities(time.Hour, namespace)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			onSQLite(t, func(t *testing.T, w *world) {
				right := false
				w.fake.caps = func() reply {
					w.fake.mu.Lock()
					defer w.fake.mu.Unlock()
					if right {
						return reply{}
					}
					return test.caps
				}
				seq := w.enqueueKeys("subject")[0]
				r := w.relay(quick())
				w.start(r)
				w.eventually("the server was asked several times", func() bool { return w.fake.probeCount() >= 3 })
				if n := len(w.fake.sendsOf("subject")); n != 0 {
					t.Fatalf("row was sent %d times", n)
				}
				if s := r.Stats().Targets[0]; s.State != "paused" || s.LastError == "" {
					t.Errorf("target is %+v, want it paused with an error", s)
				}
				w.fake.set(func(*orbitFake) { right = true })
				w.untilState(seq, outbox.Delivered)
			})
		})
	}
}

func TestTheFirstNamespaceIsHeldOnTo(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		given := namespace
		w.fake.caps = func() reply {
			w.fake.mu.Lock()
			defer w.fake.mu.Unlock()
			return reply{raw: capabilities(90*24*time.Hour, given)}
		}
		target := w.target()
		target.NamespaceID = ""
		r, err := relay.New(w.store, []relay.Target{target}, quick())
		if err != nil {
			t.Fatal(err)
		}
		w.start(r)
		first := w.enqueueKeys("first")[0]
		r.Notify()
		w.untilState(first, outbox.Delivered)
		w.fake.set(func(f *orbitFake) {
			given = "ffffffffffffffffffffffffffffffff"
			f.answer = func(send) reply { return reply{status: 401, code: orbit.CodeUnauthenticated} }
		})
		w.enqueueKeys("second")
		r.Notify()
		probes := w.fake.probeCount()
		w.eventually("the new namespace was seen", func() bool { return w.fake.probeCount() > probes+2 })
		w.fake.set(func(f *orbitFake) { f.answer = nil })
		probes = w.fake.probeCount()
		w.eventually("it was seen again", func() bool { return w.fake.probeCount() > probes+2 })
		if s := r.Stats().Targets[0]; s.State != "paused" {
			t.Errorf("target is %+v, want it paused", s)
		}
	})
}

func TestAnOperatorsHoldStopsItsLaneAloneUntilItIsLifted(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		act := outbox.Act{Operator: "me", Reason: "test"}
		if err := w.store.Hold(t.Context(), "main", queueA, act); err != nil {
			t.Fatal(err)
		}
		other := message("other")
		other.Request.QueueID = queueB
		seqs := w.enqueue(message("held"), other)
		w.start(w.relay(quick()))
		w.untilState(seqs[1], outbox.Delivered)
		if n := len(w.fake.sendsOf("held")); n != 0 {
			t.Fatalf("held row was sent %d times", n)
		}
		if err := w.store.Unhold(t.Context(), "main", queueA, act); err != nil {
			t.Fatal(err)
		}
		w.untilState(seqs[0], outbox.Delivered)
	})
}

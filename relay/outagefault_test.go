package relay_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// outages are the ways in which a server can be away. Each is what it answers, or why it
// cannot be dialled.
var outages = map[string]struct {
	reply reply
	dial  error
}{
	"503":             {reply: reply{status: 503, code: orbit.CodeUnavailable, retryAfter: "7"}},
	"429 of a proxy":  {reply: reply{status: 429, raw: "slow down", retryAfter: "1000000"}},
	"302":             {reply: reply{status: 302, header: map[string]string{"Location": "/login"}}},
	"401":             {reply: reply{status: 401, code: orbit.CodeUnauthenticated}},
	"garbage":         {reply: reply{status: 200, raw: "\x00\x01<html>"}},
	"half an answer":  {reply: reply{status: 200, raw: `{"request_id":"`, header: map[string]string{"Content-Length": "4000"}}},
	"very slow":       {reply: reply{delay: time.Minute}},
	"refused":         {dial: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	"no such name":    {dial: &net.DNSError{Err: "no such host", Name: "orbit.test", IsNotFound: true}},
	"TLS has expired": {dial: &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}},
}

// The issue, "server down for hours, answering 503/429/302/401/garbage/half an answer/very
// slowly". Rows of two queues wait, and none is given up, used up, blocked or asked for all
// the time; when the server is back each becomes its one task soon.
func TestHoursOfAnyOutageAreOutlived(t *testing.T) { // REL-007, REL-008, REL-012, REL-014, REL-025, REL-026, REL-027, OUT-013
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, b *timelapse) {
				var away atomic.Bool
				var met atomic.Int64
				b.dial = func() error {
					if away.Load() && outage.dial != nil {
						met.Add(1)
						return outage.dial
					}
					return nil
				}
				r, stop := b.start(relay.Config{Hook: &b.hook, Poll: time.Minute, Lease: time.Hour}) // a poll is not free for the test
				defer stop()
				b.untilDelivered(b.enqueueKeys("warm-up")[0])
				if outage.dial == nil {
					b.fake.set(func(f *orbitFake) { f.misbehave(outage.reply, &met) })
				} else {
					b.client.CloseIdleConnections()
				}
				away.Store(true)
				var messages []outbox.Message
				for i := range 12 {
					m := message(fmt.Sprintf("k%d", i))
					if i%2 == 1 {
						m.Request.QueueID = queueB
					}
					messages = append(messages, m)
				}
				seqs := b.enqueue(messages...)
				b.hook.Notify()
				const hours = 2
				time.Sleep(hours * time.Hour)
				if met.Load() == 0 {
					t.Fatal("the outage was not met")
				}
				for _, seq := range seqs {
					if row := b.row(seq); row.State != outbox.Pending {
						t.Fatalf("after %d hours row %d is %v, %v %q", hours, seq, row.State, row.Last.Outcome, row.Last.Message)
					}
				}
				if n := met.Load(); n > hours*60*4 {
					t.Errorf("the server was asked %d times in %d hours", n, hours)
				}
				if st := r.Stats().Targets[0]; st.LastError == "" {
					t.Errorf("nothing tells of the outage: %+v", st)
				}
				b.fake.set(func(f *orbitFake) { f.answer, f.whole, f.caps = nil, nil, nil })
				away.Store(false)
				back := time.Now()
				for _, seq := range seqs {
					b.untilDelivered(seq)
				}
				if took := time.Since(back); took > 10*time.Minute {
					t.Errorf("the rows were delivered %v after the server was back", took)
				}
				if n := b.fake.taskCount(); n != len(seqs)+1 {
					t.Errorf("%d tasks of %d rows", n, len(seqs)+1)
				}
				b.fake.checkIdentity(t, b.stored())
			})
		})
	}
}

// misbehave answers everything alike.
func (f *orbitFake) misbehave(r reply, met *atomic.Int64) {
	say := func() reply { met.Add(1); return r }
	f.answer = func(send) reply { return say() }
	if r.delay > 0 {
		return // the server itself is well
	}
	f.whole = func([]send) *reply { r := say(); return &r }
	f.caps = say
}

// The issue, "database down 60 s". Requests were under way when it went, so their answers
// wait, and another relay may lead afterwards. Nothing is sent that could outlive the lease.
func TestAMinuteWithoutTheDatabaseIsOutlived(t *testing.T) { // REL-015, REL-017, REL-022
	inBubble(t, func(t *testing.T, b *timelapse) {
		var down atomic.Bool
		var failed atomic.Int64
		b.tap.fails = func(string) bool {
			if down.Load() {
				failed.Add(1)
			}
			return down.Load()
		}
		_, stop := b.start(relay.Config{Name: "a", Hook: &b.hook})
		defer stop()
		_, stopOther := b.start(relay.Config{Name: "b", Hook: &b.hook})
		defer stopOther()
		b.untilDelivered(b.enqueueKeys("warm-up")[0])
		var went time.Time
		b.fake.set(func(f *orbitFake) {
			f.answer = func(send) reply {
				if went.IsZero() {
					went = time.Now()
					down.Store(true)
				}
				return reply{}
			}
		})
		keys := make([]string, 500)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		seqs := b.enqueueKeys(keys...)
		b.hook.Notify()
		time.Sleep(time.Minute)
		if failed.Load() == 0 || b.fake.taskCount() < 2 {
			t.Fatalf("%d statements failed and %d tasks exist: the database was not away amid the work", failed.Load(), b.fake.taskCount())
		}
		b.fake.mu.Lock()
		last := b.fake.sends[len(b.fake.sends)-1].at
		b.fake.mu.Unlock()
		if late := last.Sub(went); late > 10*time.Second {
			t.Errorf("a request was sent %v after the database had gone, more than a lease", late)
		}
		down.Store(false)
		for _, seq := range seqs {
			b.untilDelivered(seq)
		}
		if n := b.fake.taskCount(); n != len(seqs)+1 {
			t.Errorf("%d tasks of %d rows", n, len(seqs)+1)
		}
		b.fake.checkIdentity(t, b.stored())
	})
}

// The issue, "take-over within one lease": counted from the last renewal of a relay that is
// gone, and not earlier.
func TestATakeOverComesWithTheEndOfTheLease(t *testing.T) { // REL-015, REL-016, REL-028
	inBubble(t, func(t *testing.T, b *timelapse) {
		const lease = 10 * time.Second
		dead, err := b.store.Lead(t.Context(), 0, "dead", lease)
		if err != nil {
			t.Fatal(err)
		}
		_, stop := b.start(relay.Config{Lease: lease, Hook: &b.hook})
		defer stop()
		time.Sleep(7 * time.Second)
		if dead, err = b.store.Renew(t.Context(), dead, lease); err != nil {
			t.Fatal(err)
		}
		renewed := time.Now()
		seq := b.enqueueKeys("subject")[0]
		b.untilDelivered(seq)
		if gap := b.fake.sendsOf("subject")[0].at.Sub(renewed); gap < lease || gap > lease+100*time.Millisecond {
			t.Errorf("the row was sent %v after the last renewal, want it with the end of the lease of %v", gap, lease)
		}
		if _, err := b.store.Renew(t.Context(), dead, lease); !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("the dead relay renews: %v", err)
		}
	})
}

// The issue, "100 poison rows in front of good ones", and amid them: whatever is in a request
// with one of them gets the same answer, or none. Good rows that were in such a request are
// not held up for long.
func TestAHundredPoisonRowsHoldUpNoGoodOnes(t *testing.T) { // REL-012, REL-019, REL-026, REL-027
	const bad, good = 100, 200
	tests := map[string]struct {
		reply reply // to every request with a poison row in it
		mixed bool
		queue string        // of the poison rows, if good ones are of another one
		most  time.Duration // until the last good row is accepted
	}{
		"in front, no answer":                {reply{cut: true}, false, "", 3 * time.Minute},
		"amid, no answer":                    {reply{cut: true}, true, "", 3 * time.Minute},
		"amid, a gateway's error":            {reply{status: 502, raw: "bad gateway"}, true, "", 3 * time.Minute},
		"amid, a filter's 403":               {reply{status: 403, raw: "<html>"}, true, "", 8 * time.Minute}, // three in succession pause the target
		"in one queue, a filter's 403":       {reply{status: 403, raw: "<html>"}, false, queueA, 8 * time.Minute},
		"in the other queue, a filter's 403": {reply{status: 403, raw: "<html>"}, false, queueB, 8 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *timelapse) {
				met := 0
				poison := func(s send) bool { return s.key[0] == 'p' }
				b.fake.answer = func(s send) reply {
					if poison(s) {
						met++
						return test.reply
					}
					return reply{}
				}
				b.fake.whole = func(rows []send) *reply {
					if slices.ContainsFunc(rows, poison) {
						return &test.reply
					}
					return nil
				}
				var keys []string
				for i := range bad + good {
					keys = append(keys, fmt.Sprintf("%c%d", "pg"[min(i/bad, 1)], i))
				}
				if test.mixed {
					rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
				}
				for some := range slices.Chunk(keys, (bad+good)/3) { // poison in front is due first
					var messages []outbox.Message
					for _, key := range some {
						m := message(key)
						if (key[0] == 'p') == (test.queue == queueB) && test.queue != "" {
							m.Request.QueueID = queueB
						}
						messages = append(messages, m)
					}
					b.enqueue(messages...)
					time.Sleep(time.Millisecond)
				}
				began := time.Now()
				_, stop := b.start(relay.Config{Hook: &b.hook})
				defer stop()
				for b.fake.taskCount() < good && time.Since(began) < 2*test.most {
					time.Sleep(time.Second)
				}
				if n, took := b.fake.taskCount(), time.Since(began); n < good || took > test.most {
					t.Errorf("%d of %d good rows were accepted within %v, want all within %v", n, good, took, test.most)
				}
				sent := func() (some bool) {
					b.fake.set(func(*orbitFake) { some = met > 0 })
					return some
				}
				for !sent() && time.Since(began) < 2*test.most { // good ones may all come first
					time.Sleep(time.Second)
				}
				if !sent() {
					t.Error("no poison row was sent")
				}
			})
		})
	}
}

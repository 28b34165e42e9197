package relay_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"modernc.org/sqlite"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

func init() {
	// The database's clock inside a bubble of synctest is the bubble's clock.
	sqlite.MustRegisterScalarFunction("bubble_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMicro(), nil
	})
}

// A timelapse is a world in which time passes when nobody has anything to do.
type timelapse struct {
	*world
	tap    tap
	client *orbit.Client
	dial   func() error // what dialling the server fails with; default nil
}

// inBubble runs f where a minute costs nothing: database, server and relay share the
// clock of the bubble.
func inBubble(t *testing.T, f func(t *testing.T, b *timelapse)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
		d := *sqldb.SQLite
		d.Clock = "bubble_now()"
		box, err := outbox.New(&d, outbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		b := &timelapse{world: &world{t: t, db: db, box: box, fake: &orbitFake{tasks: map[string]fakeTask{}}}}
		b.store = b.tap.openAs(t, db, &d)
		line := newWire()
		server := &http.Server{Handler: b.fake.handler()}
		go server.Serve(line)
		t.Cleanup(func() { server.Close() })
		b.client, err = orbit.NewClient("http://127.0.0.1", "secret-token", orbit.ClientConfig{
			Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if b.dial != nil {
					if err := b.dial(); err != nil {
						return nil, err
					}
				}
				return line.dial(ctx, network, addr)
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		f(t, b)
	})
}

// start runs a relay with the default configuration, but for what cfg sets.
func (b *timelapse) start(cfg relay.Config) (*relay.Relay, func()) {
	b.t.Helper()
	r, err := relay.New(b.store, []relay.Target{{Name: "main", Client: b.client}}, cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return r, b.world.start(r)
}

// A wire is a network inside the process.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newWire() *wire { return &wire{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case w.conns <- far:
		return near, nil
	case <-w.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error   { close(w.closed); return nil }
func (w *wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// TEST-054, REL-006, REL-025: the next send of the row comes not before Retry-After,
// and soon after it.
func TestRetryAfterIsHonouredInBothFormsAndClamped(t *testing.T) {
	const backOff = 2 * time.Second // above what is drawn without Retry-After the first time
	tests := []struct {
		name     string
		reply    reply
		from, to time.Duration
		batch    bool // an item can say so too: it has whole seconds only
	}{
		{"queue full, seconds", reply{status: 429, code: orbit.CodeQueueFull, retryAfter: "30"}, 30 * time.Second, 32 * time.Second, true},
		{"queue full, date", reply{status: 429, code: orbit.CodeQueueFull, retryAfter: "date"}, 44 * time.Second, 47 * time.Second, false},
		{"queue full, negative", reply{status: 429, code: orbit.CodeQueueFull, retryAfter: "-30"}, 0, backOff, false},
		{"queue full, absurd", reply{status: 429, code: orbit.CodeQueueFull, retryAfter: "99999999999999999999"}, 5 * time.Minute, 5*time.Minute + backOff, false},
		{"queue full, missing", reply{status: 429, code: orbit.CodeQueueFull}, 0, backOff, true},
		{"application full, seconds", reply{status: 429, code: orbit.CodeApplicationFull, retryAfter: "30"}, 30 * time.Second, 32 * time.Second, true},
		{"application full, date", reply{status: 429, code: orbit.CodeApplicationFull, retryAfter: "date"}, 44 * time.Second, 47 * time.Second, false},
		{"unavailable, seconds", reply{status: 503, code: orbit.CodeUnavailable, retryAfter: "20"}, 20 * time.Second, 22 * time.Second, false},
		{"429 of somebody else", reply{status: 429, raw: "slow down", retryAfter: "25"}, 25 * time.Second, 27 * time.Second, false},
	}
	for _, test := range tests {
		for batch := 1; batch == 1 || batch == 2 && test.batch; batch++ {
			t.Run(fmt.Sprintf("%s, %d rows", test.name, batch), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *timelapse) {
					_, stop := b.start(relay.Config{Poll: time.Hour, Hook: &b.hook}) // no poll helps out
					defer stop()
					b.untilState(b.enqueueKeys("warm-up")[0], outbox.Delivered)
					first := test.reply
					if first.retryAfter == "date" {
						first.retryAfter = time.Now().Add(45 * time.Second).UTC().Format(http.TimeFormat)
					}
					fired := 0
					b.fake.set(func(f *orbitFake) {
						f.answer = func(s send) reply {
							if fired++; fired > batch {
								return reply{}
							}
							return first
						}
					})
					seqs := b.enqueueKeys([]string{"a", "b"}[:batch]...)
					b.hook.Notify()
					for _, seq := range seqs {
						b.untilDelivered(seq)
					}
					for _, key := range []string{"a", "b"}[:batch] {
						sends := b.fake.sendsOf(key)
						if len(sends) != 2 {
							t.Fatalf("key %q was sent %d times, want 2", key, len(sends))
						}
						if gap := sends[1].at.Sub(sends[0].at); gap < test.from || gap > test.to {
							t.Errorf("the second send came after %v, want %v to %v", gap, test.from, test.to)
						}
					}
				})
			})
		}
	}
}

// untilDelivered waits in the bubble's time, which is free.
func (b *timelapse) untilDelivered(seq int64) {
	b.t.Helper()
	for range 10_000 {
		if b.row(seq).State == outbox.Delivered {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatalf("row %d is never delivered", seq)
}

// REL-022: while renewals fail, nothing is sent that could outlive the lease; when they
// work again, sending goes on.
func TestNothingIsSentThatCouldOutliveTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		var down atomic.Bool
		var renewed, failed atomic.Int64 // when, in microseconds
		b.tap.fails = func(query string) bool {
			if !strings.Contains(query, "SET expires_at") {
				return false
			}
			if down.Load() {
				failed.Store(time.Now().UnixMicro())
				return true
			}
			renewed.Store(time.Now().UnixMicro())
			return false
		}
		_, stop := b.start(relay.Config{Lease: 10 * time.Second, SendTimeout: 4 * time.Second})
		defer stop()
		b.untilDelivered(b.enqueueKeys("warm-up")[0])
		for renewed.Load() == 0 {
			time.Sleep(time.Second)
		}
		down.Store(true)
		for i := range 150 {
			b.enqueueKeys(fmt.Sprintf("k%d", i))
			time.Sleep(100 * time.Millisecond)
		}
		if failed.Load() == 0 {
			t.Fatal("no renewal has failed")
		}
		b.fake.mu.Lock()
		last := b.fake.sends[len(b.fake.sends)-1].at
		b.fake.mu.Unlock()
		left := time.UnixMicro(renewed.Load()).Add(10 * time.Second).Sub(last)
		if left < 4*time.Second || left > 5*time.Second {
			t.Errorf("the last request began with %v of the lease left, want a little more than 4s", left)
		}
		down.Store(false)
		b.untilDelivered(b.enqueueKeys("after")[0])
	})
}

// REL-014: an outage is outlived, however long, with bounded pauses.
func TestAnHourOfOutageIsOutlived(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		_, stop := b.start(relay.Config{Poll: time.Minute, Lease: time.Hour})
		defer stop()
		b.untilDelivered(b.enqueueKeys("warm-up")[0])
		down := func() reply { return reply{status: 502, raw: "bad gateway"} }
		b.fake.set(func(f *orbitFake) {
			f.answer = func(send) reply { return down() }
			f.caps = down
		})
		seq := b.enqueueKeys("subject")[0]
		time.Sleep(time.Hour)
		probes, sends := b.fake.probeCount(), len(b.fake.sendsOf("subject"))
		if probes < 60/2 || probes > 60*10 {
			t.Errorf("%d probes in an hour, want one about every half minute", probes)
		}
		if sends != 1 {
			t.Errorf("the row was sent %d times while the server was down, want once", sends)
		}
		b.fake.set(func(f *orbitFake) { f.answer, f.caps = nil, nil })
		b.untilDelivered(seq)
		if r := b.row(seq); r.Attempts != 2 {
			t.Errorf("%d attempts, want 2", r.Attempts)
		}
	})
}

// OUT-014: a row that nobody can deliver ends before the server forgets its key.
func TestARowIsBlockedBeforeItsKeyIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		seq := b.enqueueKeys("subject")[0]
		b.exec("UPDATE orbit_outbox SET window_from = ? WHERE seq = ?", time.Now().Add(10*time.Minute-89*24*time.Hour).UnixMicro(), seq)
		b.fake.answer = func(send) reply { return reply{status: 503, code: orbit.CodeUnavailable} }
		_, stop := b.start(relay.Config{Poll: time.Minute, Lease: time.Hour})
		defer stop()
		time.Sleep(20 * time.Minute)
		r := b.row(seq)
		if r.State != outbox.Blocked || r.Last.Outcome != outbox.OutcomeTooOld || !r.Last.Unknown {
			t.Errorf("row is %v %v, marked %t, want BLOCKED, too old, marked", r.State, r.Last.Outcome, r.Last.Unknown)
		}
		sends := b.fake.sendsOf("subject")
		last := sends[len(sends)-1].at
		if age := last.Sub(r.WindowFrom); len(sends) < 2 || age >= 89*24*time.Hour {
			t.Errorf("%d sends, the last at age %v, want none from 89 days on", len(sends), age)
		}
	})
}

// Law 6: what an idle leader costs, to the statement.
func TestIdleALeaderPollsOncePerInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		_, stop := b.start(relay.Config{})
		defer stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		before := b.tap.statements.Load()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		// A second: one look for rows. Three seconds: two to renew, two for shards.
		if perSecond := float64(b.tap.statements.Load()-before) / 300; perSecond > 2.5 {
			t.Errorf("%.2f statements a second while idle", perSecond)
		}
	})
}

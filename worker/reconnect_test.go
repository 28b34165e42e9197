package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// WRK-024: exponential, with full jitter, without end, and over at once when the
// context is cancelled.
func TestReconnectBacksOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		s.refuse(http.StatusServiceUnavailable, nil)
		h := run(t, s, worker.Config{MinReconnect: time.Second, MaxReconnect: 30 * time.Second}, succeed)
		time.Sleep(10 * time.Second)
		early := s.count()
		time.Sleep(24 * time.Hour)
		perHour := (s.count() - early) / 24
		// On average half of the limit passes between two tries.
		if early < 4 || early > 60 || perHour < 200 || perHour > 290 {
			t.Errorf("%d tries in 10 s, then %d an hour, want about 240", early, perHour)
		}
		if told := reported[*worker.HandshakeError](h); told.Status != http.StatusServiceUnavailable {
			t.Errorf("the owner was told %v", told)
		}
		began := time.Now()
		h.end()
		if took := time.Since(began); took != 0 {
			t.Errorf("Run took %v to end", took)
		}
		s.close()
	})
}

func TestHealthyConnectionResetsTheBackOff(t *testing.T) {
	for name, c := range map[string]struct {
		lives, atMost time.Duration
	}{
		"Healthy":  {time.Minute, time.Second},
		"Flapping": {time.Second, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newPipeServer(t)
				s.refuse(http.StatusServiceUnavailable, nil)
				h := run(t, s, worker.Config{MinReconnect: time.Second, MaxReconnect: 30 * time.Second}, succeed)
				time.Sleep(10 * time.Minute)
				s.refuse(0, nil)
				var total, longest time.Duration
				for range 100 {
					v, _ := s.welcome()
					time.Sleep(c.lives)
					v.cut()
					began := time.Now()
					next := s.visit()
					longest = max(longest, time.Since(began))
					total += time.Since(began)
					next.cut()
				}
				if name == "Healthy" && longest > 3*time.Second || name == "Flapping" && total < 10*time.Minute {
					t.Errorf("waits were %v long together, %v at most", total, longest)
				}
				h.end()
				s.close()
			})
		})
	}
}

// However often the network fails, what is held is resumed within its lease.
func TestHeldAttemptsKeepTheReconnectQuick(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{}, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
			time.Sleep(time.Hour)
			return nil, ctx.Err()
		})
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.start(15*time.Second, 2*time.Hour)
		synctest.Wait()
		for began, n := time.Now(), 0; time.Since(began) < 59*time.Minute; n++ {
			if n%2 == 0 {
				v.cut()
			} else {
				v.close(wire.CloseReplaced) // by a hello that we had given up
			}
			left := time.Now()
			v, _ = s.welcome()
			if took := time.Since(left); took > 5*time.Second {
				t.Fatalf("came back after %v, want a third of the lease at most", took)
			}
			v.resume(wire.Resumed{Status: wire.ResumeKeep, Running: true, LeaseMS: 15_000, TimeoutMS: ms(2 * time.Hour)})
			time.Sleep(time.Second)
		}
		if f := v.finish(); f.Outcome != wire.OutcomeSucceeded {
			t.Errorf("finish = %+v", f)
		}
		h.stop()
		v.drained()
		h.end()
		s.close()
	})
}

// WRK-023, WRK-024: what somebody has to change is tried slowly and reported.
func TestRefusedCredentialIsTriedSlowly(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusFound} {
		bubble.Test(t, func(t *testing.T) {
			s := newPipeServer(t)
			s.refuse(status, http.Header{"Location": {"http://127.0.0.1/elsewhere"}})
			h := run(t, s, worker.Config{}, succeed)
			time.Sleep(time.Hour)
			if n := s.count(); n < 100 || n > 240 {
				t.Errorf("%d: %d tries in an hour, want one every 15 to 30 s", status, n)
			}
			if told := reported[*worker.HandshakeError](h); told.Status != status {
				t.Errorf("the owner was told %v", told)
			}
			h.end()
			s.close()
		})
	}
}

// A server that breaks the protocol, or says that we do, is never asked in a fast
// loop, however often it happens.
func TestBrokenProtocolIsNoFastLoop(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(v *visit)
		least time.Duration // between two connections
	}{
		"Ours":            {func(v *visit) { v.sendText(`{"type":"task.assign","data":{}}`) }, time.Second},
		"Theirs":          {func(v *visit) { v.close(wire.CloseProtocolError) }, time.Second},
		"Revoked":         {func(v *visit) { v.close(wire.CloseUnauthenticated) }, 15 * time.Second},
		"Replaced":        {func(v *visit) { v.close(wire.CloseReplaced) }, 0},
		"AcceptsAndDrops": {func(v *visit) { v.cut() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newPipeServer(t)
				h := run(t, s, worker.Config{}, succeed)
				began := time.Now()
				n := 0
				for ended := began.Add(-time.Hour); time.Since(began) < time.Hour; ended = time.Now() {
					v, _ := s.welcome()
					if n++; time.Since(ended) < c.least {
						t.Fatalf("came back after %v, want %v at least", time.Since(ended), c.least)
					}
					synctest.Wait()
					c.end(v)
				}
				if n > 300 {
					t.Errorf("%d connections in an hour", n)
				}
				h.end()
				s.close()
			})
		})
	}
}

func (v *visit) close(code int) { v.Close(code, "go") }

func TestRetryAfterIsHonoured(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		s.refuse(http.StatusServiceUnavailable, http.Header{"Retry-After": {"20"}})
		h := run(t, s, worker.Config{}, succeed)
		synctest.Wait()
		s.refuse(0, nil)
		began := time.Now()
		s.visit().cut()
		if took := time.Since(began); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("came back after %v, want 20s and a little", took)
		}
		s.refuse(http.StatusServiceUnavailable, http.Header{"Retry-After": {"86400"}})
		time.Sleep(2 * time.Minute)
		s.refuse(0, nil)
		began = time.Now()
		s.visit().cut()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("came back after %v, want a bounded wait", took)
		}
		h.end()
		s.close()
	})
}

// The node stops: the worker keeps the connection for what is open, and comes back
// when it was told to, not earlier.
func TestServerDrainingMovesTheWorker(t *testing.T) {
	for name, closes := range map[string]bool{"ServerCloses": true, "WorkerLeaves": false} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newPipeServer(t)
				h := run(t, s, worker.Config{}, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
					time.Sleep(2 * time.Second)
					return nil, ctx.Err()
				})
				v, _ := s.welcome()
				v.assign(offer("5"))
				v.start(15*time.Second, time.Minute)
				began := time.Now()
				v.send(wire.TypeServerDraining, "", wire.ServerDraining{RetryAfterMS: 4000})
				v.send(wire.TypeServerDraining, "", wire.ServerDraining{RetryAfterMS: 4000})
				v.finish() // still answered here
				if closes {
					v.close(websocket.CloseGoingAway)
				}
				next, hello := s.welcome()
				synctest.Wait()
				if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
					t.Errorf("came back after %v, want 4s and a little", took)
				}
				if len(hello.Held) != 0 || len(h.errs) != 0 {
					t.Errorf("hello = %+v, errors %v", hello, h.errs)
				}
				h.stop()
				next.drained()
				h.end()
				s.close()
			})
		})
	}
}

// AMB-037: a server that does not take the registration is no reason to wait.
func TestRefusedRegistrationEndsRun(t *testing.T) {
	for name, answer := range map[string]func(v *visit, hello wire.Envelope){
		"ByError": func(v *visit, hello wire.Envelope) {
			v.send(wire.TypeError, hello.ID, wire.Error{Code: orbit.CodeInvalidArgument, Message: "hello.concurrency_keys is not a known field"})
		},
		"ByCloseCode": func(v *visit, hello wire.Envelope) { v.close(wire.CloseProtocolError) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTLSServer(t)
			h := run(t, s, worker.Config{}, succeed)
			v := s.visit()
			answer(v, v.expect(wire.TypeHello))
			err := h.wait()
			var refused *worker.RefusedError
			var closed *worker.ClosedError
			if name == "ByError" && (!errors.As(err, &refused) || refused.Act != wire.TypeHello || !strings.Contains(err.Error(), "concurrency_keys")) ||
				name == "ByCloseCode" && (!errors.As(err, &closed) || closed.Code != wire.CloseProtocolError) {
				t.Errorf("Run = %v", err)
			}
		})
	}
	t.Run("LaterItIsRetried", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			s := newPipeServer(t)
			h := run(t, s, worker.Config{}, succeed)
			v, _ := s.welcome()
			synctest.Wait()
			v.cut()
			v = s.visit()
			v.send(wire.TypeError, v.expect(wire.TypeHello).ID, wire.Error{Code: orbit.CodeStateConflict, Message: "registration changed"})
			reported[*worker.RefusedError](h)
			v, _ = s.welcome()
			synctest.Wait()
			h.stop()
			v.drained()
			h.end()
			s.close()
		})
	})
	t.Run("WithoutDatabaseItIsRetried", func(t *testing.T) {
		s := newTLSServer(t)
		h := run(t, s, worker.Config{}, succeed)
		v := s.visit()
		v.send(wire.TypeError, v.expect(wire.TypeHello).ID, wire.Error{Code: orbit.CodeUnavailable, Message: "later"})
		v, _ = s.welcome()
		v.expectCredit()
		h.stop()
		v.drained()
		h.end()
	})
}

// Bad answers to hello are the server's fault, not a registration.
func TestBrokenHelloOK(t *testing.T) {
	for name, text := range map[string]string{
		"OtherMessage": `{"type":"drain.ok","ref":"1"}`,
		"OtherRef":     `{"type":"hello.ok","ref":"2","data":{"node_id":"n","lease_ms":15000,"ping_ms":1,"max_frame":1,"server_time":""}}`,
		"NoLease":      `{"type":"hello.ok","ref":"1","data":{"node_id":"n","lease_ms":0,"ping_ms":1,"max_frame":1,"server_time":""}}`,
		"BadAttempt":   `{"type":"hello.ok","ref":"1","data":{"node_id":"n","lease_ms":1,"ping_ms":1,"max_frame":1,"server_time":"","attempts":[{"attempt_id":"x","epoch":1}]}}`,
		"UnknownField": `{"type":"hello.ok","ref":"1","data":{"node_id":"n","lease_ms":1,"speed":1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newTLSServer(t)
			done := make(chan error, 1)
			go func() {
				_, err := worker.Dial(t.Context(), s.url(), "t", registration(), s.network())
				done <- err
			}()
			v := s.visit()
			v.expect(wire.TypeHello)
			v.sendText(text)
			if broke := (*worker.ProtocolError)(nil); !errors.As(<-done, &broke) {
				t.Errorf("Dial accepts %s", text)
			}
			if code := v.closeCode(); code != wire.CloseProtocolError {
				t.Errorf("close code = %d", code)
			}
		})
	}
}

// Credit that a server has lost count of is given again.
func TestCreditIsRefreshed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{Capacity: 2}, succeed)
		v, _ := s.welcome()
		for i := range 3 {
			if c := read[wire.Credit](t, v.expectCredit()); c.Slots != 2 {
				t.Errorf("credit %d = %d, want 2", i, c.Slots)
			}
		}
		v.assign(keyless("5"))
		frame, _ := v.next()
		if frame.Type != wire.TypeStart {
			t.Fatalf("the worker sent %s, want task.start", frame.Type)
		}
		v.send(wire.TypeStarted, frame.ID, started(read[wire.Attempt](t, frame), 15*time.Second, time.Minute))
		synctest.Wait()
		if n := v.Pending(); n != 1 {
			t.Errorf("%d messages after the start, want task.finish only: one credit is still open", n)
		}
		v.finish()
		synctest.Wait()
		if c := read[wire.Credit](t, v.expectCredit()); c.Slots != 2 { // one of the two had been used
			t.Errorf("credit after a finish = %d, want 2", c.Slots)
		}
		if v.Pending() > 0 {
			frame, _ := v.next()
			t.Errorf("the worker sent %s for no reason", frame.Type)
		}
		h.stop()
		v.drained()
		h.end()
		s.close()
	})
}

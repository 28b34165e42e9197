package worker_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// WRK-016, LIMIT-019: every third of the lease, and the latest progress goes along.
func TestLeaseIsRenewedEveryThird(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{}, func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
			e.Progress("first")
			e.Progress("second")
			time.Sleep(32 * time.Second)
			return nil, ctx.Err()
		})
		v, _ := s.welcome()
		began := time.Now()
		var at []time.Duration
		var progress []string
		renew := v.renew(15_000)
		v.answering(func(f wire.Envelope) bool {
			if f.Type == wire.TypeRenew {
				at = append(at, time.Since(began))
				progress = append(progress, read[wire.Renew](t, f).Progress)
			}
			return renew(f)
		})
		v.assign(offer("5"))
		v.start(15*time.Second, time.Hour)
		if f := v.finish(); f.Outcome != wire.OutcomeSucceeded {
			t.Errorf("finish = %+v", f)
		}
		want := []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 25 * time.Second, 30 * time.Second}
		if !equal(at, want) {
			t.Errorf("renewed at %v, want %v", at, want)
		}
		if !equal(progress, []string{"second", "", "", "", "", ""}) {
			t.Errorf("progress = %q, want the latest, once", progress)
		}
		h.stop()
		v.drained()
		h.end()
		s.close()
	})
}

func equal[E comparable](a, b []E) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// WRK-025: the right ends on the worker's own clock, a margin before the server's.
func TestHandlerIsCancelledWhenTheLeaseIsNotRenewed(t *testing.T) {
	for name, server := range map[string]func(*visit){
		"RenewalsUnanswered": func(v *visit) { v.answering(ignore(wire.TypeRenew)) },
		"DatabaseAway": func(v *visit) {
			v.answering(func(f wire.Envelope) bool {
				if f.Type != wire.TypeRenew {
					return false
				}
				v.send(wire.TypeError, f.ID, wire.Error{Code: orbit.CodeUnavailable, Message: "later"})
				return true
			})
		},
		"ServerAway": func(v *visit) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newPipeServer(t)
				var took time.Duration
				h := run(t, s, worker.Config{}, func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
					began := time.Now()
					<-ctx.Done()
					took = time.Since(began)
					return nil, context.Cause(ctx)
				})
				v, _ := s.welcome()
				server(v)
				v.assign(offer("5"))
				v.start(15*time.Second, time.Hour)
				if name == "ServerAway" {
					s.refuse(503, nil)
					synctest.Wait()
					v.cut()
					time.Sleep(20 * time.Second)
					s.refuse(0, nil)
					v, _ = s.welcome()
					v.resume(wire.Resumed{Status: wire.ResumeKeep, Running: true, LeaseMS: 15_000, TimeoutMS: 30_000}) // too late for the handler
				}
				f := v.finish()
				if took != 14*time.Second {
					t.Errorf("cancelled after %v, want 14s", took)
				}
				if f.Outcome != wire.OutcomeUnknown || f.Error != worker.ErrLeaseLost.Error() {
					t.Errorf("finish = %+v", f)
				}
				h.stop()
				v.drained()
				h.end()
				s.close()
			})
		})
	}
}

func ignore(kind string) func(wire.Envelope) bool {
	return func(f wire.Envelope) bool { return f.Type == kind }
}

// The server says that the right is over: the handler ends at once.
func TestRefusedRenewalCancelsTheHandlerAtOnce(t *testing.T) {
	for _, code := range []string{wire.CodeLeaseExpired, wire.CodeSuperseded, wire.CodeEnded} {
		bubble.Test(t, func(t *testing.T) {
			s := newPipeServer(t)
			h := run(t, s, worker.Config{}, untilCancelled)
			v, _ := s.welcome()
			v.answering(func(f wire.Envelope) bool {
				if f.Type != wire.TypeRenew {
					return false
				}
				v.send(wire.TypeError, f.ID, wire.Error{Code: code, Message: "over"})
				return true
			})
			v.assign(offer("5"))
			v.start(15*time.Second, time.Hour)
			began := time.Now()
			if f := v.finish(); f.Error != worker.ErrLeaseLost.Error() || time.Since(began) != 5*time.Second {
				t.Errorf("%s: finish = %+v after %v, want 5s", code, f, time.Since(began))
			}
			h.stop()
			v.drained()
			h.end()
			s.close()
		})
	}
}

// A single lost renewal costs nothing.
func TestRenewalIsRepeatedInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{}, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
			time.Sleep(40 * time.Second)
			return nil, ctx.Err()
		})
		v, _ := s.welcome()
		renew, n := v.renew(15_000), 0
		v.answering(func(f wire.Envelope) bool {
			if f.Type != wire.TypeRenew {
				return false
			}
			n++
			return n%2 == 1 || renew(f)
		})
		v.assign(offer("5"))
		v.start(15*time.Second, time.Hour)
		if f := v.finish(); f.Outcome != wire.OutcomeSucceeded {
			t.Errorf("finish = %+v", f)
		}
		h.stop()
		v.drained()
		h.end()
		s.close()
	})
}

// The attempt timeout, or the task's deadline, ends the right for good; nothing is
// renewed past it, even if the handler does not return.
func TestNothingIsRenewedPastTheAttemptTimeout(t *testing.T) {
	for name, c := range map[string]struct{ timeout, deadline time.Duration }{
		"AttemptTimeout": {50 * time.Second, time.Hour},
		"TaskDeadline":   {time.Hour, 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newPipeServer(t)
				var took time.Duration
				h := run(t, s, worker.Config{StopTimeout: time.Hour}, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
					began := time.Now()
					if until, ok := ctx.Deadline(); !ok || time.Until(until) != 49*time.Second {
						t.Errorf("deadline of the context = %v", until)
					}
					<-ctx.Done()
					took = time.Since(began)
					time.Sleep(5 * time.Minute)
					return nil, context.Cause(ctx)
				})
				v, _ := s.welcome()
				began := time.Now()
				var last time.Duration
				renew := v.renew(15_000)
				v.answering(func(f wire.Envelope) bool {
					if f.Type == wire.TypeRenew {
						last = time.Since(began)
					}
					return renew(f)
				})
				a := offer("5")
				a.Task.DeadlineMS = ms(c.deadline)
				v.assign(a)
				v.start(15*time.Second, c.timeout)
				f := v.finish()
				if took != 49*time.Second || last != 45*time.Second {
					t.Errorf("cancelled after %v, last renewal after %v, want 49s and 45s", took, last)
				}
				if f.Outcome != wire.OutcomeUnknown || f.Error != worker.ErrAttemptTimeout.Error() {
					t.Errorf("finish = %+v", f)
				}
				h.stop()
				v.drained()
				h.end()
				s.close()
			})
		})
	}
}

// The lease goes on while the end waits for its confirmation: it must not expire
// under a report that is only delayed.
func TestLeaseIsRenewedUntilTheEndIsConfirmed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{}, succeed)
		v, _ := s.welcome()
		renewals := 0
		renew := v.renew(15_000)
		began := time.Now()
		v.answering(func(f wire.Envelope) bool {
			switch {
			case f.Type == wire.TypeRenew:
				renewals++
			case f.Type == wire.TypeFinish && time.Since(began) < time.Minute:
				v.send(wire.TypeError, f.ID, wire.Error{Code: orbit.CodeUnavailable, Message: "later"})
				return true
			}
			return renew(f)
		})
		v.assign(offer("5"))
		v.start(15*time.Second, 58*time.Second) // and never past the attempt's end
		time.Sleep(time.Minute)
		v.finish()
		if renewals != 11 {
			t.Errorf("renewed %d times in 57 seconds, want 11", renewals)
		}
		h.stop()
		v.drained()
		h.end()
		s.close()
	})
}

// A confirmation that comes later than the lease lasts is no right to execute.
func TestStaleConfirmationIsRenewedFirst(t *testing.T) {
	for name, refuse := range map[string]bool{"Renewed": false, "Refused": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newPipeServer(t)
				called := false
				h := run(t, s, worker.Config{}, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
					called = true
					return nil, ctx.Err()
				})
				v, _ := s.welcome()
				v.answering(nil)
				v.assign(offer("5"))
				frame := v.expect(wire.TypeStart)
				time.Sleep(8 * time.Second)
				v.send(wire.TypeStarted, frame.ID, started(read[wire.Attempt](t, frame), 8*time.Second, time.Hour))
				frame = v.expect(wire.TypeRenew)
				if called {
					t.Error("the handler ran without a lease")
				}
				if refuse {
					v.send(wire.TypeError, frame.ID, wire.Error{Code: wire.CodeLeaseExpired, Message: "over"})
				} else {
					v.renew(15_000)(frame)
				}
				f := v.finish()
				if called == refuse || refuse && (f.Outcome != wire.OutcomeFailed || !f.Retryable) {
					t.Errorf("called = %v, finish = %+v", called, f)
				}
				h.stop()
				v.drained()
				h.end()
				s.close()
			})
		})
	}
}

// A connection that has gone silent is left early enough to resume elsewhere.
func TestSilentConnectionIsLeftWithinTheLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newDeafServer(t)
		h := run(t, s, worker.Config{}, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
			time.Sleep(time.Minute)
			return nil, ctx.Err()
		})
		v, _ := s.welcome()
		v.answering(ignore(wire.TypeRenew))
		v.assign(offer("5"))
		v.start(15*time.Second, time.Hour)
		began := time.Now()
		v, _ = s.welcome()
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("left after %v, want two thirds of the lease", took)
		}
		v.resume(wire.Resumed{Status: wire.ResumeKeep, Running: true, LeaseMS: 15_000, TimeoutMS: ms(time.Hour)})
		if f := v.finish(); f.Outcome != wire.OutcomeSucceeded {
			t.Errorf("finish = %+v", f)
		}
		h.stop()
		v.drained()
		h.end()
		s.close()
	})
}

// A slow server is not a dead one: pings tell them apart.
func TestSlowServerIsNotLeft(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{}, succeed)
		v, _ := s.welcome()
		v.assign(offer("5"))
		first := v.expect(wire.TypeStart)
		again := v.expect(wire.TypeStart) // after ten seconds, on the same connection
		if string(first.Data) != string(again.Data) || s.count() != 1 {
			t.Errorf("start = %s, then %s, over %d connections", first.Data, again.Data, s.count())
		}
		v.send(wire.TypeStarted, again.ID, started(read[wire.Attempt](t, again), 15*time.Second, time.Hour))
		v.finish()
		v.send(wire.TypeStarted, first.ID, started(read[wire.Attempt](t, first), 15*time.Second, time.Hour)) // nobody waits for it
		h.stop()
		v.drained()
		h.end()
		s.close()
	})
}

// A refusal that nobody waits for is no news: the renewal was overtaken by the end.
func TestRefusalOfAnOvertakenRenewalIsDropped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{}, func(context.Context, worker.Execution) (json.RawMessage, error) {
			time.Sleep(6 * time.Second)
			return nil, nil
		})
		v, _ := s.welcome()
		v.answering(nil)
		v.assign(offer("5"))
		v.start(15*time.Second, time.Hour)
		renewal := v.expect(wire.TypeRenew)
		v.finish()
		synctest.Wait()
		v.send(wire.TypeError, renewal.ID, wire.Error{Code: wire.CodeEnded, Message: "the attempt has ended"})
		h.stop()
		v.drained()
		h.end()
		if len(h.errs) > 0 {
			t.Errorf("the owner was told %v", h.errs)
		}
		s.close()
	})
}

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

func registration() worker.Registration {
	return worker.Registration{
		ProcessID: worker.NewProcessID(), Handlers: []worker.Handler{update}, Queues: []string{queueID}, Capacity: 4,
	}
}

// dial opens a low-level connection and closes it at the end.
func dial(t *testing.T, s *fakeServer, r worker.Registration, held ...worker.Attempt) (*worker.Conn, *visit, wire.Envelope) {
	t.Helper()
	type result struct {
		c   *worker.Conn
		err error
	}
	dialed := make(chan result, 1)
	go func() {
		c, err := worker.Dial(t.Context(), s.url(), "t", r, s.network(), held...)
		dialed <- result{c, err}
	}()
	v := s.visit()
	hello := v.expect(wire.TypeHello)
	v.send(wire.TypeHelloOK, hello.ID, wire.HelloOK{NodeID: "n", LeaseMS: 15_000, PingMS: 20_000, MaxFrame: wire.MaxFrame})
	got := <-dialed
	if got.err != nil {
		t.Fatal(got.err)
	}
	t.Cleanup(func() { got.c.Close() })
	return got.c, v, hello
}

// WRK-002, WRK-008, WRK-029, AMB-037: false is not sent at all.
func TestLowLevelRegistrationLeavesAFalseFlagOut(t *testing.T) {
	s := newTLSServer(t)
	_, _, hello := dial(t, s, registration())
	if strings.Contains(string(hello.Data), "concurrency_keys") {
		t.Errorf("hello = %s", hello.Data)
	}
	r := registration()
	r.ConcurrencyKeys = true
	_, _, hello = dial(t, s, r, worker.Attempt{ID: id("5"), Epoch: 2})
	if !strings.Contains(string(hello.Data), `"concurrency_keys":true`) || !strings.Contains(string(hello.Data), `"held":[{"attempt_id":"`+id("5")+`","epoch":2}]`) {
		t.Errorf("hello = %s", hello.Data)
	}
}

// WRK-005, TEST-016: not negotiated.
func TestKeyedTaskWithoutDeclaredSupportBreaksTheProtocol(t *testing.T) {
	s := newTLSServer(t)
	c, v, _ := dial(t, s, registration())
	v.assign(keyless("4"))
	e, err := c.Next(t.Context())
	if a, ok := e.(*worker.Assignment); err != nil || !ok || a.Attempt.ID != id("4") || a.ConcurrencyToken != 0 {
		t.Fatalf("Next = %+v, %v, want the keyless assignment", e, err)
	}
	v.assign(offer("5"))
	_, err = c.Next(t.Context())
	var broke *worker.ProtocolError
	if !errors.As(err, &broke) || !strings.Contains(broke.Rule, "not declared") {
		t.Fatalf("Next = %v, want a ProtocolError", err)
	}
	if code := v.closeCode(); code != wire.CloseProtocolError {
		t.Errorf("close code = %d", code)
	}
	if _, err := c.Start(t.Context(), worker.Attempt{ID: id("5"), Epoch: 3}); !errors.As(err, &broke) {
		t.Errorf("Start afterwards = %v, want the ProtocolError", err)
	}
}

func TestConnSpeaksEveryMessage(t *testing.T) { // TEST-026, REF-WRK-003, REF-WRK-006
	s := newTLSServer(t)
	c, v, _ := dial(t, s, registration())
	v.answering(func(f wire.Envelope) bool {
		a := wire.Attempt{AttemptID: id("5"), Epoch: 3}
		switch f.Type {
		case wire.TypeStart:
			v.send(wire.TypeStarted, f.ID, wire.Started{AttemptID: a.AttemptID, Epoch: a.Epoch, LeaseMS: 1500, TimeoutMS: 2500, CancelRequested: true})
		case wire.TypeRenew:
			if m := read[wire.Renew](t, f); m.Progress != "half" {
				t.Errorf("renew = %+v", m)
			}
			v.send(wire.TypeRenewed, f.ID, wire.Renewed{AttemptID: a.AttemptID, Epoch: a.Epoch, LeaseMS: 18446744073709551615})
		case wire.TypeResume:
			v.send(wire.TypeResumed, f.ID, wire.Resumed{AttemptID: a.AttemptID, Epoch: a.Epoch, Status: wire.ResumeFinished})
		case wire.TypeFinish:
			v.send(wire.TypeFinished, f.ID, wire.Finished{AttemptID: a.AttemptID, Epoch: a.Epoch, Status: wire.FinishExpired, TaskState: "WAITING"})
		case wire.TypeReturn:
			v.send(wire.TypeError, f.ID, wire.Error{Code: wire.CodeSuperseded, Message: "a later\nattempt exists", AttemptID: a.AttemptID})
		case wire.TypeDrain:
			v.send(wire.TypeDrainOK, f.ID, struct{}{})
		case wire.TypeCredit:
			v.send(wire.TypeError, f.ID, wire.Error{Code: "PERMISSION_DENIED", Message: "no"})
		}
		return true
	})
	ctx, a := t.Context(), worker.Attempt{ID: id("5"), Epoch: 3}
	if g, err := c.Start(ctx, a); err != nil || g != (worker.Grant{Lease: 1500 * time.Millisecond, Timeout: 2500 * time.Millisecond, CancelRequested: true}) {
		t.Errorf("Start = %+v, %v", g, err)
	}
	if g, err := c.Renew(ctx, a, "half"); err != nil || g.Lease <= 0 {
		t.Errorf("Renew = %+v, %v, want a lease without overflow", g, err)
	}
	if r, err := c.Resume(ctx, a); err != nil || r.Kept || !r.Finished {
		t.Errorf("Resume = %+v, %v", r, err)
	}
	report := worker.Report{Receipt: "r", Outcome: orbit.OutcomeFailed, Error: "no"}
	if f, err := c.Finish(ctx, a, report); err != nil || f.Recorded || f.Status != wire.FinishExpired || f.TaskState != "WAITING" {
		t.Errorf("Finish = %+v, %v", f, err)
	}
	var refused *worker.RefusedError
	if err := c.Return(ctx, a); !errors.As(err, &refused) || refused.Code != wire.CodeSuperseded || refused.AttemptID != id("5") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Return = %v", err)
	}
	if err := c.Drain(ctx); err != nil {
		t.Errorf("Drain = %v", err)
	}
	if err := c.Credit(ctx, 5); err == nil {
		t.Error("Credit above the capacity is taken")
	}
	if err := c.Credit(ctx, 4); err != nil {
		t.Errorf("Credit = %v", err)
	}
	if e, err := c.Next(ctx); err != nil || e.(*worker.RefusedError).Code != "PERMISSION_DENIED" {
		t.Errorf("Next = %v, %v, want the refusal of the credit", e, err)
	}
	v.send(wire.TypeServerDraining, "", wire.ServerDraining{RetryAfterMS: 1200})
	if e, err := c.Next(ctx); err != nil || e.(*worker.Draining).RetryAfter != 1200*time.Millisecond {
		t.Errorf("Next = %v, %v", e, err)
	}
	v.send(wire.TypeCancel, "", wire.Cancel{AttemptID: id("5"), Epoch: 3, Reason: "replaced"})
	if e, err := c.Next(ctx); err != nil || e.(*worker.Cancellation).Reason != "replaced" {
		t.Errorf("Next = %v, %v", e, err)
	}
	if err := c.Close(); err != nil || !errors.Is(c.Err(), worker.ErrClosed) {
		t.Errorf("Close = %v, Err = %v", err, c.Err())
	}
	if code := v.closeCode(); code != 1000 {
		t.Errorf("close code = %d, want a normal closure", code)
	}
}

// LIMIT-019: typed errors before anything is sent.
func TestConnRefusesWhatIsTooLargeBeforeSending(t *testing.T) {
	s := newTLSServer(t)
	c, v, _ := dial(t, s, registration())
	a := worker.Attempt{ID: id("5"), Epoch: 3}
	for want, r := range map[string]worker.Report{
		"receipt":              {Receipt: "a b", Outcome: orbit.OutcomeFailed},
		"outcome":              {Receipt: "r", Outcome: "DONE"},
		"retryable":            {Receipt: "r", Outcome: orbit.OutcomeUnknown, Retryable: true},
		"result":               {Receipt: "r", Outcome: orbit.OutcomeSucceeded, Result: []byte(`"` + strings.Repeat("x", wire.MaxResult-1) + `"`)},
		"result: is only":      {Receipt: "r", Outcome: orbit.OutcomeFailed, Result: []byte(`1`)},
		"result.a":             {Receipt: "r", Outcome: orbit.OutcomeSucceeded, Result: []byte(`{"a":1,"a":2}`)},
		"error":                {Receipt: "r", Outcome: orbit.OutcomeFailed, Error: strings.Repeat("x", wire.MaxError+1)},
		"error: must be valid": {Receipt: "r", Outcome: orbit.OutcomeFailed, Error: "\xff"},
	} {
		_, err := c.Finish(t.Context(), a, r)
		var invalid *orbit.InvalidArgumentError
		if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Error(), want) {
			t.Errorf("Finish = %v, want an InvalidArgumentError of %s", err, want)
		}
	}
	for _, progress := range []string{strings.Repeat("x", wire.MaxProgress+1), "\xff"} {
		var invalid *orbit.InvalidArgumentError
		if _, err := c.Renew(t.Context(), a, progress); !errors.As(err, &invalid) || invalid.Field != "progress" {
			t.Errorf("Renew = %v", err)
		}
	}
	c.Close()
	if kinds := v.rest(); len(kinds) > 0 {
		t.Errorf("sent %q", kinds)
	}
}

// A payload of 32 levels and a result of 32 levels travel; the carrier's own levels
// do not count (AMB-011).
func TestThirtyTwoLevelsTravel(t *testing.T) {
	s := newTLSServer(t)
	deep := json.RawMessage(strings.Repeat("[", 31) + strings.Repeat("]", 31)) // the task object is level 1
	h := run(t, s, worker.Config{}, func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
		return e.Task.Payload, nil
	})
	v, _ := s.welcome()
	a := offer("5")
	a.Task.Payload = deep
	v.assign(a)
	v.start(15e9, 30e9)
	if f := v.finish(); f.Outcome != wire.OutcomeSucceeded || string(f.Result) != string(deep) {
		t.Errorf("finish = %+v", f)
	}
	h.stop()
	v.drained()
	h.end()
	if err := worker.CheckResult([]byte("[" + string(deep) + "]")); err == nil {
		t.Error("a result of 33 levels passes")
	}
}

// WRK-021: renewals overtake everything that waits for a slow network.
func TestRenewalOvertakesLargeResults(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		c, v, _ := dial(t, s, registration())
		stalled := make(chan struct{})
		v.answering(func(f wire.Envelope) bool {
			<-stalled // the server reads nothing more
			return false
		})
		asking, giveUp := context.WithCancel(t.Context())
		result := []byte(`"` + strings.Repeat("x", 200<<10) + `"`)
		const results, renewals = 6, 8
		for range results {
			go c.Finish(asking, worker.Attempt{ID: id("5"), Epoch: 3}, worker.Report{Receipt: "r", Outcome: orbit.OutcomeSucceeded, Result: result})
			synctest.Wait()
		}
		for range renewals {
			go c.Renew(asking, worker.Attempt{ID: id("6"), Epoch: 3}, "")
		}
		synctest.Wait()
		close(stalled)
		var order []string
		for range results + renewals {
			f, _ := v.next()
			order = append(order, f.Type)
		}
		for _, kind := range order[2 : 2+renewals] { // one is read and one half written by then
			if kind != wire.TypeRenew {
				t.Fatalf("order = %v, want the renewals third", order)
			}
		}
		giveUp()
		c.Close()
		s.close()
	})
}

// A server that gives no sign of life is left after two and a half ping intervals.
func TestSilentServerIsLeft(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newDeafServer(t)
		c, _, _ := dial(t, s, registration())
		began := time.Now()
		<-c.Done()
		if took := time.Since(began); took != 50*time.Second || !errors.Is(c.Err(), worker.ErrClosed) {
			t.Errorf("left after %v with %v, want 50s", took, c.Err())
		}
		c.Close()
		s.close()
	})
}

// The server may do the asking: its pings are answered, and count as signs of life.
func TestPingsOfTheServerAreAnswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newDeafServer(t)
		c, v, _ := dial(t, s, registration())
		for range 100 {
			time.Sleep(10 * time.Second)
			v.ping()
			synctest.Wait()
		}
		if err := c.Err(); err != nil {
			t.Errorf("Err = %v", err)
		}
		c.Close()
		s.close()
		if n := v.Pongs(); n != 100 {
			t.Errorf("%d of 100 pings were answered", n)
		}
	})
}

func TestIdleConnectionStaysOpen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		c, _, _ := dial(t, s, registration())
		time.Sleep(24 * time.Hour)
		if err := c.Err(); err != nil {
			t.Errorf("Err after a day = %v", err)
		}
		c.Close()
		s.close()
	})
}

func TestEventsThatNobodyTakesEndTheConnection(t *testing.T) {
	s := newTLSServer(t)
	c, v, _ := dial(t, s, registration())
	for range 100 {
		v.send(wire.TypeCancel, "", wire.Cancel{AttemptID: id("5"), Epoch: 3})
	}
	<-c.Done()
	if !strings.Contains(c.Err().Error(), "Next") {
		t.Errorf("Err = %v", c.Err())
	}
	for range 24 {
		if _, err := c.Next(t.Context()); err != nil {
			t.Fatalf("an event that had arrived is lost: %v", err)
		}
	}
	if _, err := c.Next(t.Context()); !errors.Is(err, worker.ErrClosed) {
		t.Errorf("Next at the end = %v", err)
	}
}

func TestBinaryFrameBreaksTheProtocol(t *testing.T) {
	s := newTLSServer(t)
	c, v, _ := dial(t, s, registration())
	v.SendBinary([]byte(`{"type":"server.draining","data":{"retry_after_ms":1}}`))
	if code := v.closeCode(); code != wire.CloseProtocolError {
		t.Errorf("close code = %d, Err = %v", code, c.Err())
	}
}

// An extension that nobody offered could unpack a small frame to any size.
func TestUnaskedExtensionIsRefused(t *testing.T) {
	s := newServer(t, workertest.ListenerConfig{Header: http.Header{
		"Sec-WebSocket-Extensions": {"permessage-deflate; server_no_context_takeover; client_no_context_takeover"},
	}})
	_, err := worker.Dial(t.Context(), s.url(), "t", registration(), s.network())
	if broke := (*worker.ProtocolError)(nil); !errors.As(err, &broke) || !strings.Contains(broke.Rule, "extension") {
		t.Errorf("Dial = %v", err)
	}
}

// The words of other parties cannot forge a line of a log, and no error tells the
// token.
func TestErrorsAreOneLine(t *testing.T) {
	for _, err := range []error{
		&worker.RefusedError{Act: "hello", Code: "A\nB", Message: "a\r\nb\xff" + strings.Repeat("x", 1000)},
		&worker.HandshakeError{Status: 403, Code: orbit.CodePermissionDenied, Message: "a\nb", RequestID: id("1")},
		&worker.ClosedError{Code: 4401, Reason: "a\nb"},
		&worker.StuckError{Handler: update, AttemptID: id("5"), TaskID: id("6"), Cause: worker.ErrLeaseLost},
		&worker.PanicError{Handler: update, AttemptID: id("5"), TaskID: id("6"), Value: "oops"},
		&worker.DrainError{Running: []string{id("5")}, Unacknowledged: []string{id("6")}},
	} {
		text := err.Error()
		if strings.ContainsAny(text, "\r\n") || !utf8.ValidString(text) || len(text) > 600 || !strings.HasPrefix(text, "worker: ") {
			t.Errorf("error text %q", text)
		}
	}
	if !errors.Is(&worker.ClosedError{}, worker.ErrClosed) || !errors.Is(&worker.StuckError{Cause: worker.ErrLeaseLost}, worker.ErrLeaseLost) {
		t.Error("errors do not wrap what they promise")
	}
	if cause := errors.New("x"); !errors.Is(worker.Failed(cause), cause) {
		t.Error("Failed does not wrap its error")
	}
}

func TestDialEndsAtOnceWithItsContext(t *testing.T) {
	for name, silent := range map[string]func(*fakeServer) func(){
		"BeforeTheUpgrade": func(*fakeServer) func() { return func() {} },
		"BeforeHelloOK":    func(s *fakeServer) func() { return func() { s.visit() } },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newPipeServer(t)
				seen := silent(s)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				network := s.network()
				if name == "BeforeTheUpgrade" {
					network.DialContext = deafDial(t)
				}
				go func() {
					_, err := worker.Dial(ctx, s.url(), "t", registration(), network)
					done <- err
				}()
				seen()
				synctest.Wait()
				began := time.Now()
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Dial = %v", err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("Dial took another %v", took)
				}
				s.close()
			})
		})
	}
}

// deafDial opens connections that nobody reads from or writes to.
func deafDial(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		t.Cleanup(func() { server.Close() })
		return client, nil
	}
}

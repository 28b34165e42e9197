package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
	"github.com/orbitkit/orbit/worker"
)

// A word is a legal message of the server with every member that it may have, and the
// message of the worker that it answers; empty if it says it on its own.
type word struct{ answers, frame string }

// ref stands for the id of the question in a word.
const ref = "REF"

func words() []word {
	about := fmt.Sprintf(`"attempt_id":%q,"epoch":3`, id("5"))
	answer := func(kind, data string) string {
		return fmt.Sprintf(`{"type":%q,"ref":%q,"data":{%s}}`, kind, ref, data)
	}
	own := func(kind, data string) string { return fmt.Sprintf(`{"type":%q,"data":{%s}}`, kind, data) }
	return []word{
		{wire.TypeHello, answer(wire.TypeHelloOK, `"node_id":"n","lease_ms":15000,"ping_ms":15000,"attempts":[{`+about+`}],"max_frame":524288,"server_time":"now"`)},
		{"", own(wire.TypeAssign, about+fmt.Sprintf(`,"lease_ms":15000,"task":{"id":%q,"namespace_id":%q,"queue_id":%q,"handler":%q,"handler_version":%q,`+
			`"payload_version":"v1","payload":{"n":1},"business_key":"b","concurrency_key":"k","priority":2,"recovery_safety":"IDEMPOTENT","deadline_ms":5000,`+
			`"attempt_number":3,"effect_uncertain":true,"retry_of":%q},"concurrency_token":"7","operation_root":%q,`+
			`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, id("6"), id("2"), queueID, update.Name, update.Version, id("7"), id("8")))},
		{wire.TypeStart, answer(wire.TypeStarted, about+`,"lease_ms":15000,"timeout_ms":30000,"cancel_requested":true`)},
		{wire.TypeResume, answer(wire.TypeResumed, about+`,"status":"keep","running":true,"lease_ms":15000,"timeout_ms":30000,"cancel_requested":true`)},
		{wire.TypeRenew, answer(wire.TypeRenewed, about+`,"lease_ms":15000,"cancel_requested":true`)},
		{wire.TypeFinish, answer(wire.TypeFinished, about+`,"status":"recorded","task_state":"SUCCEEDED"`)},
		{wire.TypeReturn, answer(wire.TypeReturned, about)},
		{wire.TypeDrain, answer(wire.TypeDrainOK, ``)},
		{wire.TypeStart, answer(wire.TypeError, fmt.Sprintf(`"code":"lease_expired","message":"it is over","attempt_id":%q`, id("5")))},
		{"", own(wire.TypeCancel, about+`,"reason":"ordered twice"`)},
		{"", own(wire.TypeServerDraining, `"retry_after_ms":1200`)},
	}
}

// questions ask what each word answers.
var questions = map[string]func(context.Context, *worker.Conn, worker.Attempt) error{
	"": func(ctx context.Context, c *worker.Conn, _ worker.Attempt) error { _, err := c.Next(ctx); return err },
	wire.TypeStart: func(ctx context.Context, c *worker.Conn, a worker.Attempt) error {
		_, err := c.Start(ctx, a)
		return err
	},
	wire.TypeResume: func(ctx context.Context, c *worker.Conn, a worker.Attempt) error {
		_, err := c.Resume(ctx, a)
		return err
	},
	wire.TypeRenew: func(ctx context.Context, c *worker.Conn, a worker.Attempt) error {
		_, err := c.Renew(ctx, a, "")
		return err
	},
	wire.TypeFinish: func(ctx context.Context, c *worker.Conn, a worker.Attempt) error {
		_, err := c.Finish(ctx, a, worker.Report{Receipt: "r", Outcome: orbit.OutcomeSucceeded})
		return err
	},
	wire.TypeReturn: func(ctx context.Context, c *worker.Conn, a worker.Attempt) error { return c.Return(ctx, a) },
	wire.TypeDrain:  func(ctx context.Context, c *worker.Conn, _ worker.Attempt) error { return c.Drain(ctx) },
}

// Each member of each message of the server, wrong in every way: the worker takes nothing
// from it, tells its owner which member is wrong, and ends the connection with the close
// code of a broken protocol.
func TestEveryFaultOfAServerMessageEndsTheConnection(t *testing.T) { // TEST-015, TEST-016, WRK-005, WRK-006, WRK-010, WRK-011, WRK-023
	s := newTLSServer(t)
	n := 0
	for _, w := range words() {
		for _, f := range wiretest.Faults(wiretest.Server, w.frame) {
			n++
			hearFault(t, s, w, f)
		}
	}
	if n < 500 {
		t.Errorf("%d faults were tried, want hundreds", n)
	}
}

func hearFault(t *testing.T, s *fakeServer, w word, f wiretest.Fault) {
	t.Helper()
	r := registration()
	r.ConcurrencyKeys = true
	told := make(chan error, 1)
	go func() {
		c, err := worker.Dial(t.Context(), s.url(), "t", r, s.network())
		if err == nil {
			defer c.Close()
			err = questions[w.answers](t.Context(), c, worker.Attempt{ID: id("5"), Epoch: 3})
			if broke := (*worker.ProtocolError)(nil); !errors.As(err, &broke) { // of an answer that nobody can be found for
				<-c.Done()
				err = c.Err()
			}
		}
		told <- err
	}()
	v := s.visit()
	v.answering(nil) // renewals too are left to the test
	hello := v.expect(wire.TypeHello)
	asked := hello.ID
	if w.answers != wire.TypeHello {
		v.send(wire.TypeHelloOK, hello.ID, wire.HelloOK{NodeID: "n", LeaseMS: 15_000, PingMS: 20_000, MaxFrame: wire.MaxFrame, ServerTime: "now"})
		if w.answers != "" {
			asked = v.expect(w.answers).ID
		}
	}
	v.sendText(strings.Replace(f.Frame, `"`+ref+`"`, `"`+asked+`"`, 1))
	err := <-told
	broke := (*worker.ProtocolError)(nil)
	if !errors.As(err, &broke) || !f.NamedBy(broke.Rule) {
		t.Errorf("%s: the worker reports %v, want a ProtocolError that names the member", f.Name, err)
	}
	if code := v.closeCode(); code != wire.CloseProtocolError {
		t.Errorf("%s: close code = %d, want %d", f.Name, code, wire.CloseProtocolError)
	}
}

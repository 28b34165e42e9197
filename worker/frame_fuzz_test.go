package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
)

// Whatever a server sends is taken, or breaks the protocol by a rule that is told. What is
// taken fits the schema, and answers one question at most.
func FuzzServerFrames(f *testing.F) { // TEST-016, WRK-011, WRK-023
	a := Attempt{ID: strings.Repeat("0", 31) + "5", Epoch: 3}
	about := fmt.Sprintf(`"attempt_id":%q,"epoch":3`, a.ID)
	for _, seed := range []string{
		`{"type":"task.started","ref":"1","data":{` + about + `,"lease_ms":1,"timeout_ms":18446744073709551615,"cancel_requested":true}}`,
		`{"type":"task.started","ref":"1","data":{` + about + `,"lease_ms":1}}`,
		// Spelled as ours, and no JSON behind the data: it is the frame that is wrong.
		`{"type":"task.started","ref":"1","data":{` + about + `,"lease_ms":1,"timeout_ms":1},"ref":"2"}`, `{"type":"task.started","ref":"99","data":{"a":}}`,
		`{"type":"task.started","ref":"1","data":{` + about + `,"lease_ms":1,"timeout_ms":1}`, `{"type":"task.returned","ref":"99","data":{"a":1,"a":2}}`,
		`{"type":"task.resumed","ref":"2","data":{` + about + `,"status":"keep","running":true,"lease_ms":1,"timeout_ms":1}}`,
		`{"type":"task.resumed","ref":"2","data":{` + about + `,"status":"gone"}}`,
		`{"type":"task.renewed","ref":"3","data":{` + about + `,"lease_ms":0}}`,
		`{"type":"task.finished","ref":"4","data":{` + about + `,"status":"recorded","task_state":"SUCCEEDED"}}`,
		`{"type":"task.returned","ref":"5","data":{` + about + `}}`, `{"type":"drain.ok","ref":"6","data":{}}`, `{"type":"drain.ok","ref":"6"}`,
		`{"type":"error","ref":"1","data":{"code":"lease_expired","message":"\u0000","attempt_id":"` + a.ID + `"}}`, `{"type":"error","data":{"code":"x","message":""}}`,
		`{"type":"task.cancel","data":{` + about + `,"reason":"\ud83d\ude00"}}`, `{"type":"server.draining","data":{"retry_after_ms":18446744073709551615}}`,
		`{"type":"hello.ok","ref":"9","data":{"node_id":"n","lease_ms":1,"ping_ms":1,"attempts":[{` + about + `}],"max_frame":1,"server_time":""}}`,
		`{"type":"task.started","ref":"6","data":{}}`, `{"type":"task.jump","ref":"1","data":{}}`, `{"type":"error","ref":"\u00e9","data":{}}`, `{"type":`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := &Conn{
			registration: Registration{Capacity: 1}, maxFrame: wire.MaxFrame, events: make(chan Event, 2),
			urgent: make(chan []byte, 1), normal: make(chan []byte, 1), pending: map[string]question{}, done: make(chan struct{}),
		}
		ends := c.askAll(a)
		frame, err := decodeFrame(text)
		if err == nil && frame.Type == wire.TypeHelloOK {
			err = c.registered(frame, frame.Ref)
		} else if wrong := err; true {
			if err = c.take(text); wrong != nil && (err == nil || err.Error() != wrong.Error()) {
				t.Errorf("%q is taken: %v, read strictly it is %v", text, err, wrong)
			}
		}
		if broke := (*ProtocolError)(nil); err != nil && !errors.As(err, &broke) {
			t.Errorf("%q ends the connection by %v, want a ProtocolError", text, err)
		}
		c.fail(ErrClosed)
		answered := 0
		for range questionsAsked {
			if err := <-ends; !errors.Is(err, ErrClosed) {
				answered++
			}
		}
		if answered > 1 {
			t.Errorf("%q answers %d questions", text, answered)
		}
		if fault := wiretest.Check(wiretest.Server, text); err == nil && fault != nil && (answered > 0 || len(c.events) > 0) {
			t.Errorf("%q is taken, but %v", text, fault)
		}
	})
}

const questionsAsked = 6

// askAll asks everything about an attempt. The questions have the ids 1 to 6.
func (c *Conn) askAll(a Attempt) <-chan error {
	ends := make(chan error, questionsAsked)
	for _, ask := range [questionsAsked]func(context.Context) error{
		func(ctx context.Context) error { _, err := c.Start(ctx, a); return err },
		func(ctx context.Context) error { _, err := c.Resume(ctx, a); return err },
		func(ctx context.Context) error { _, err := c.Renew(ctx, a, ""); return err },
		func(ctx context.Context) error {
			_, err := c.Finish(ctx, a, Report{Receipt: "r", Outcome: orbit.OutcomeSucceeded})
			return err
		},
		func(ctx context.Context) error { return c.Return(ctx, a) },
		c.Drain,
	} {
		go func() { ends <- ask(context.Background()) }()
		select { // the question is expected by then
		case <-c.urgent:
		case <-c.normal:
		}
	}
	return ends
}

package session

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
)

// The digest of a registration is stored: it must never change.
func TestRegistrationDigestIsFrozen(t *testing.T) { // WRK-008, AMB-038
	h := &wire.Hello{
		ProcessID: strings.Repeat("1", 32), Capacity: 4,
		Handlers: []wire.Handler{{Name: "b", Version: "v1"}, {Name: "a", Version: "v2"}},
		Queues:   []string{strings.Repeat("3", 32), strings.Repeat("2", 32)},
	}
	digest := func() string {
		r, err := newRegistration(h)
		if err != nil {
			t.Fatal(err)
		}
		d := r.digest()
		return hex.EncodeToString(d[:])
	}
	const without = "edfd949eba91ac8b2506699ca0f08085eaeb4684dfebd214ec49288d49700279"
	const with = "375357a3455111c3e8fa2f5dd660bbc9c1031d72ce3783c62845adcb144911c6"
	if got := digest(); got != without {
		t.Errorf("digest without support for keys = %s, want %s", got, without)
	}
	h.ConcurrencyKeys = true
	if got := digest(); got != with {
		t.Errorf("digest with support for keys = %s, want %s", got, with)
	}
}

func TestAssignmentCarriesPayloadAndTokenExactly(t *testing.T) { // TOK-001, TOK-014, KEY-008
	g := &dispatch.Grant{
		Attempt: sqldb.NewID(), Epoch: 2, Number: 2, Token: math.MaxUint64 - 1, Task: sqldb.NewID(), Namespace: sqldb.NewID(),
		Queue: sqldb.NewID(), Handler: "h", HandlerVersion: "v", PayloadVersion: "p", OperationRoot: sqldb.NewID(),
		Payload:     json.RawMessage(`{"n": 1.50, "s":"\u003c\"payload\":0>", "k" :[ 1e5 ]}`),
		BusinessKey: `"payload":0`, ConcurrencyKey: `\"payload\":0`, Lease: 10 * time.Second, Deadline: time.Minute,
		RetryOf: sqldb.NewID(), EffectUncertain: true, Idempotent: true,
	}
	frame := encodeAssign(g, 3*time.Second)
	var e wire.Envelope
	if err := strictjson.DecodeInside(frame, &e, 2); err != nil {
		t.Fatalf("the frame is not strict JSON: %v", err)
	}
	var m wire.Assign
	if err := strictjson.DecodeInside(e.Data, &m, 1); err != nil {
		t.Fatalf("the data is not strict: %v", err)
	}
	if string(m.Task.Payload) != string(g.Payload) || m.ConcurrencyToken != "18446744073709551614" || m.LeaseMS != 7000 || m.Task.DeadlineMS != 57000 ||
		m.Task.BusinessKey != g.BusinessKey || m.Task.ConcurrencyKey != g.ConcurrencyKey || m.Task.RetryOf != g.RetryOf.String() ||
		!m.Task.EffectUncertain || m.Task.RecoverySafety != "IDEMPOTENT" {
		t.Errorf("assignment = %+v", m)
	}
	g.Token, g.ConcurrencyKey = 0, ""
	if frame := encodeAssign(g, 0); strings.Contains(string(frame), "concurrency") {
		t.Errorf("assignment without a key = %s", frame)
	}
}

type noAuth struct{}

func (noAuth) Authenticate(context.Context, *http.Request) (auth.Principal, error) {
	return auth.Principal{}, nil
}
func (noAuth) Refresh(context.Context, sqldb.ID) (auth.Principal, error) {
	return auth.Principal{}, nil
}

func (noAuth) Ended(context.Context, []sqldb.ID) ([]sqldb.ID, error) { return nil, nil }

// A worker that goes away while a claim for it is under way.
func TestClaimForAWorkerThatLeftIsHandedBack(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		hub, err := New(db.DB, noAuth{}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		x := dispatchtest.Task{Queue: w.NewQueue("q"), Key: "object"}
		ids := []sqldb.ID{w.Submit(x), w.Submit(dispatchtest.Task{Queue: x.Queue})}
		s := newSession(hub, auth.Principal{Namespace: w.Namespace, Credential: w.Credential})
		s.process, s.capacity = sqldb.NewID(), 2
		hub.board.join(s, "k", []dispatch.Lane{x.Lane(), {Queue: x.Queue, Handler: "h", Version: dispatchtest.Version}}, map[sqldb.ID]held{})
		credit(hub.board, s, 2)
		o := hub.board.order(time.Now())
		hub.board.change(s, func(p *place) { p.credit = 1 }) // it changes its mind about one
		if err := hub.claim(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if n := len(s.queue.assigns); n != 1 {
			t.Errorf("%d assignments for 1 slot of credit", n) // the server never assigns more
		}
		hub.board.leave(s) // and goes before the other is sent
		s.returnUnsent()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		hub.returns.Run(ctx)
		for _, id := range ids {
			if got := w.Task(id); got.State != "WAITING" || got.Attempts != 1 || got.Dispatch != 1 {
				t.Errorf("task = %+v, want it waiting in line again", got)
			}
		}
	}, migrations.Server)
}

// takeHello reads a hello as far as that goes without a database.
func takeHello(frame wire.Envelope) error {
	var m wire.Hello
	err := decode(frame.Data, &m)
	if err == nil {
		_, err = newRegistration(&m)
	}
	if err == nil {
		_, err = readHeld(&m)
	}
	if err != nil {
		return &breach{frame.ID, err.Error()}
	}
	return nil
}

// Whatever a worker sends ends its connection by a breach that is explained, or is taken, and
// then it fits the schema.
func FuzzMessages(f *testing.F) { // TEST-015, API-002, REF-WRK-002
	for _, seed := range []string{
		`{"type":"task.start","id":"1","data":{"attempt_id":"` + strings.Repeat("a", 32) + `","epoch":1}}`,
		`{"type":"task.finish","id":"1","data":{"attempt_id":"` + strings.Repeat("a", 32) + `","epoch":1,"receipt":"r","outcome":"SUCCEEDED","result":{"a":[1,"\u0000"]}}}`,
		`{"type":"task.renew","id":"1","data":{"attempt_id":"` + strings.Repeat("a", 32) + `","epoch":1,"progress":"x"}}`,
		// Spelled as ours, and no JSON behind the data: it is the frame that is wrong.
		`{"type":"task.start","id":"1","data":{"attempt_id":"` + strings.Repeat("a", 32) + `","epoch":1},"id":"2"}`,
		`{"type":"task.start","id":"1","data":{"attempt_id":"` + strings.Repeat("a", 32) + `","epoch":1}`, `{"type":"credit","id":"1","data":null}`,
		`{"type":"credit","id":"1","data":{"slots":7}}`, `{"type":"drain","id":"1"}`, `{"type":"credit","id":"1","data":{}}`,
		`{"type":"hello","id":"1","data":{"process_id":"` + strings.Repeat("a", 32) + `","handlers":[{"name":"h","version":"v"}],"queues":["` + strings.Repeat("b", 32) +
			`"],"capacity":3,"concurrency_keys":true,"held":[{"attempt_id":"` + strings.Repeat("c", 32) + `","epoch":9223372036854775807}]}}`,
		`{"type":"hello","id":"1","data":{"process_id":"` + strings.Repeat("a", 32) + `","handlers":[],"queues":null,"capacity":-1}}`,
		`{"type":"task.start","id":" ","ref":"1","data":{"attempt_id":"x","epoch":1e3}}`, `{"type":"task.jump","id":"1"}`, "\ufeff{}", `[[[[`, `{"type":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	hub, err := New(sqldb.New(sqldb.SQLite, nil, nil), noAuth{}, Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newSession(hub, auth.Principal{})
		s.capacity = 1
		hub.board.join(s, "k", []dispatch.Lane{boardLane}, map[sqldb.ID]held{})
		defer hub.board.leave(s)
		frame, err := parseFrame(text)
		if err == nil && frame.Type == wire.TypeHello {
			err = takeHello(frame)
		} else if wrong := err; true {
			if err = s.take(text); wrong != nil && (err == nil || err.Error() != wrong.Error()) {
				t.Errorf("%q is taken: %v, read strictly it is %v", text, err, wrong)
			}
		}
		if rule, ok := err.(*breach); err != nil && (!ok || rule.rule == "") {
			t.Errorf("a message ends the connection by %v, want a breach", err)
		}
		refused := len(s.queue.answers) > 0 && frame.Type != wire.TypeDrain
		if fault := wiretest.Check(wiretest.Client, text); err == nil && !refused && fault != nil {
			t.Errorf("%s is taken, but %v", text, fault)
		}
		hub.finishes.take() // nobody runs them
		hub.starts.take()
		hub.renewals.take()
		hub.resumes.take()
		hub.returns.take()
		hub.drains.take()
	})
}

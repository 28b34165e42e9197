package session

import (
	"context"
	"errors"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// A refusedHello is a registration that is not taken.
type refusedHello struct {
	ref     string
	code    string
	message string
}

func (e *refusedHello) Error() string { return e.code + ": " + e.message }

func (e *refusedHello) closeCode() int {
	switch e.code {
	case orbit.CodeUnavailable:
		return websocket.CloseTryAgainLater
	case orbit.CodeInvalidArgument:
		return wire.CloseProtocolError
	}
	return websocket.ClosePolicyViolation
}

// hello takes the first message: it registers the process, tells it what it holds, and
// puts the session on the board, without credit.
func (s *session) hello(ctx context.Context) error {
	var text wire.Text // what is kept of it stays where it is
	if err := s.receive(&text); err != nil {
		return err
	}
	frame, err := parseFrame(text.Bytes())
	if err != nil {
		return err
	}
	if frame.Type != wire.TypeHello {
		return &breach{frame.ID, "type: the first message must be hello"}
	}
	var m wire.Hello
	if err := decode(frame.Data, &m); err != nil {
		return &breach{frame.ID, "hello: " + err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, s.hub.cfg.HelloTimeout)
	defer cancel()
	r, known, believed, refusal := s.register(ctx, &m)
	if refusal != nil {
		refusal.ref = frame.ID
		return refusal
	}
	holds := make(map[sqldb.ID]held, len(known))
	for _, one := range known {
		holds[one.attempt] = held{epoch: one.epoch, until: time.Now().Add(one.left), queue: one.queue}
	}
	key := s.principal.Namespace.String() + s.classKey(r)
	if err := s.hub.board.join(s, key, r.lanes(), holds); err != nil {
		s.hub.log.WarnContext(ctx, "registration has no room", "process_id", s.process.String(), "cause", err.Error())
		return &refusedHello{frame.ID, orbit.CodeUnavailable, err.Error() + ": connect to another node, or later"}
	}
	s.say(wire.TypeHelloOK, frame.ID, s.helloOK(known))
	s.awaitSettling(known, believed)
	return nil
}

// classKey is equal for registrations that take from the same lanes.
func (s *session) classKey(r *registration) string {
	same := *r
	same.capacity = 0
	digest := same.digest()
	return string(digest[:])
}

// register checks a hello against the credential and the database, and records it. It
// returns what the server knows the process to hold, and what the process believes.
func (s *session) register(ctx context.Context, m *wire.Hello) (r *registration, held []holding, believed []sqldb.ID, refusal *refusedHello) {
	r, err := newRegistration(m)
	if err == nil {
		believed, err = readHeld(m)
	}
	if err != nil {
		return nil, nil, nil, &refusedHello{code: orbit.CodeInvalidArgument, message: err.Error()}
	}
	if refusal := s.mayTake(ctx, r); refusal != nil {
		return nil, nil, nil, refusal
	}
	connectedAt, err := s.hub.register(ctx, s.principal, r)
	switch {
	case errors.Is(err, errChanged):
		return nil, nil, nil, &refusedHello{code: orbit.CodeStateConflict, message: errChanged.Error()}
	case err != nil:
		return nil, nil, nil, s.unavailable(ctx, err)
	}
	s.process, s.capacity, s.queues, s.connectedAt = r.process, r.capacity, r.queues, connectedAt
	held, err = s.hub.holdings(ctx, s.principal.Namespace, r.process)
	if err != nil {
		return nil, nil, nil, s.unavailable(ctx, err)
	}
	return r, held, believed, nil
}

// mayTake holds the queues to the credential's scope. Who is restricted to some queues
// does not learn whether others exist (AMB-029).
func (s *session) mayTake(ctx context.Context, r *registration) *refusedHello {
	if !s.principal.Can(auth.WorkersConsume) {
		return &refusedHello{code: orbit.CodePermissionDenied, message: "the credential lacks the permission " + auth.WorkersConsume}
	}
	for _, id := range r.queues {
		if !s.principal.MayUse(id) {
			return &refusedHello{code: orbit.CodePermissionDenied, message: "queue " + id.String() + " is outside the scope of the credential"}
		}
	}
	missing, err := s.hub.missingQueue(ctx, s.principal.Namespace, r.queues)
	switch {
	case err != nil:
		return s.unavailable(ctx, err)
	case !missing.IsZero():
		return &refusedHello{code: orbit.CodeNotFound, message: "queue " + missing.String() + " does not exist in the namespace"}
	}
	return nil
}

func (s *session) unavailable(ctx context.Context, err error) *refusedHello {
	s.hub.log.ErrorContext(ctx, "registration failed", "err", err)
	return &refusedHello{code: orbit.CodeUnavailable, message: "the registration could not be stored: connect again"}
}

func (s *session) helloOK(held []holding) wire.HelloOK {
	ok := wire.HelloOK{
		NodeID: s.hub.node, LeaseMS: millis(s.hub.dispatcher.Lease()), PingMS: millis(s.hub.cfg.Ping),
		MaxFrame: wire.MaxFrame, ServerTime: time.Now().UTC().Format(time.RFC3339Nano),
	}
	for _, one := range held {
		ok.Attempts = append(ok.Attempts, wire.Held{AttemptID: one.attempt.String(), Epoch: uint64(one.epoch)})
	}
	return ok
}

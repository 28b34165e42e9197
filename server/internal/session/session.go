package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

const (
	// inFlight bounds the bytes of messages of one connection that wait for an answer.
	// Beyond it the connection is not read: its socket pushes back.
	inFlight = 4 << 20
	// inFlightEach is what a message counts beside its bytes, so that their number is
	// bounded too.
	inFlightEach = 4 << 10
	// linger is how long a connection that is being ended may take to say so.
	linger = time.Second
	// grace is how long a lease is over before an attempt no longer counts as held.
	grace = 5 * time.Second
)

// A session is one connection of a worker process.
type session struct {
	hub       *Hub
	principal auth.Principal
	ws        *websocket.Conn
	out       *wire.GatherConn // below ws
	queue     *sendQueue
	budget    *budget
	credits   pace      // of words about credit
	heardAt   time.Time // the sign of life that the reader's deadline counts from

	// Set by hello, before anybody else sees the session.
	process     sqldb.ID
	capacity    int
	queues      []sqldb.ID
	connectedAt int64

	place    place       // guarded by the board
	settling atomic.Bool // place.open is not empty
	settleBy *time.Timer // ends the wait for it; nil if there is none

	endOnce   sync.Once
	ended     chan struct{} // closed when the connection is to end
	code      int           // close code, set before ended is closed
	reason    string
	drainSaid sync.Once
}

func newSession(h *Hub, p auth.Principal) *session {
	return &session{hub: h, principal: p, queue: newSendQueue(), budget: newBudget(inFlight), credits: pace{rate: creditRate, most: creditRate}, ended: make(chan struct{})}
}

func (s *session) key() processKey { return processKey{s.principal.Namespace, s.process} }

// A breach is a message that is against the protocol. It ends the connection.
type breach struct {
	ref  string
	rule string
}

func (b *breach) Error() string { return b.rule }

// serve runs the connection to its end. The goroutine is its reader.
func (s *session) serve(ctx context.Context) {
	defer s.ws.Close()
	var writer sync.WaitGroup
	writer.Go(s.write)
	s.ws.SetReadLimit(wire.MaxFrame)
	s.ws.SetReadDeadline(time.Now().Add(s.hub.cfg.HelloTimeout))
	err := s.hello(ctx)
	if err == nil {
		err = s.work()
	}
	s.explain(err)
	s.end(websocket.CloseNormalClosure, "")
	writer.Wait()
	s.linger()
	s.returnUnsent()
}

// work serves a registered session to the end of its connection.
func (s *session) work() error {
	defer s.hub.board.leave(s)
	defer s.stopSettling()
	s.hub.replace(s)
	return s.read()
}

// end asks for the end of the connection. The first reason counts. It never blocks.
func (s *session) end(code int, reason string) {
	s.endOnce.Do(func() {
		s.code, s.reason = code, reason
		s.hub.cfg.Watch.Closed(closedBy(code, reason))
		close(s.ended)
	})
}

// explain tells the worker why the connection ends, if that is the worker's doing.
func (s *session) explain(err error) {
	var (
		rule    *breach
		refused *refusedHello
	)
	switch {
	case errors.As(err, &rule):
		s.hub.log.Warn("worker broke the protocol", "process_id", s.process.String(), "rule", rule.rule)
		s.say(wire.TypeError, rule.ref, wire.Error{Code: orbit.CodeInvalidArgument, Message: rule.rule})
		s.end(wire.CloseProtocolError, rule.rule)
	case errors.As(err, &refused):
		s.say(wire.TypeError, refused.ref, wire.Error{Code: refused.code, Message: refused.message})
		s.end(refused.closeCode(), "")
	}
}

// linger reads on until the worker has hung up, for a moment: to close a socket with
// unread words in it could take ours away from the worker.
func (s *session) linger() {
	for {
		if _, _, err := s.ws.NextReader(); err != nil {
			return
		}
	}
}

// read reads messages until the connection ends. Only a breach is an error of interest.
func (s *session) read() error {
	s.ws.SetPongHandler(func(string) error { return s.heard() })
	s.ws.SetPingHandler(func(data string) error {
		s.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(s.hub.cfg.WriteTimeout))
		return s.heard() // a failed write shows at the writer
	})
	for {
		s.heard()
		if err := s.next(); err != nil {
			return err
		}
	}
}

// next reads and handles one message.
func (s *session) next() error {
	var text wire.Text
	defer text.Return()
	if err := s.receive(&text); err != nil {
		return err
	}
	return s.take(text.Bytes())
}

// take handles the text of one message, which is not used after it.
func (s *session) take(text []byte) error {
	frame, split := wire.Split(text)
	if !split {
		frame, err := parseFrame(text)
		if err == nil {
			err = s.handle(frame)
		}
		return err
	}
	err := checkFrame(frame)
	if err == nil {
		err = s.handle(frame)
	}
	if broke := (*breach)(nil); errors.As(err, &broke) { // what is wrong with the frame comes first
		if _, wrong := parseFrame(text); wrong != nil {
			return wrong
		}
	}
	return err
}

// heard notes a sign of life. A connection that is being ended has its last deadline. Signs
// that follow closely move none: that would cost as much as a message.
func (s *session) heard() error {
	now := time.Now()
	if s.over() || now.Sub(s.heardAt) < s.hub.cfg.Ping/64 {
		return nil
	}
	s.heardAt = now
	return s.ws.SetReadDeadline(now.Add(s.hub.cfg.Ping * 5 / 2))
}

func (s *session) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// receive reads one message into text.
func (s *session) receive(text *wire.Text) error {
	kind, r, err := s.ws.NextReader()
	if err == nil {
		_, err = text.ReadFrom(r)
	}
	switch {
	case errors.Is(err, websocket.ErrReadLimit):
		return &breach{rule: fmt.Sprintf("frame: must be at most %d bytes", wire.MaxFrame)}
	case err != nil:
		return err
	case kind != websocket.TextMessage:
		return &breach{rule: "frame: must be text"}
	}
	return nil
}

func parseFrame(text []byte) (frame wire.Envelope, err error) {
	if err := strictjson.DecodeInside(text, &frame, levelsOfEnvelope); err != nil {
		return frame, &breach{rule: "frame: " + err.Error()}
	}
	return frame, checkFrame(frame)
}

func checkFrame(frame wire.Envelope) error {
	if !validMessageID(frame.ID) {
		return &breach{rule: "id: must be 1 to 64 printable ASCII characters without blanks"}
	}
	if frame.Ref != "" {
		return &breach{frame.ID, "ref: is not for messages of a worker"}
	}
	return nil
}

func validMessageID(id string) bool {
	if len(id) < 1 || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// say sends a message. A worker that does not read its answers is disconnected.
func (s *session) say(kind, ref string, data any) {
	if !s.queue.answer(encode(kind, ref, data)) {
		s.end(websocket.ClosePolicyViolation, notRead)
	}
}

// nodeStops gives nothing more to the worker and asks it to connect elsewhere. It says so
// last: answers go before assignments, so one that waited still would be sent behind it.
func (s *session) nodeStops() {
	s.hub.board.change(s, func(p *place) { p.draining = true })
	s.returnUnsent()
	s.sayDraining()
}

// sayDraining asks the worker to connect elsewhere, each a little later than the other,
// so that not all of them come at once.
func (s *session) sayDraining() {
	s.drainSaid.Do(func() {
		wait := time.Second/10 + rand.N(s.hub.cfg.DrainTimeout/4)
		s.say(wire.TypeServerDraining, "", wire.ServerDraining{RetryAfterMS: millis(wait)})
	})
}

// write is the one writer of the connection, until it ends.
func (s *session) write() {
	ping := time.NewTimer(s.pingPause())
	defer ping.Stop()
	for {
		if err := s.flush(); err != nil {
			s.end(websocket.CloseAbnormalClosure, "")
			s.ws.SetReadDeadline(time.Now())
			return
		}
		select {
		case <-s.queue.ready:
		case <-ping.C:
			s.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(s.hub.cfg.WriteTimeout))
			ping.Reset(s.pingPause())
		case <-s.ended:
			s.flush() // the reason for the end may be among it
			s.goodbye()
			return
		}
	}
}

// pingPause spreads the pings of many connections.
func (s *session) pingPause() time.Duration {
	p := s.hub.cfg.Ping
	return p*3/4 + rand.N(p/4+1)
}

// flush writes what waits, many frames by one system call.
func (s *session) flush() error {
	s.out.Hold()
	err := s.writeWaiting()
	if late := s.out.Flush(time.Now().Add(s.hub.cfg.WriteTimeout)); err == nil {
		err = late
	}
	return err
}

func (s *session) writeWaiting() error {
	for {
		frame, a, ok := s.queue.next()
		switch {
		case !ok:
			return nil
		case frame == nil:
			frame = s.assignFrame(a)
		}
		if frame == nil {
			continue
		}
		if err := s.writeFrame(frame); err != nil {
			return err
		}
	}
}

// assignFrame encodes an assignment, unless it is of no use any more.
func (s *session) assignFrame(a assignment) []byte {
	elapsed := time.Since(a.at)
	late := elapsed >= a.grant.Lease
	s.hub.board.written(s, a.grant.Attempt, !late) // there is room for another one
	if late {
		s.hub.handBack(s, a.grant)
		return nil
	}
	return encodeAssign(a.grant, elapsed)
}

func (s *session) writeFrame(frame []byte) error {
	s.ws.SetWriteDeadline(time.Now().Add(s.hub.cfg.WriteTimeout))
	return s.ws.WriteMessage(websocket.TextMessage, frame)
}

// goodbye says why the connection ends, and sets the last deadline of the reader.
func (s *session) goodbye() {
	const most = 120 // a control frame holds 125 bytes, two of them the code
	reason := s.reason
	if len(reason) > most {
		reason = reason[:most]
	}
	s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(s.code, reason), time.Now().Add(linger))
	s.ws.SetReadDeadline(time.Now().Add(linger))
}

// returnUnsent hands back what the worker was never told of. What was sent is left to
// the lease: a closed connection releases nothing (WRK-021).
func (s *session) returnUnsent() {
	for _, a := range s.queue.unsent() {
		s.hub.handBack(s, a.grant)
	}
}

// ref names an attempt in the name of this process.
func (s *session) ref(attempt sqldb.ID, epoch int64) dispatch.Ref {
	return dispatch.Ref{Attempt: attempt, Epoch: epoch, Process: s.process, Namespace: s.principal.Namespace}
}

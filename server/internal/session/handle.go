package session

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/task"
)

// handle takes one message after hello. What needs the database is answered later, by
// its batch; an error ends the connection.
func (s *session) handle(frame wire.Envelope) error {
	if s.over() {
		return nil // only read to its end
	}
	switch frame.Type {
	case wire.TypeStart:
		return s.start(frame)
	case wire.TypeResume:
		return s.resume(frame)
	case wire.TypeRenew:
		return s.renew(frame)
	case wire.TypeFinish:
		return s.finish(frame)
	case wire.TypeReturn:
		return s.giveBack(frame)
	case wire.TypeCredit:
		return s.credit(frame)
	case wire.TypeDrain:
		return s.drain(frame)
	case wire.TypeHello:
		return &breach{frame.ID, "type: hello comes once, as the first message"}
	}
	return &breach{frame.ID, "type: is not known"}
}

func broken(frame wire.Envelope, err error) error {
	return &breach{frame.ID, frame.Type + ": " + err.Error()}
}

// readRef reads who is spoken of.
func (s *session) readRef(frame wire.Envelope, attempt string, epoch uint64) (dispatch.Ref, error) {
	id, rule := parseRef(attempt, epoch)
	if rule != nil {
		return dispatch.Ref{}, broken(frame, rule)
	}
	ref := s.ref(id, int64(epoch))
	ref.Hint = s.hint(id)
	return ref, nil
}

// hint returns what is remembered of an attempt that the process was given here.
func (s *session) hint(attempt sqldb.ID) dispatch.Hint {
	s.hub.board.mu.Lock()
	defer s.hub.board.mu.Unlock()
	return s.place.held[attempt].hint
}

// parseRef reads the two members that name an attempt.
func parseRef(attempt string, epoch uint64) (sqldb.ID, *orbit.InvalidArgumentError) {
	id, err := sqldb.ParseID(attempt)
	if err != nil {
		return id, &orbit.InvalidArgumentError{Field: "attempt_id", Rule: "must be 32 lower-case hexadecimal characters"}
	}
	if epoch < 1 || epoch > math.MaxInt64 {
		return id, &orbit.InvalidArgumentError{Field: "epoch", Rule: fmt.Sprintf("must be 1 to %d", math.MaxInt64)}
	}
	return id, nil
}

func (s *session) readAttempt(frame wire.Envelope) (dispatch.Ref, error) {
	var m wire.Attempt
	if err := decode(frame.Data, &m); err != nil {
		return dispatch.Ref{}, broken(frame, err)
	}
	return s.readRef(frame, m.AttemptID, m.Epoch)
}

// ask puts an item into its batch and has the answer sent when it is there. The reader
// waits while too much is under way.
func ask[Q, A any](s *session, frame wire.Envelope, attempt sqldb.ID, b *batcher[Q, A], item Q, answer func(A) *dispatch.Refusal) error {
	cost := len(frame.Data) + inFlightEach
	frame.Data = nil // the next message is read into their memory
	if !s.budget.take(cost, s.ended) {
		return errEnded
	}
	b.addFor(s, item, func(got A, err error) {
		defer s.budget.give(cost)
		refusal := unavailable
		if err == nil {
			refusal = answer(got)
		} else {
			s.hub.log.Error("message of a worker has no known outcome", "type", frame.Type, "err", err)
		}
		if refusal != nil {
			s.say(wire.TypeError, frame.ID, wire.Error{Code: refusal.Code, Message: refusal.Message, AttemptID: attempt.String()})
		}
		if refusal == nil || refusal.Code != orbit.CodeUnavailable {
			s.settled(attempt) // after the answer: nothing may be assigned before it
		}
	})
	return nil
}

// errEnded ends the reader of a connection that somebody else ended.
var errEnded = errors.New("connection ended")

var unavailable = &dispatch.Refusal{Code: orbit.CodeUnavailable, Message: "the outcome is unknown: repeat the message"}

func (s *session) start(frame wire.Envelope) error {
	ref, err := s.readAttempt(frame)
	if err != nil {
		return err
	}
	id := frame.ID
	return ask(s, frame, ref.Attempt, s.hub.starts, ref, func(a dispatch.Started) *dispatch.Refusal {
		if s.track(ref, a.Refusal, a.Lease, a.Hint); a.Refusal != nil {
			return a.Refusal
		}
		s.say(wire.TypeStarted, id, wire.Started{
			AttemptID: ref.Attempt.String(), Epoch: uint64(ref.Epoch),
			LeaseMS: millis(a.Lease), TimeoutMS: millis(a.Timeout), CancelRequested: a.CancelWanted,
		})
		return nil
	})
}

func (s *session) resume(frame wire.Envelope) error {
	ref, err := s.readAttempt(frame)
	if err != nil {
		return err
	}
	id := frame.ID
	return ask(s, frame, ref.Attempt, s.hub.resumes, ref, func(a dispatch.Resumed) *dispatch.Refusal {
		if a.Refusal != nil {
			return a.Refusal
		}
		if a.Status == wire.ResumeKeep {
			s.hold(ref, a.Lease, dispatch.Hint{})
		} else {
			s.drop(ref)
		}
		s.say(wire.TypeResumed, id, wire.Resumed{
			AttemptID: ref.Attempt.String(), Epoch: uint64(ref.Epoch), Status: a.Status, Running: a.Running,
			LeaseMS: millis(a.Lease), TimeoutMS: millis(a.Timeout), CancelRequested: a.CancelWanted,
		})
		return nil
	})
}

func (s *session) renew(frame wire.Envelope) error {
	var m wire.Renew
	if err := decode(frame.Data, &m); err != nil {
		return broken(frame, err)
	}
	ref, err := s.readRef(frame, m.AttemptID, m.Epoch)
	if err != nil {
		return err
	}
	if len(m.Progress) > wire.MaxProgress {
		return s.invalid(frame, ref, "progress", fmt.Sprintf("must be at most %d bytes", wire.MaxProgress))
	}
	renewal := dispatch.Renewal{Ref: ref, Progress: []byte(m.Progress)}
	id := frame.ID
	return ask(s, frame, ref.Attempt, s.hub.renewals, renewal, func(a dispatch.Renewed) *dispatch.Refusal {
		if s.track(ref, a.Refusal, a.Lease, dispatch.Hint{}); a.Refusal != nil {
			return a.Refusal
		}
		s.say(wire.TypeRenewed, id, wire.Renewed{
			AttemptID: ref.Attempt.String(), Epoch: uint64(ref.Epoch), LeaseMS: millis(a.Lease), CancelRequested: a.CancelWanted,
		})
		return nil
	})
}

func (s *session) finish(frame wire.Envelope) error {
	var m wire.Finish
	if err := decode(frame.Data, &m); err != nil {
		return broken(frame, err)
	}
	ref, err := s.readRef(frame, m.AttemptID, m.Epoch)
	if err != nil {
		return err
	}
	f, field, rule := newFinish(ref, &m)
	if rule != "" {
		return s.invalid(frame, ref, field, rule)
	}
	id := frame.ID
	return ask(s, frame, ref.Attempt, s.hub.finishes, f, func(a dispatch.Finished) *dispatch.Refusal {
		if a.Refusal != nil {
			return a.Refusal
		}
		s.say(wire.TypeFinished, id, wire.Finished{
			AttemptID: ref.Attempt.String(), Epoch: uint64(ref.Epoch), Status: a.Status, TaskState: a.TaskState,
		})
		s.hasEnded(ref) // after the answer: what it makes room for does not come before it
		return nil
	})
}

var outcomes = map[string]task.Outcome{
	wire.OutcomeSucceeded: task.OutcomeSucceeded, wire.OutcomeFailed: task.OutcomeFailed,
	wire.OutcomeUnknown: task.OutcomeUnknown, wire.OutcomeCancelled: task.OutcomeCancelled,
}

// newFinish checks what a worker reports, or tells which field breaks which rule.
func newFinish(ref dispatch.Ref, m *wire.Finish) (f dispatch.Finish, field, rule string) {
	outcome, known := outcomes[m.Outcome]
	result := strictjson.Trim(m.Result)
	switch {
	case !validMessageID(m.Receipt):
		return f, "receipt", "must be 1 to 64 printable ASCII characters without blanks"
	case !known:
		return f, "outcome", "must be SUCCEEDED, FAILED, UNKNOWN or CANCELLED"
	case m.Retryable && outcome != task.OutcomeFailed:
		return f, "retryable", "is only for FAILED"
	case len(result) > 0 && outcome != task.OutcomeSucceeded:
		return f, "result", "is only for SUCCEEDED"
	case len(result) > wire.MaxResult:
		return f, "result", fmt.Sprintf("must be at most %d bytes", wire.MaxResult)
	case len(m.Error) > wire.MaxError || !utf8.ValidString(m.Error):
		return f, "error", fmt.Sprintf("must be UTF-8 of at most %d bytes", wire.MaxError)
	}
	f = dispatch.Finish{Ref: ref, Receipt: []byte(m.Receipt), Outcome: outcome, Retryable: m.Retryable, Error: []byte(m.Error)}
	if len(result) > 0 {
		f.Result = result
	}
	return f, "", ""
}

func (s *session) giveBack(frame wire.Envelope) error {
	ref, err := s.readAttempt(frame)
	if err != nil {
		return err
	}
	id := frame.ID
	return ask(s, frame, ref.Attempt, s.hub.returns, ref, func(a dispatch.Returned) *dispatch.Refusal {
		if a.Refusal != nil {
			return a.Refusal
		}
		s.say(wire.TypeReturned, id, wire.Returned{AttemptID: ref.Attempt.String(), Epoch: uint64(ref.Epoch)})
		s.hasEnded(ref)
		return nil
	})
}

// invalid refuses a message that is well formed but breaks a rule of its content. The
// connection goes on: to close it would only have the message repeated.
func (s *session) invalid(frame wire.Envelope, ref dispatch.Ref, field, rule string) error {
	s.say(wire.TypeError, frame.ID, wire.Error{Code: orbit.CodeInvalidArgument, Message: field + ": " + rule, AttemptID: ref.Attempt.String()})
	return nil
}

// drain confirms that no assignment comes after the confirmation. What is claimed for the
// process at this moment is handed back.
func (s *session) drain(frame wire.Envelope) error {
	if err := decode(frame.Data, &struct{}{}); err != nil {
		return broken(frame, err)
	}
	again := false
	s.hub.board.change(s, func(p *place) { again, p.draining = p.draining, true })
	if !again {
		s.returnUnsent()
		s.noteDrain()
	}
	s.say(wire.TypeDrainOK, frame.ID, struct{}{})
	return nil
}

// noteDrain writes down for people that the process takes nothing more.
func (s *session) noteDrain() {
	s.hub.drains.add(s, func(_ struct{}, err error) {
		if err != nil {
			s.hub.log.Warn("drain was not noted", "process_id", s.process.String(), "err", err)
		}
	})
}

// track follows what an answer says about an attempt that the process holds. A hint that it
// brings is newer than what is remembered.
func (s *session) track(ref dispatch.Ref, refusal *dispatch.Refusal, lease time.Duration, hint dispatch.Hint) {
	switch {
	case refusal == nil:
		s.hold(ref, lease, hint)
	case refusal.Code != orbit.CodeUnavailable:
		s.drop(ref)
	}
}

func (s *session) hold(ref dispatch.Ref, lease time.Duration, hint dispatch.Hint) {
	s.hub.board.change(s, func(p *place) {
		h := p.held[ref.Attempt]
		if hint.Task.IsZero() {
			hint = h.hint
		}
		p.held[ref.Attempt] = held{ref.Epoch, time.Now().Add(lease), h.queue, hint}
	})
}

// drop notes that the process does not hold an attempt any more. What is said of another
// epoch says nothing of the one that it holds.
func (s *session) drop(ref dispatch.Ref) {
	s.hub.board.change(s, func(p *place) {
		if p.held[ref.Attempt].epoch == ref.Epoch {
			delete(p.held, ref.Attempt)
		}
	})
}

// hasEnded notes that an attempt has ended: what waited for its room may go.
func (s *session) hasEnded(ref dispatch.Ref) {
	var queue sqldb.ID
	s.hub.board.change(s, func(p *place) { queue = p.held[ref.Attempt].queue })
	s.drop(ref)
	s.hub.board.ended(s.principal.Application, queue)
}

// holds reports whether the process holds an attempt, as far as is known here.
func (s *session) holds(attempt sqldb.ID) bool {
	s.hub.board.mu.Lock()
	defer s.hub.board.mu.Unlock()
	_, ok := s.place.held[attempt]
	return ok
}

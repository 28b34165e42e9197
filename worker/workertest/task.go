package workertest

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// task is a task of the server's.
type task struct {
	id        string
	request   orbit.SubmitTaskRequest
	deadline  time.Time
	state     string
	uncertain bool
	wanted    bool // a cancel is
	attempts  []*attempt
}

// attempt is one attempt of it.
type attempt struct {
	Attempt
	id    string
	epoch uint64
	task  *task
	until time.Time // end of the lease
	end   time.Time // of the attempt's time, once it runs
	timer *time.Timer
	// report and answer are those that ended it. A repeat has the same text.
	report string
	answer wire.Finished
}

func (a *attempt) live() bool { return a.State != orbit.AttemptEnded }

// leaseLeft is the present right to execute.
func (a *attempt) leaseLeft() time.Duration { return time.Until(a.until) }

// extend gives the attempt another lease, within its time.
func (s *Server) extend(a *attempt) {
	a.until = time.Now().Add(s.lease)
	if a.State == orbit.AttemptRunning && a.end.Before(a.until) {
		a.until = a.end
	}
	a.timer.Reset(a.leaseLeft())
}

// expire ends an attempt whose lease is over.
func (s *Server) expire(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.live() {
		return
	}
	if left := a.leaseLeft(); left > 0 {
		a.timer.Reset(left)
		return
	}
	s.lapse(a)
}

// lapse ends a live attempt without a word of its worker.
func (s *Server) lapse(a *attempt) {
	outcome := orbit.OutcomeExpired
	if a.State == orbit.AttemptRunning {
		outcome = orbit.OutcomeUnknown
	}
	s.settle(a, outcome, false)
	s.assign()
	s.change()
}

// settle ends a live attempt, and moves its task.
func (s *Server) settle(a *attempt, outcome string, retryable bool) {
	a.timer.Stop()
	delete(s.held[a.ProcessID], a)
	a.State, a.Outcome, a.Retryable = orbit.AttemptEnded, outcome, retryable
	if key := a.task.request.ConcurrencyKey; s.holders[key] == a {
		delete(s.holders, key)
	}
	a.task.follow(outcome, retryable)
}

// follow moves the task as the end of its attempt says.
func (t *task) follow(outcome string, retryable bool) {
	switch outcome {
	case orbit.OutcomeSucceeded:
		t.state, t.uncertain = orbit.StateSucceeded, false
	case orbit.OutcomeExpired, orbit.OutcomeReturned:
		t.state = orbit.StateWaiting
	case orbit.OutcomeCancelled:
		t.end(orbit.StateCancelled)
	case orbit.OutcomeFailed:
		if t.end(orbit.StateFailed); retryable && t.mayRepeat() {
			t.state = orbit.StateWaiting
		}
	default:
		t.state, t.uncertain = orbit.StateNeedsReview, true
		if t.request.RecoverySafety == orbit.RecoveryIdempotent && t.mayRepeat() {
			t.state = orbit.StateWaiting
		}
	}
}

// end ends the task, unless the effect of an older attempt is unknown.
func (t *task) end(state string) {
	if t.state = state; t.uncertain {
		t.state = orbit.StateNeedsReview
	}
}

func (t *task) mayRepeat() bool {
	started := uint64(0)
	for _, a := range t.attempts {
		if a.Starts > 0 {
			started++
		}
	}
	return !t.wanted && started < t.request.Retry.MaxAttempts && time.Now().Before(t.deadline)
}

// assign gives waiting tasks to workers that have asked for some.
func (s *Server) assign() {
	for _, t := range s.tasks {
		if t.state != orbit.StateWaiting || s.holders[t.request.ConcurrencyKey] != nil {
			continue
		}
		if one := s.takerOf(t); one != nil {
			s.give(t, one)
		}
	}
}

// takerOf returns the session that may have the task and holds the least, or nil.
func (s *Server) takerOf(t *task) (best *session) {
	least := 0
	for _, one := range s.sessions {
		held := len(s.held[one.hello.ProcessID])
		if one.draining || len(one.open) > 0 || one.takes(t) == 0 || held >= one.hello.Capacity || !one.serves(t) {
			continue
		}
		if best == nil || held < least {
			best, least = one, held
		}
	}
	return best
}

func (one *session) serves(t *task) bool {
	if t.request.ConcurrencyKey != "" && !one.hello.ConcurrencyKeys {
		return false
	}
	for _, queue := range one.hello.Queues {
		for _, h := range one.hello.Handlers {
			if queue == t.request.QueueID && h.Name == t.request.Handler && h.Version == t.request.HandlerVersion {
				return true
			}
		}
	}
	return false
}

// give makes an attempt and offers it.
func (s *Server) give(t *task, one *session) {
	number := uint64(len(t.attempts)) + 1
	a := &attempt{id: newID(), epoch: number, task: t}
	a.Attempt = Attempt{ID: a.id, Number: number, ProcessID: one.hello.ProcessID, State: orbit.AttemptLeased}
	if key := t.request.ConcurrencyKey; key != "" {
		s.tokens[key]++
		s.holders[key], a.ConcurrencyToken = a, s.tokens[key]
	}
	a.timer = time.AfterFunc(s.lease, func() { s.expire(a) })
	a.until = time.Now().Add(s.lease)
	s.attempts[a.id], s.held[a.ProcessID][a] = a, true
	t.attempts, t.state = append(t.attempts, a), orbit.StateLeased
	one.use(t)
	one.conn.SendText(a.assignment())
}

// assignment is the frame that offers the attempt. The payload travels byte for byte, so
// it is put in after the encoding, which would write it in another way.
func (a *attempt) assignment() string {
	place := strconv.Quote(newID())
	offer := a.offer()
	offer.Task.Payload = json.RawMessage(place)
	text, _ := json.Marshal(offer) // has no member that could fail
	data := strings.Replace(string(text), place, string(a.task.request.Payload), 1)
	return frame(wire.TypeAssign, "", data)
}

// offer is the assignment as it is sent, without the payload.
func (a *attempt) offer() wire.Assign {
	r := a.task.request
	offer := wire.Assign{
		AttemptID: a.id, Epoch: a.epoch, LeaseMS: millis(a.leaseLeft()), OperationRoot: a.task.id,
		Task: wire.Task{
			ID: a.task.id, NamespaceID: namespace, QueueID: r.QueueID, Handler: r.Handler, HandlerVersion: r.HandlerVersion,
			PayloadVersion: r.PayloadVersion, BusinessKey: r.BusinessKey, ConcurrencyKey: r.ConcurrencyKey,
			Priority: r.Priority, RecoverySafety: r.RecoverySafety, DeadlineMS: millis(time.Until(a.task.deadline)),
			AttemptNumber: a.Number, EffectUncertain: a.task.uncertain,
		},
	}
	if a.ConcurrencyToken != 0 {
		offer.ConcurrencyToken = strconv.FormatUint(a.ConcurrencyToken, 10)
	}
	return offer
}

package workertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// namespace is that of every task of a Server.
var namespace = strings.Repeat("0", 31) + "1"

// A Task is a task of a Server at one moment.
type Task struct {
	ID              string
	State           string // one of orbit's State constants
	EffectUncertain bool
	CancelRequested bool
	Attempts        []Attempt // oldest first
}

// An Attempt is one attempt of a Task, with what its worker has said about it.
type Attempt struct {
	ID               string
	Number           uint64 // 1 for the first; also its epoch
	ConcurrencyToken uint64
	ProcessID        string // of the worker
	State            string // orbit.AttemptLeased, AttemptRunning or AttemptEnded

	// How often the worker sent these messages, repeats included, while they were not
	// refused.
	Starts, Resumes, Renewals, Finishes int
	Progress                            []string // that came with renewals, oldest first

	Outcome   string // one of orbit's Outcome constants; empty before the end
	Retryable bool
	Result    json.RawMessage
	Error     string
	Late      []string // outcomes of reports that came too late, kept as evidence
}

// Ended reports whether no further attempt will be made: the task is in an end state, or
// waits for a person.
func (t Task) Ended() bool {
	switch t.State {
	case orbit.StateWaiting, orbit.StateLeased, orbit.StateRunning:
		return false
	}
	return true
}

// String returns the state of the task and the outcomes of its attempts.
func (t Task) String() string {
	var outcomes []string
	for _, a := range t.Attempts {
		outcome := a.Outcome
		if outcome == "" {
			outcome = a.State
		}
		if a.Error != "" {
			outcome = fmt.Sprintf("%s (%s)", outcome, a.Error)
		}
		outcomes = append(outcomes, outcome)
	}
	return fmt.Sprintf("%s after %d attempts %v", t.State, len(t.Attempts), outcomes)
}

func (t *task) view() Task {
	v := Task{ID: t.id, State: t.state, EffectUncertain: t.uncertain, CancelRequested: t.wanted}
	for _, a := range t.attempts {
		one := a.Attempt
		one.Progress, one.Late = slices.Clone(a.Progress), slices.Clone(a.Late)
		v.Attempts = append(v.Attempts, one)
	}
	return v
}

// Submit accepts a task under the rules of the server and returns its id. QueueID,
// HandlerVersion, PayloadVersion and Payload may be left out; they are the server's QueueID,
// "v1", "v1" and {} then. AvailableAt and StartDeadlineAt are refused: the server does not
// wait.
func (s *Server) Submit(r orbit.SubmitTaskRequest) string {
	s.t.Helper()
	fill(&r.QueueID, s.QueueID)
	fill(&r.HandlerVersion, "v1")
	fill(&r.PayloadVersion, "v1")
	if r.Payload == nil {
		r.Payload = json.RawMessage("{}")
	}
	_, accepted, err := r.Freeze()
	if err == nil && (r.AvailableAt != nil || r.StartDeadlineAt != nil) {
		err = errors.New("AvailableAt, StartDeadlineAt: must not be set")
	}
	if err != nil {
		s.t.Fatalf("workertest: Submit: %v", err)
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.queues[r.QueueID] {
		s.t.Fatalf("workertest: Submit: queue_id: %s was not made by NewQueue", r.QueueID)
		return ""
	}
	t := &task{
		id: newID(), request: accepted.Request, state: orbit.StateWaiting,
		deadline: time.Now().Add(time.Duration(accepted.Request.TaskTimeoutMS) * time.Millisecond),
	}
	s.tasks = append(s.tasks, t)
	s.assign()
	s.change()
	return t.id
}

// Cancel asks for the cancel of a task that has not ended: one that does not run is
// cancelled at once, the worker of one that runs is told.
func (s *Server) Cancel(id, reason string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.find(id)
	if t == nil {
		return
	}
	t.wanted = true
	switch t.state {
	case orbit.StateWaiting:
		t.end(orbit.StateCancelled)
	case orbit.StateLeased:
		s.settle(t.attempts[len(t.attempts)-1], orbit.OutcomeCancelled, false)
	case orbit.StateRunning:
		a := t.attempts[len(t.attempts)-1]
		for _, one := range s.sessions {
			if one.hello.ProcessID == a.ProcessID {
				one.conn.Send(wire.TypeCancel, "", wire.Cancel{AttemptID: a.id, Epoch: a.epoch, Reason: reason})
			}
		}
	default:
		s.t.Fatalf("workertest: Cancel: task %s is %s already", id, t.state)
	}
	s.assign()
	s.change()
}

// Expire ends the live attempt of a task as if its lease had passed. Its worker learns of
// it with its next message.
func (s *Server) Expire(id string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.find(id)
	if t == nil {
		return
	}
	if len(t.attempts) == 0 || !t.attempts[len(t.attempts)-1].live() {
		s.t.Fatalf("workertest: Expire: task %s has no live attempt", id)
		return
	}
	s.lapse(t.attempts[len(t.attempts)-1])
}

// find returns a task, or fails the test. The caller has the lock.
func (s *Server) find(id string) *task {
	s.t.Helper()
	for _, t := range s.tasks {
		if t.id == id {
			return t
		}
	}
	s.t.Fatalf("workertest: there is no task %q", id)
	return nil
}

// Task returns a task as it is now.
func (s *Server) Task(id string) Task {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.find(id); t != nil {
		return t.view()
	}
	return Task{}
}

// AwaitUntil waits until a task is as f wants it, and returns it.
func (s *Server) AwaitUntil(id string, f func(Task) bool) Task {
	s.t.Helper()
	patience := s.l.patience()
	for {
		s.mu.Lock()
		changed, refused := s.changed, s.refused
		s.mu.Unlock()
		now := s.Task(id)
		if f(now) {
			return now
		}
		if refused != nil {
			s.t.Fatalf("workertest: nobody works on task %s: %v", id, refused)
			return now
		}
		select {
		case <-changed:
		case <-patience:
			s.t.Fatalf("workertest: task %s does not get where the test waits for it: %v", id, now)
			return now
		}
	}
}

// Await waits for the end of a task and returns it.
func (s *Server) Await(id string) Task {
	s.t.Helper()
	return s.AwaitUntil(id, Task.Ended)
}

// AwaitRunning waits until an attempt of a task is started and returns the task. The
// handler is about to be called, or was.
func (s *Server) AwaitRunning(id string) Task {
	s.t.Helper()
	return s.AwaitUntil(id, func(t Task) bool { return t.State == orbit.StateRunning })
}

// Want waits for the end of a task and fails the test if it is another state.
func (s *Server) Want(id, state string) Task {
	s.t.Helper()
	got := s.Await(id)
	if got.State != state {
		s.t.Errorf("workertest: task %s is %v, want %s", id, got, state)
	}
	return got
}

// WantDrained fails the test unless every worker that ever connected has told that it
// drains, and holds nothing. It is for the time after the end of the workers.
func (s *Server) WantDrained() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.drained) == 0 {
		s.t.Errorf("workertest: no worker has connected")
	}
	for _, process := range slices.Sorted(maps.Keys(s.drained)) {
		if live := len(s.held[process]); !s.drained[process] || live > 0 {
			s.t.Errorf("workertest: worker %s has not drained: it said so: %t, attempts held: %d", process, s.drained[process], live)
		}
	}
}

package workertest

import (
	"encoding/json"
	"time"

	"github.com/orbitkit/orbit/internal/wire"
)

// Messages of a worker that a Fault may concern.
const (
	MessageHello  = wire.TypeHello
	MessageStart  = wire.TypeStart
	MessageResume = wire.TypeResume
	MessageRenew  = wire.TypeRenew
	MessageFinish = wire.TypeFinish
	MessageReturn = wire.TypeReturn
	MessageDrain  = wire.TypeDrain
)

// A Fault is something that goes wrong with messages of a worker. One of Cut, Refuse,
// Lose, Silent and Delay says what.
type Fault struct {
	// Message is the type of the messages concerned, one of the Message constants. Required.
	Message string
	// Task restricts the fault to messages about attempts of this task. Default: all.
	Task string
	// Skip is how many such messages pass before. Default 0.
	Skip int
	// Times is how many messages are concerned then; a negative number means all. Default 1.
	Times int

	Cut    bool          // the connection ends before the message has an effect
	Refuse string        // it has no effect, and this code is the answer, such as orbit.CodeUnavailable
	Lose   bool          // it has its effect, but the connection ends instead of an answer
	Silent bool          // it has its effect, but there is no answer
	Delay  time.Duration // it has its effect, and the answer comes so much later
}

// planted is a fault on its way.
type planted struct {
	Fault
	seen, fired int
}

// Inject plants a fault. A fault that has not happened by the end of the test fails the
// test. Of several that fit a message the oldest counts.
func (s *Server) Inject(f Fault) {
	s.t.Helper()
	fill(&f.Times, 1)
	kinds := 0
	for _, set := range []bool{f.Cut, f.Refuse != "", f.Lose, f.Silent, f.Delay > 0} {
		if set {
			kinds++
		}
	}
	switch f.Message {
	case MessageHello, MessageStart, MessageResume, MessageRenew, MessageFinish, MessageReturn, MessageDrain:
	default:
		s.t.Fatalf("workertest: Fault: Message: %q must be one of the Message constants", f.Message)
		return
	}
	if kinds != 1 {
		s.t.Fatalf("workertest: Fault: one of Cut, Refuse, Lose, Silent and Delay must be set, have %+v", f)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &planted{Fault: f})
}

// faultFor returns what is to go wrong with m, or a Fault that does nothing.
func (s *Server) faultFor(m Message) Fault {
	for _, f := range s.faults {
		if f.Message != m.Type || f.Times >= 0 && f.fired == f.Times || f.Task != "" && !s.concerns(m, f.Task) {
			continue
		}
		if f.seen++; f.seen <= f.Skip {
			continue
		}
		f.fired++
		return f.Fault
	}
	return Fault{}
}

func (s *Server) concerns(m Message, task string) bool {
	a := s.attempts[attemptOf(m)]
	return a != nil && a.task.id == task
}

// attemptOf returns the attempt that a message is about, or "".
func attemptOf(m Message) string {
	var about struct {
		AttemptID string `json:"attempt_id"`
	}
	json.Unmarshal(m.Data, &about) // a message about none has none
	return about.AttemptID
}

// checkFaults fails the test for each fault that never happened.
func (s *Server) checkFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.fired == 0 {
			s.t.Errorf("workertest: this fault has never happened: %+v", f.Fault)
		}
	}
	for _, a := range s.attempts {
		a.timer.Stop()
	}
}

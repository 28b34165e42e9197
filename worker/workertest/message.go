package workertest

import (
	"encoding/json"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// handle deals with one message as the server does.
func (s *Server) handle(one *session, m Message) reply {
	switch {
	case m.Type == wire.TypeHello && one.hello == nil:
		return s.register(one, m)
	case m.Type == wire.TypeHello:
		return s.breach(m, "hello comes once")
	case one.hello == nil:
		return s.breach(m, "the first message must be hello")
	case m.Type == wire.TypeCredit:
		return s.credit(one, m)
	case m.Type == wire.TypeDrain:
		one.draining = true
		s.drained[one.hello.ProcessID] = true
		return reply{kind: wire.TypeDrainOK, data: struct{}{}}
	}
	f := messages[m.Type]
	if f == nil {
		return s.breach(m, "the type is not known")
	}
	var about wire.Attempt
	json.Unmarshal(m.Data, &about) // a fault in it is found by who reads all of it
	a := s.attempts[about.AttemptID]
	if a == nil || a.ProcessID != one.hello.ProcessID || a.epoch != about.Epoch {
		return unknown(m, about)
	}
	return f(s, a, m)
}

// unknown answers a message about an attempt that the process does not have.
func unknown(m Message, about wire.Attempt) reply {
	if m.Type == wire.TypeResume {
		return reply{kind: wire.TypeResumed, data: wire.Resumed{AttemptID: about.AttemptID, Epoch: about.Epoch, Status: wire.ResumeLost}}
	}
	return refusal(orbit.CodeNotFound, "no such attempt of this process", about.AttemptID)
}

// messages are those about one attempt.
var messages = map[string]func(*Server, *attempt, Message) reply{
	wire.TypeStart:  (*Server).start,
	wire.TypeResume: (*Server).resume,
	wire.TypeRenew:  (*Server).renew,
	wire.TypeFinish: (*Server).finish,
	wire.TypeReturn: (*Server).giveBack,
}

func (s *Server) start(a *attempt, m Message) reply {
	if !a.live() {
		return a.tooLate()
	}
	a.Starts++
	if a.State == orbit.AttemptLeased {
		a.State, a.task.state = orbit.AttemptRunning, orbit.StateRunning
		a.end = time.Now().Add(time.Duration(a.task.request.Retry.AttemptTimeoutMS) * time.Millisecond)
		if a.task.deadline.Before(a.end) {
			a.end = a.task.deadline
		}
		s.extend(a)
	}
	return reply{kind: wire.TypeStarted, data: wire.Started{
		AttemptID: a.id, Epoch: a.epoch, LeaseMS: millis(a.leaseLeft()), TimeoutMS: millis(time.Until(a.end)), CancelRequested: a.task.wanted,
	}}
}

func (s *Server) resume(a *attempt, m Message) reply {
	a.Resumes++
	r := wire.Resumed{AttemptID: a.id, Epoch: a.epoch, Status: wire.ResumeLost}
	switch {
	case !a.live() && a.late() == wire.CodeEnded:
		r.Status = wire.ResumeFinished
	case a.State == orbit.AttemptRunning:
		s.extend(a)
		r.Status, r.Running, r.CancelRequested = wire.ResumeKeep, true, a.task.wanted
		r.LeaseMS, r.TimeoutMS = millis(a.leaseLeft()), millis(time.Until(a.end))
	case a.live():
		r.Status, r.LeaseMS = wire.ResumeKeep, millis(a.leaseLeft())
	}
	return reply{kind: wire.TypeResumed, data: r}
}

func (s *Server) renew(a *attempt, m Message) reply {
	var r wire.Renew
	if err := m.Decode(&r); err != nil {
		return s.breach(m, err.Error())
	}
	if !a.live() {
		return a.tooLate()
	}
	a.Renewals++
	if r.Progress != "" {
		a.Progress = append(a.Progress, r.Progress)
	}
	if a.State == orbit.AttemptRunning { // what has not started gets no longer lease
		s.extend(a)
	}
	return reply{kind: wire.TypeRenewed, data: wire.Renewed{
		AttemptID: a.id, Epoch: a.epoch, LeaseMS: millis(a.leaseLeft()), CancelRequested: a.task.wanted,
	}}
}

// finish takes a report. The first one decides; a repeat of it has the same answer, and
// what comes too late is kept beside it.
func (s *Server) finish(a *attempt, m Message) reply {
	var f wire.Finish
	if err := m.Decode(&f); err != nil {
		return s.breach(m, err.Error())
	}
	a.Finishes++
	switch {
	case a.report != "" && a.report == string(m.Data):
		return reply{kind: wire.TypeFinished, data: a.answer}
	case !a.live():
		a.Late = append(a.Late, f.Outcome)
		answer := wire.Finished{AttemptID: a.id, Epoch: a.epoch, Status: a.late(), TaskState: a.task.state}
		if a.report != "" {
			answer.Status = wire.FinishFinished
		}
		return reply{kind: wire.TypeFinished, data: answer}
	case a.State == orbit.AttemptLeased:
		return refusal(orbit.CodeStateConflict, "the attempt has not started", a.id)
	case f.Outcome == orbit.OutcomeCancelled && !a.task.wanted:
		return refusal(orbit.CodeStateConflict, "outcome CANCELLED needs a cancel intent", a.id)
	}
	a.report, a.Result, a.Error = string(m.Data), f.Result, f.Error
	s.settle(a, f.Outcome, f.Retryable)
	a.answer = wire.Finished{AttemptID: a.id, Epoch: a.epoch, Status: wire.FinishRecorded, TaskState: a.task.state}
	return reply{kind: wire.TypeFinished, data: a.answer}
}

// giveBack takes back what has not started. What has ended already is answered alike.
func (s *Server) giveBack(a *attempt, m Message) reply {
	if a.State == orbit.AttemptRunning {
		return refusal(orbit.CodeStateConflict, "the attempt has started", a.id)
	}
	if a.live() {
		s.settle(a, orbit.OutcomeReturned, false)
	}
	return reply{kind: wire.TypeReturned, data: wire.Returned{AttemptID: a.id, Epoch: a.epoch}}
}

// late tells why a message about an attempt that has ended comes too late. The codes of
// refusals and the answers to late reports have the same names.
func (a *attempt) late() string {
	switch {
	case a.task.attempts[len(a.task.attempts)-1] != a:
		return wire.CodeSuperseded
	case a.report == "" && a.Outcome != orbit.OutcomeCancelled:
		return wire.CodeLeaseExpired
	}
	return wire.CodeEnded
}

func (a *attempt) tooLate() reply {
	return refusal(a.late(), "the attempt has ended: "+a.Outcome, a.id)
}

package worker

import (
	"cmp"
	"context"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
)

// A Grant is the server's confirmation of the right to execute an attempt.
type Grant struct {
	// Lease is what was left of the lease when the server sent this. The right
	// must be measured from before the question was asked, on a monotonic clock.
	Lease time.Duration
	// Timeout is what was left of the attempt's timeout; 0 in the answer to Renew.
	Timeout time.Duration
	// CancelRequested tells that a cancel intent exists.
	CancelRequested bool
}

// A Resumption is the server's answer to Resume.
type Resumption struct {
	// Kept tells that the attempt still belongs to this process. If not, it has
	// ended: Finished tells whether by a result, else the right was lost.
	Kept, Finished bool
	// Running tells that a Start had been confirmed: Grant is the present right to
	// execute. If false the attempt has to be started.
	Running bool
	Grant   Grant
}

// A Report is the end of an attempt as the worker tells it.
type Report struct {
	// Receipt is the identity of this report, 1-64 printable ASCII characters
	// without blanks. A repeat carries the same receipt and content.
	Receipt   string
	Outcome   string // orbit.OutcomeSucceeded, OutcomeFailed, OutcomeUnknown or OutcomeCancelled
	Retryable bool   // only with OutcomeFailed
	Result    []byte // JSON text, only with OutcomeSucceeded; see CheckResult
	Error     string // at most 4 KiB of UTF-8
}

// A Confirmation is the server's answer to Finish. Each of them ends the duty to
// repeat it.
type Confirmation struct {
	// Recorded tells that the report decided the attempt, now or when it was first
	// sent. If false it came too late and is kept as evidence only.
	Recorded  bool
	Status    string // recorded, already_finished, lease_expired or superseded
	TaskState string // state of the task after it, or empty
}

// question is a message that waits for its answer.
type question struct {
	act   string
	want  string
	read  func([]byte) error // takes the answer; its error breaks the protocol
	reply chan error         // nil or a *RefusedError
}

// ask sends a message and waits for its answer. After the end of ctx a late answer
// is dropped.
func ask[A any](ctx context.Context, c *Conn, act, want string, data any, check func(*A) error) (A, error) {
	var answer, none A
	id := c.newID()
	q := question{act: act, want: want, reply: make(chan error, 1), read: func(text []byte) error {
		if err := decode(want, text, &answer); err != nil {
			return err
		}
		return check(&answer)
	}}
	c.expect(id, q)
	defer c.forget(id)
	if err := c.send(ctx, act == wire.TypeRenew, act, id, data); err != nil {
		return none, err
	}
	if err := c.await(ctx, q); err != nil {
		return none, err
	}
	return answer, nil
}

// await returns how a question was answered, or why it was not.
func (c *Conn) await(ctx context.Context, q question) error {
	select {
	case err := <-q.reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
	}
	select {
	case err := <-q.reply: // the last word before the end
		return err
	default:
		return c.Err()
	}
}

func (c *Conn) expect(id string, q question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[id] = q
}

func (c *Conn) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// answer gives an answer to its question. One that nobody waits for any more is
// dropped.
func (c *Conn) answer(frame wire.Envelope) error {
	c.mu.Lock()
	q, waiting := c.pending[frame.Ref]
	delete(c.pending, frame.Ref)
	unasked := frame.Ref == "" || frame.Ref == c.credit
	c.mu.Unlock()
	switch {
	case frame.Type == wire.TypeError && unasked:
		refusal, err := readRefusal("a message without an answer", frame.Data)
		return c.deliver(refusal, err)
	case !waiting:
		return c.drop(frame)
	case frame.Type == wire.TypeError:
		refusal, err := readRefusal(q.act, frame.Data)
		if err == nil {
			q.reply <- refusal
		}
		return err
	case frame.Type != q.want:
		return broken("type: %s is no answer to %s", printable(frame.Type), q.act)
	}
	if err := q.read(frame.Data); err != nil {
		return err
	}
	q.reply <- nil
	return nil
}

// drop takes an answer that nobody waits for: it must be strict JSON all the same.
func (c *Conn) drop(frame wire.Envelope) error {
	if len(frame.Data) == 0 {
		return nil
	}
	if string(frame.Data) == "null" {
		return broken("frame: data: must not be null")
	}
	if err := strictjson.Check(frame.Data, -levelsOfData); err != nil {
		return notStrict("frame", err)
	}
	return nil
}

// Credit tells how many more assignments the process takes now. It replaces the
// earlier value. An assignment that is on its way does not count against it, but the
// server never goes beyond the registered capacity less what it knows the process to
// hold; what is too much all the same should be handed back with Return. Credit has no
// answer; its refusal comes as an event.
func (c *Conn) Credit(ctx context.Context, slots int) error {
	return c.sendCredit(ctx, wire.Credit{Slots: slots})
}

// Start asks for the right to execute a. Business code may run only after its
// answer, or after that of Resume.
func (c *Conn) Start(ctx context.Context, a Attempt) (Grant, error) {
	got, err := ask(ctx, c, wire.TypeStart, wire.TypeStarted, a.wire(), func(m *wire.Started) error {
		return a.sameAs(wire.TypeStarted, m.AttemptID, m.Epoch)
	})
	return Grant{Lease: millis(got.LeaseMS), Timeout: millis(got.TimeoutMS), CancelRequested: got.CancelRequested}, err
}

// Resume takes up an attempt that the process holds, after a reconnect.
func (c *Conn) Resume(ctx context.Context, a Attempt) (Resumption, error) {
	got, err := ask(ctx, c, wire.TypeResume, wire.TypeResumed, a.wire(), func(m *wire.Resumed) error {
		if m.Status != wire.ResumeKeep && m.Status != wire.ResumeLost && m.Status != wire.ResumeFinished {
			return broken("%s: status is unknown", wire.TypeResumed)
		}
		return a.sameAs(wire.TypeResumed, m.AttemptID, m.Epoch)
	})
	return Resumption{
		Kept: got.Status == wire.ResumeKeep, Finished: got.Status == wire.ResumeFinished, Running: got.Running,
		Grant: Grant{Lease: millis(got.LeaseMS), Timeout: millis(got.TimeoutMS), CancelRequested: got.CancelRequested},
	}, err
}

// Renew extends the lease of a. Progress, at most 4 KiB of UTF-8, is shown to
// people; empty means nothing new. Renewals overtake other messages. It is refused
// with lease_expired, superseded or already_finished if the right is lost.
func (c *Conn) Renew(ctx context.Context, a Attempt, progress string) (Grant, error) {
	if err := checkProgress(progress); err != nil {
		return Grant{}, err
	}
	data := wire.Renew{AttemptID: a.ID, Epoch: a.Epoch, Progress: progress}
	got, err := ask(ctx, c, wire.TypeRenew, wire.TypeRenewed, data, func(m *wire.Renewed) error {
		return a.sameAs(wire.TypeRenewed, m.AttemptID, m.Epoch)
	})
	return Grant{Lease: millis(got.LeaseMS), CancelRequested: got.CancelRequested}, err
}

// Finish ends a with r. It must be repeated, with the same receipt and content,
// until it is answered.
func (c *Conn) Finish(ctx context.Context, a Attempt, r Report) (Confirmation, error) {
	if err := r.validate(); err != nil {
		return Confirmation{}, err
	}
	data := wire.Finish{
		AttemptID: a.ID, Epoch: a.Epoch, Receipt: r.Receipt, Outcome: r.Outcome,
		Retryable: r.Retryable, Result: r.Result, Error: r.Error,
	}
	got, err := ask(ctx, c, wire.TypeFinish, wire.TypeFinished, data, func(m *wire.Finished) error {
		switch m.Status {
		case wire.FinishRecorded, wire.FinishFinished, wire.FinishExpired, wire.FinishReplaced:
			return cmp.Or(checkState(m.TaskState), a.sameAs(wire.TypeFinished, m.AttemptID, m.Epoch))
		}
		return broken("%s: status is unknown", wire.TypeFinished)
	})
	return Confirmation{Recorded: got.Status == wire.FinishRecorded, Status: got.Status, TaskState: got.TaskState}, err
}

// checkState refuses a state that no task has. It may be left out.
func checkState(state string) error {
	switch state {
	case "", orbit.StateWaiting, orbit.StateLeased, orbit.StateRunning, orbit.StateNeedsReview,
		orbit.StateSucceeded, orbit.StateFailed, orbit.StateCancelled:
		return nil
	}
	return broken("%s: task_state is unknown", wire.TypeFinished)
}

// Return hands back an assignment that was not started.
func (c *Conn) Return(ctx context.Context, a Attempt) error {
	_, err := ask(ctx, c, wire.TypeReturn, wire.TypeReturned, a.wire(), func(m *wire.Returned) error {
		return a.sameAs(wire.TypeReturned, m.AttemptID, m.Epoch)
	})
	return err
}

// Drain tells the server to assign nothing more to this process. When it returns
// without an error no further assignment will come on this connection.
func (c *Conn) Drain(ctx context.Context) error {
	_, err := ask(ctx, c, wire.TypeDrain, wire.TypeDrainOK, struct{}{}, func(*struct{}) error { return nil })
	return err
}

func (a Attempt) wire() wire.Attempt { return wire.Attempt{AttemptID: a.ID, Epoch: a.Epoch} }

// sameAs holds an answer to the attempt that was asked about.
func (a Attempt) sameAs(kind, id string, epoch uint64) error {
	switch {
	case id != a.ID:
		return broken("%s: attempt_id is that of another attempt", kind)
	case epoch != a.Epoch:
		return broken("%s: epoch is not that of the attempt", kind)
	}
	return nil
}

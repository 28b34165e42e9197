package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// send takes batches from p and sends them, until stop is done. A request under way
// ends by itself, or with hard.
func (p *pipe) send(stop, hard context.Context) {
	for {
		batch := p.take(stop)
		if batch == nil {
			return
		}
		p.forward(stop, hard, batch)
	}
}

// forward sends what may be sent of a batch and enters what comes of it.
func (p *pipe) forward(stop, hard context.Context, batch []*entry) {
	l := p.lead
	batch = p.sendable(batch)
	if len(batch) == 0 {
		return
	}
	// The answer must come while nobody else can lead the shard (REL-022).
	if !l.prepare(hard, batch) || !l.term.wait(stop, l.cfg.SendTimeout) {
		l.giveBack(batch...)
		return
	}
	ticket, ok := p.gate.board(batch[0].gateTrial) // a row on trial travels alone
	if !ok {
		l.giveBack(batch...)
		return
	}
	ctx, cancel := context.WithTimeout(hard, l.cfg.SendTimeout)
	defer cancel()
	s := &shipment{pipe: p, rows: batch, ticket: ticket}
	ctx, s.trace = l.trace(ctx, p.gate.target.Name, batch)
	defer s.trace.end()
	l.count.requests.Add(1)
	l.count.sent.Add(int64(len(batch)))
	rows, began := len(batch), time.Now()
	if rows == 1 {
		s.sendOne(ctx)
	} else {
		s.sendBatch(ctx, hard)
	}
	l.cfg.Observer.Requested(p.gate.target.Name, rows, time.Since(began))
	l.ramp.grow()
}

// sendable takes out what must not be sent, and blocks it.
func (p *pipe) sendable(batch []*entry) []*entry {
	_, _, window := p.gate.limits()
	kept := batch[:0]
	for _, e := range batch {
		outcome, why := e.unsendable(window)
		if outcome == outbox.OutcomeNone {
			kept = append(kept, e)
			continue
		}
		p.lead.block(e, outbox.Answer{Outcome: outcome, Message: why})
		p.lead.log.Error("row blocked unsent", "seq", e.row.Seq, "outcome", outcome)
		p.lead.endTrials(p.gate, e)
	}
	return kept
}

// A shipment is one request and the rows in it.
type shipment struct {
	pipe   *pipe
	rows   []*entry
	ticket ticket
	trace  *requestTrace
	full   map[int64]time.Duration // lanes whose queue was full, and for how long they are held
}

func (s *shipment) sendOne(ctx context.Context) {
	e := s.rows[0]
	a, err := e.sendAlone(ctx, s.pipe.gate.target.Client, s.trace.traceparent(0, e))
	if s.unsent(err) {
		return
	}
	if err != nil {
		s.noAnswer(err)
		return
	}
	v := classify(&e.row, a)
	if v == needsPerson && a.Status == 403 && s.pipe.gate.stillForbidden() {
		v = targetWrong
	}
	s.trace.answered(0, v, a)
	if v == queueFull { // before the gate opens for the rest of the lane
		s.holdLane(e.row.Lane, s.clamp(a.RetryAfter, a.HasRetryAfter))
	}
	s.judgeTarget(v, a)
	s.judge(e, v, a)
}

// judgeTarget draws from the answer to a row alone what it says about the target.
func (s *shipment) judgeTarget(v verdict, a orbit.Answer) {
	g, wait := s.pipe.gate, s.clamp(a.RetryAfter, a.HasRetryAfter)
	switch v {
	case unknown:
		g.unreachable(s.ticket, wait, describe(a), s.rows...)
	case throttled:
		g.throttled(s.ticket, wait, describe(a))
	case targetWrong:
		g.wrong(s.ticket, describe(a), s.rows...)
	case foreign:
		g.stranger(s.ticket, s.rows[0].row.Seq, describe(a))
	case applicationFull:
		g.full(s.ticket, wait, describe(a))
	default:
		g.answered(s.ticket)
	}
}

// sendBatch sends the rows in one request, which ctx bounds; hard bounds what follows.
func (s *shipment) sendBatch(ctx, hard context.Context) {
	items := make([]orbit.FrozenItem, len(s.rows))
	for i, e := range s.rows {
		items[i] = e.item()
		items[i].Traceparent = s.trace.traceparent(i, e)
	}
	b, err := s.pipe.gate.target.Client.SubmitFrozenBatch(ctx, items)
	if s.unsent(err) {
		return
	}
	if err != nil {
		s.noAnswer(err)
		return
	}
	s.judgeBatch(hard, b)
}

// unsent handles a request that the client refused to make. It cannot tell which row is
// to blame, so each is tried alone; a row alone is damaged.
func (s *shipment) unsent(err error) bool {
	var invalid *orbit.InvalidArgumentError
	if !errors.As(err, &invalid) {
		return false
	}
	s.trace.unanswered(err)
	if len(s.rows) > 1 {
		s.apart()
		return true
	}
	s.pipe.lead.block(s.rows[0], outbox.Answer{Outcome: outbox.OutcomeDamaged, Message: invalid.Error()})
	s.pipe.lead.log.Error("row blocked unsent", "seq", s.rows[0].row.Seq, "outcome", outbox.OutcomeDamaged)
	s.pipe.lead.endTrials(s.pipe.gate, s.rows[0])
	return true
}

// noAnswer is for a timeout, a broken connection and the like: any of the rows may have
// been accepted.
func (s *shipment) noAnswer(err error) {
	s.trace.unanswered(err)
	why := err.Error()
	s.pipe.gate.unreachable(s.ticket, 0, why, s.rows...)
	for _, e := range s.rows {
		s.pipe.lead.postponeUnknown(e, outbox.Answer{Message: why}, 0)
		s.pipe.lead.endLaneTrial(e, unknown)
	}
}

// apart puts the rows back, to be sent one by one.
func (s *shipment) apart() {
	for _, e := range s.rows {
		e.alone = true
	}
	s.pipe.push(true, s.rows...)
}

// doubt marks the rows of a batch that somebody else than Orbit has refused: it may have been
// passed on all the same, and no refusal of a row alone answers for that (OUT-013). The mark
// is in the database before a row is sent again. It reports whether it is.
func (s *shipment) doubt(ctx context.Context, a outbox.Answer) bool {
	l := s.pipe.lead
	seqs := make([]int64, len(s.rows))
	for i, e := range s.rows {
		seqs[i] = e.row.Seq
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if _, err := l.store.Doubt(ctx, l.term.now(), seqs, a); err != nil {
		l.log.Error("database fails", "act", "mark rows of a refused batch", "err", err)
		return false
	}
	for _, e := range s.rows {
		e.row.Last.Unknown = true
	}
	return true
}

// judgeBatch applies the answer to a batch.
func (s *shipment) judgeBatch(ctx context.Context, b orbit.BatchAnswer) {
	g, l := s.pipe.gate, s.pipe.lead
	whole := orbit.Answer{Status: b.Status, RequestID: b.RequestID, Err: b.Err, Unreadable: b.Unreadable}
	s.trace.wholly(b, whole)
	why, wait := describe(whole), s.clamp(b.RetryAfter, b.HasRetryAfter)
	orbits := b.Err != nil // Orbit's own refusal: no row was accepted
	switch classifyBatch(b) {
	case batchItems:
		s.judgeItems(b)
	case batchApart:
		l.log.Warn("batch refused as a whole, sending its rows one by one", "target", g.target.Name, "rows", len(s.rows), "err", why)
		if !orbits && !s.doubt(ctx, answerOf(outbox.OutcomeUnknown, whole)) {
			s.postponeAll(whole, wait)
			return
		}
		s.apart()
	case batchThrottled:
		g.throttled(s.ticket, wait, why)
		l.giveBackAfter(whole, s.rows...)
	case batchWrong:
		if orbits || b.Status < 400 || b.Status == 401 { // which say nothing about a row alone either
			g.wrong(s.ticket, why, s.rows...)
			l.giveBackAfter(whole, s.rows...)
		} else {
			g.excuse(s.ticket)
			g.wrong(s.ticket, why, s.rows...)
			s.postponeAll(whole, wait)
		}
	case batchUnknown:
		g.unreachable(s.ticket, wait, why, s.rows...)
		s.postponeAll(whole, wait)
	}
}

// postponeAll is for an answer to a batch after which any of the rows may have been accepted.
func (s *shipment) postponeAll(whole orbit.Answer, wait time.Duration) {
	for _, e := range s.rows {
		s.pipe.lead.postponeUnknown(e, answerOf(outbox.OutcomeUnknown, whole), wait)
	}
}

// judgeItems applies the answer of each row. One that shows a misconfigured target says
// so for all.
func (s *shipment) judgeItems(b orbit.BatchAnswer) {
	g := s.pipe.gate
	if allForbidden(s.rows, b.Items) {
		for i := range s.rows {
			s.trace.answered(i, targetWrong, b.Items[i])
		}
		g.forbid(s.ticket, "every row of several queues was refused: "+describe(b.Items[0]))
		s.pipe.lead.giveBack(s.rows...)
		return
	}
	g.answered(s.ticket)
	verdicts := make([]verdict, len(s.rows))
	for i, e := range s.rows {
		verdicts[i] = classify(&e.row, b.Items[i])
		s.trace.answered(i, verdicts[i], b.Items[i])
		switch verdicts[i] {
		case targetWrong:
			g.wrong(s.ticket, describe(b.Items[i]))
		case throttled:
			g.throttled(s.ticket, s.clamp(b.Items[i].RetryAfter, b.Items[i].HasRetryAfter), describe(b.Items[i]))
		case applicationFull:
			g.full(s.ticket, s.clamp(b.Items[i].RetryAfter, b.Items[i].HasRetryAfter), describe(b.Items[i]))
		}
	}
	for i, e := range s.rows {
		s.judge(e, verdicts[i], b.Items[i])
	}
}

// judge enters what the verdict means for the row.
func (s *shipment) judge(e *entry, v verdict, a orbit.Answer) {
	l := s.pipe.lead
	wait := s.clamp(a.RetryAfter, a.HasRetryAfter)
	switch v {
	case accepted:
		l.deliver(e, a)
	case mismatch:
		l.block(e, answerOf(outbox.OutcomeMismatch, a))
		l.log.Error("row was accepted as something else", "seq", e.row.Seq, "request_id", a.RequestID)
	case refused:
		l.reject(e, answerOf(outbox.OutcomeRefused, a))
		l.log.Warn("row refused", "seq", e.row.Seq, "request_id", a.RequestID, "code", codeOf(a))
	case conflict:
		l.reject(e, answerOf(outbox.OutcomeConflict, a))
		l.log.Error("key of a row was used with other content", "seq", e.row.Seq, "request_id", a.RequestID)
	case needsPerson:
		l.block(e, answerOf(outbox.OutcomeNeedsPerson, a))
		l.log.Warn("row blocked", "seq", e.row.Seq, "request_id", a.RequestID, "code", codeOf(a))
	case queueFull:
		l.postponeFull(e, answerOf(outbox.OutcomeNotAccepted, a), s.holdLane(e.row.Lane, wait))
	case applicationFull:
		l.postponeFull(e, answerOf(outbox.OutcomeNotAccepted, a), wait)
	case throttled, targetWrong:
		l.giveBackAfter(a, e)
	default: // unknown, foreign
		l.postponeUnknown(e, answerOf(outbox.OutcomeUnknown, a), wait)
	}
	if v != queueFull {
		l.endLaneTrial(e, v)
	}
}

// holdLane holds the lane of a full queue, once per request: rows that are due again at
// the same time share a statement.
func (s *shipment) holdLane(lane int64, asked time.Duration) time.Duration {
	held, done := s.full[lane]
	if !done {
		held = s.pipe.lead.lanes.full(lane, asked)
		if s.full == nil {
			s.full = map[int64]time.Duration{}
		}
		s.full[lane] = held
	}
	return held
}

// clamp returns a wait that the server asked for, within bounds; zero without one.
func (s *shipment) clamp(asked time.Duration, given bool) time.Duration {
	if !given {
		return 0
	}
	return min(max(asked, 0), s.pipe.lead.cfg.MaxRetryAfter)
}

// answerOf returns what a row keeps of an answer.
func answerOf(outcome outbox.Outcome, a orbit.Answer) outbox.Answer {
	kept := outbox.Answer{Outcome: outcome, Status: a.Status, Code: codeOf(a), RequestID: a.RequestID, Digest: a.ContentDigest}
	switch {
	case a.Err != nil:
		kept.Message = a.Err.Message
	case a.Unreadable != nil:
		kept.Message = a.Unreadable.Error()
	case a.Accepted != nil:
		kept.Message = fmt.Sprintf("task %s, queue %s, handler %s", a.Accepted.Task.ID, a.Accepted.Task.QueueID, a.Accepted.Task.Handler)
	}
	return kept
}

func codeOf(a orbit.Answer) string {
	if a.Err == nil {
		return ""
	}
	return a.Err.Code
}

// describe puts an answer in words for people.
func describe(a orbit.Answer) string {
	switch {
	case a.Err != nil:
		return a.Err.Error()
	case a.Unreadable != nil:
		return fmt.Sprintf("HTTP status %d: %v", a.Status, a.Unreadable)
	}
	return fmt.Sprintf("HTTP status %d", a.Status)
}

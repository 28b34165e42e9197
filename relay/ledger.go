package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

const (
	// maxSettle bounds one statement.
	maxSettle = outbox.MaxRows
	// settleApart is how far apart statements begin while fewRows or less have gathered: where
	// rows trickle in, each answer would have a commit of its own otherwise, which those of the
	// business have to share the disk with.
	settleApart = 10 * time.Millisecond
	fewRows     = 100
)

// A settleAct is what a statement makes of rows.
type settleAct int

const (
	actPostpone settleAct = iota
	actReject
	actBlock
	actDoubt
)

// A settling is what rows have to share to be settled by one statement.
type settling struct {
	act      settleAct
	answer   outbox.Answer
	attempts int           // postpone: so many have failed; -1 adds no back-off
	least    time.Duration // postpone: for at least so long
}

// A ledger gathers what the answers mean and writes it down: while one statement
// commits, the next one's rows gather. The first after a quiet time is written at once.
type ledger struct {
	lead *lead
	more chan struct{}

	mu        sync.Mutex
	delivered []outbox.Delivery
	others    map[settling][]int64
	closed    bool
}

func newLedger(l *lead) *ledger {
	return &ledger{lead: l, more: make(chan struct{}, 1), others: map[settling][]int64{}}
}

func (g *ledger) deliver(d outbox.Delivery) {
	g.mu.Lock()
	g.delivered = append(g.delivered, d)
	g.mu.Unlock()
	signal(g.more)
}

func (g *ledger) enter(s settling, seqs ...int64) {
	g.mu.Lock()
	g.others[s] = append(g.others[s], seqs...)
	g.mu.Unlock()
	signal(g.more)
}

// close says that nothing will be entered any more.
func (g *ledger) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	signal(g.more)
}

// keep settles what is entered until the ledger is closed and empty, or ctx ends. After
// ErrLeaseLost nothing can be settled any more, and it is returned.
func (g *ledger) keep(ctx context.Context) error {
	retry := newBackOff(20*time.Millisecond, 2*time.Second)
	var down outage
	for {
		began := time.Now()
		err := g.flush(ctx)
		if errors.Is(err, outbox.ErrLeaseLost) {
			return err
		}
		down.report(g.lead.log, "settle rows", err)
		wait := make(<-chan time.Time)
		if err != nil {
			wait = time.After(retry.NextBackOff())
		} else if retry.Reset(); g.done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait:
		case <-g.more:
			g.gather(ctx, began.Add(settleApart))
		}
	}
}

// gather waits until more than a few rows are there, or until then.
func (g *ledger) gather(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for g.hasFew() {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-g.more:
		}
	}
}

func (g *ledger) hasFew() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	rows := len(g.delivered)
	for _, seqs := range g.others {
		rows += len(seqs)
	}
	return !g.closed && rows <= fewRows
}

func (g *ledger) done() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed && len(g.delivered) == 0 && len(g.others) == 0
}

// flush writes what has gathered. What could not be written stays in the ledger.
func (g *ledger) flush(ctx context.Context) error {
	g.mu.Lock()
	delivered, others := g.delivered, g.others
	g.delivered, g.others = nil, map[settling][]int64{}
	g.mu.Unlock()

	left, err := settleAll(ctx, delivered, g.writeDelivered, g.lead.store.Ping)
	g.restore(func() { g.delivered = append(g.delivered, left...) })
	for s, seqs := range others {
		write := func(ctx context.Context, seqs []int64) error { return g.writeOthers(ctx, s, seqs) }
		left, otherErr := settleAll(ctx, seqs, write, g.lead.store.Ping)
		if len(left) > 0 {
			g.restore(func() { g.others[s] = append(g.others[s], left...) })
		}
		err = errors.Join(err, otherErr)
	}
	return err
}

func (g *ledger) restore(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// settleAll writes rows, so many at a time, and returns those that could not be
// written. If the database is well and a statement fails all the same, each of its rows
// gets one of its own, lest one row keep the others from being settled.
func settleAll[T any](ctx context.Context, rows []T, write func(context.Context, []T) error, ping func(context.Context) error) (left []T, err error) {
	for len(rows) > 0 {
		n := min(len(rows), maxSettle)
		chunk := rows[:n]
		rows = rows[n:]
		err := write(ctx, chunk)
		if err == nil {
			continue
		}
		if n == 1 || errors.Is(err, outbox.ErrLeaseLost) || errors.Is(err, outbox.ErrRetry) || ping(ctx) != nil {
			return append(append(left, chunk...), rows...), err
		}
		for i := range chunk {
			if err = write(ctx, chunk[i:i+1]); err != nil {
				left = append(left, chunk[i])
			}
		}
	}
	if len(left) > 0 {
		err = fmt.Errorf("relay: %d rows cannot be settled", len(left))
	}
	return left, err
}

func (g *ledger) writeDelivered(ctx context.Context, rows []outbox.Delivery) error {
	l := g.lead
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	n, err := l.store.Deliver(ctx, l.term.now(), rows)
	if err != nil {
		return err
	}
	if n < len(rows) {
		// The same key was accepted as two tasks, or somebody deleted open rows.
		l.log.Error("accepted rows do not hold their answer", "rows", len(rows), "hold", n)
	}
	seqs := make([]int64, len(rows))
	for i := range rows {
		seqs[i] = rows[i].Seq
	}
	l.settled(seqs)
	return nil
}

func (g *ledger) writeOthers(ctx context.Context, s settling, seqs []int64) (err error) {
	l := g.lead
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	switch s.act {
	case actPostpone:
		_, err = l.store.Postpone(ctx, l.term.now(), seqs, s.delay(l.cfg), s.answer)
	case actReject:
		_, err = l.store.Reject(ctx, l.term.now(), seqs, s.answer)
	case actBlock:
		_, err = l.store.Block(ctx, l.term.now(), seqs, s.answer)
	case actDoubt:
		_, err = l.store.Doubt(ctx, l.term.now(), seqs, s.answer)
	}
	if err != nil {
		return err
	}
	l.settled(seqs)
	if s.act == actDoubt {
		l.rewind.Store(true) // they are due as before
	}
	return nil
}

func (s settling) delay(cfg Config) time.Duration {
	if s.attempts < 0 {
		return s.least
	}
	return max(s.least, delayAfter(s.attempts, cfg.RetryFirst, cfg.RetryMost))
}

// signal wakes whoever waits on c, or will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package relay

import (
	"context"
	"time"
)

// obeyWithin is how old what a leader knows of the operators' holds may be while it sends.
// An operator is promised a second.
const obeyWithin = 500 * time.Millisecond

// watchHolds reads the holds while rows are between reader and ledger, until ctx ends:
// they may wait there for a slow server when the reader has nothing more to read. The
// reader looks by itself before it picks.
func (l *lead) watchHolds(ctx context.Context) {
	var down outage
	for sleep(ctx, obeyWithin) {
		if l.flight.open() == 0 || !l.holdsAreStale() {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, statementTimeout)
		err := l.readHolds(limited)
		cancel()
		if ctx.Err() == nil {
			down.report(l.log, "read holds", err)
		}
	}
}

// holdsAreStale reports whether the holds would be older than promised by the next look.
func (l *lead) holdsAreStale() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.heldAt) >= obeyWithin/2
}

func (l *lead) readHolds(ctx context.Context) error {
	now := time.Now()
	holds, err := l.store.Holds(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds, l.heldAt = holds, now
	return nil
}

func (l *lead) onHold(target, queueID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.holds {
		if h.Covers(target, queueID) {
			return true
		}
	}
	return false
}

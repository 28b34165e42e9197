package relay

import (
	"context"
	"time"
)

// obeyWithin is how old what a leader knows of the operators' holds may be when it chooses
// rows, and until it looks again while they wait to be sent. An operator is promised a second.
const obeyWithin = 400 * time.Millisecond

// watchHolds reads the holds while rows are between reader and ledger, until ctx ends:
// they may wait there for a slow server when the reader has nothing more to read. The
// reader looks by itself before it picks.
func (l *lead) watchHolds(ctx context.Context) {
	var down outage
	for sleep(ctx, obeyWithin) {
		if l.flight.open() == 0 || !l.holdsAreOlder(obeyWithin/2) {
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

// holdsAreOlder reports whether the holds were read so long ago. At half of obeyWithin they
// are read again, lest they get older than that until the next look.
func (l *lead) holdsAreOlder(age time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.heldAt) >= age
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

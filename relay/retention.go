package relay

import (
	"context"
	"time"
)

const (
	// purgeRows is how many rows one batch looks at: few enough for business transactions
	// beside it not to wait for long.
	purgeRows = 500
	// purgeRate is how many rows a second batches delete at most, so that they keep up with
	// 2,000 delivered ones, and purgeHurry after how long without coming to young rows they hurry.
	purgeRate  = 2500
	purgeHurry = 15 * time.Minute
	// purgeAgain is how long the relay waits when it has come to young rows.
	purgeAgain = time.Minute
	// purgeAnew is how often it begins at the first row again: some rows are delivered
	// long after those around them.
	purgeAnew = time.Hour
)

// purge deletes old delivered rows until ctx ends (OUT-018). It is the leader of shard 0
// that does it, for all shards, so there is one at a time. Each batch is followed by a
// pause at least as long as it took, so that a slow database gets less of it.
func (l *lead) purge(ctx context.Context) {
	retry := newBackOff(time.Second, time.Minute)
	var down outage
	var next int64
	var anew time.Time
	caughtUp := time.Now()
	for {
		if time.Since(anew) >= purgeAnew {
			next, anew = 0, time.Now()
		}
		began := time.Now()
		rows, after, err := l.purgeBatch(ctx, next)
		if ctx.Err() != nil {
			return
		}
		down.report(l.log, "purge delivered rows", err)
		wait := time.Since(began)
		if rows > 0 && time.Since(caughtUp) < purgeHurry {
			wait = max(wait, purgeRows*time.Second/purgeRate-wait)
		}
		switch {
		case err != nil:
			wait = retry.NextBackOff()
		case after == 0:
			retry.Reset()
			wait, caughtUp = purgeAgain, time.Now().Add(purgeAgain)
		default:
			retry.Reset()
			next = after
			if rows == 0 {
				wait *= 4 // nothing but reading past rows that stay
			}
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

func (l *lead) purgeBatch(ctx context.Context, next int64) (rows int, after int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	p, err := l.store.Purge(ctx, l.cfg.Retain, next, purgeRows)
	l.count.purged.Add(int64(p.Rows))
	return p.Rows, p.Next, err
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

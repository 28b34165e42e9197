package worker

import "time"

// A lease is the right to execute one attempt, on this process's monotonic clock.
// It ends early by a margin, so that the handler has stopped and told its end
// before the server ends the right.
type lease struct {
	confirmed bool      // the server has said that the attempt runs
	until     time.Time // end of the right, unless it is renewed
	due       time.Time // when it is to be renewed: after a third
	third     time.Duration
	end       time.Time // attempt timeout or task deadline: never renewed past it
}

// margin is taken off a right of length d.
func margin(d time.Duration) time.Duration { return min(d/10, time.Second) }

// confirm takes the answer to a Start or Resume that was asked for at asked. What
// was left when the server sent it is counted from before the question: the answer
// may have been under way for long.
func (l *lease) confirm(asked time.Time, g Grant, deadline time.Time) {
	if !l.confirmed {
		l.confirmed = true
		l.end = earlier(asked.Add(g.Timeout-margin(g.Timeout)), deadline.Add(-margin(deadline.Sub(asked))))
	}
	l.extend(asked, g)
}

func (l *lease) extend(asked time.Time, g Grant) {
	l.third = max(g.Lease/3, 10*time.Millisecond) // a lease that is nearly over must not make us spin
	l.until = earlier(asked.Add(g.Lease-margin(g.Lease)), l.end)
	l.due = asked.Add(l.third)
}

// postpone sets another try after a renewal that was not answered.
func (l *lease) postpone(now time.Time) { l.due = now.Add(l.third / 3) }

// left is how long the right lasts at now; it is not positive if it is over.
func (l *lease) left(now time.Time) time.Duration {
	if !l.confirmed {
		return 0
	}
	return l.until.Sub(now)
}

// lossAt tells why the right is over at now.
func (l *lease) lossAt(now time.Time) error {
	if !now.Before(l.end) {
		return ErrAttemptTimeout
	}
	return ErrLeaseLost
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

package worker

import (
	"testing"
	"time"
)

// The right ends with the attempt, however long the lease is, and counts from before
// the question.
func TestLeaseEndsWithTheAttempt(t *testing.T) {
	asked := time.Now()
	for name, c := range map[string]struct {
		lease, timeout, deadline, want time.Duration
		loss                           error
	}{
		"Lease":    {15 * time.Second, time.Minute, time.Hour, 14 * time.Second, ErrLeaseLost},
		"Timeout":  {time.Minute, 15 * time.Second, time.Hour, 14 * time.Second, ErrAttemptTimeout},
		"Deadline": {time.Minute, time.Hour, 15 * time.Second, 14 * time.Second, ErrAttemptTimeout},
		"Short":    {time.Second, time.Minute, time.Hour, 900 * time.Millisecond, ErrLeaseLost},
		"None":     {0, time.Minute, time.Hour, 0, ErrLeaseLost},
		"Over":     {time.Minute, 0, time.Hour, 0, ErrAttemptTimeout},
	} {
		var l lease
		if left := l.left(asked); left != 0 {
			t.Errorf("%s: left before it is confirmed = %v", name, left)
		}
		l.confirm(asked, Grant{Lease: c.lease, Timeout: c.timeout}, asked.Add(c.deadline))
		if left := l.left(asked); left != c.want {
			t.Errorf("%s: left = %v, want %v", name, left, c.want)
		}
		if err := l.lossAt(asked.Add(c.want)); err != c.loss {
			t.Errorf("%s: loss = %v, want %v", name, err, c.loss)
		}
		end := l.end
		l.confirm(asked.Add(time.Second), Grant{Lease: c.lease, Timeout: time.Hour}, asked.Add(time.Hour))
		if l.end != end {
			t.Errorf("%s: a second confirmation moved the end", name)
		}
	}
}

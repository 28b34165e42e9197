package session

import (
	"sync"
	"time"
)

// A budget bounds what one reader has under way. One goroutine takes, any may give back.
type budget struct {
	most  int
	freed chan struct{}

	mu   sync.Mutex
	used int
}

func newBudget(most int) *budget { return &budget{most: most, freed: make(chan struct{}, 1)} }

// take waits for n to fit, or for nothing to be under way, and reports false if ended is
// closed before.
func (b *budget) take(n int, ended <-chan struct{}) bool {
	for !b.tryTake(n) {
		select {
		case <-b.freed:
		case <-ended:
			return false
		}
	}
	return true
}

func (b *budget) tryTake(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used > 0 && b.used+n > b.most {
		return false
	}
	b.used += n
	return true
}

// give gives back n.
func (b *budget) give(n int) {
	b.mu.Lock()
	b.used -= n
	b.mu.Unlock()
	select {
	case b.freed <- struct{}{}:
	default:
	}
}

// A pace bounds how much is done in a second. It allows a burst of a second's worth unless
// most says less. It is not safe for concurrent use.
type pace struct {
	rate, most int
	have       float64
	at         time.Time // when have was counted; zero for never
}

// left is how much may be done now.
func (p *pace) left(now time.Time) int {
	if p.at.IsZero() {
		p.have = float64(p.most)
	} else if d := now.Sub(p.at); d > 0 {
		p.have = min(float64(p.most), p.have+d.Seconds()*float64(p.rate))
	}
	p.at = now
	return int(p.have)
}

// use counts what was done, which may be a little more than was left.
func (p *pace) use(n int) { p.have -= float64(n) }

// until is how long it takes until n may be done.
func (p *pace) until(n int, now time.Time) time.Duration {
	p.left(now)
	return max(0, time.Duration((float64(n)-p.have)/float64(p.rate)*float64(time.Second)))
}

package session

import "sync"

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

package relay

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// laneHolds are the lanes of a shard whose queue is full. A full queue delays its own
// rows only (REL-020).
type laneHolds struct {
	cfg  Config
	mu   sync.Mutex
	held map[int64]*laneHold
}

type laneHold struct {
	until     time.Time
	trialEnds time.Time // a row is on trial, until then at the latest
	backOff   *backoff.ExponentialBackOff
}

func newLaneHolds(cfg Config) *laneHolds {
	return &laneHolds{cfg: cfg, held: map[int64]*laneHold{}}
}

// room returns how much may be sent of a lane now and, if it is held, until when. After
// a hold one row goes first.
func (h *laneHolds) room(lane int64) (int, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.held[lane]
	now := time.Now()
	switch {
	case l == nil:
		return roomAll, time.Time{}
	case now.Before(l.until):
		return roomNone, l.until
	case now.Before(l.trialEnds):
		return roomNone, l.trialEnds
	}
	return roomTrial, time.Time{}
}

func (h *laneHolds) beginTrial(lane int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.held[lane]; l != nil {
		l.trialEnds = time.Now().Add(h.cfg.Lease)
	}
}

func (h *laneHolds) endTrial(lane int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.held[lane]; l != nil {
		l.trialEnds = time.Time{}
	}
}

// full holds a lane for the time that the server asked for, or for a drawn delay if that
// is longer, and returns how long that is. Answers to what was sent side by side count
// as one.
func (h *laneHolds) full(lane int64, asked time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.held[lane]
	if l == nil {
		l = &laneHold{backOff: newBackOff(h.cfg.PauseFirst, h.cfg.PauseMost)}
		h.held[lane] = l
	}
	now, delay := time.Now(), asked
	if !now.Before(l.until) {
		delay = max(delay, l.backOff.NextBackOff())
	}
	if until := now.Add(delay); until.After(l.until) {
		l.until = until
	}
	l.trialEnds = time.Time{}
	return l.until.Sub(now)
}

// freed reports that the queue of a lane took a row. What was sent before the hold
// does not end it.
func (h *laneHolds) freed(lane int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.held[lane]; l != nil && !time.Now().Before(l.until) {
		delete(h.held, lane)
	}
}

// passes reports whether a row that was read earlier may still be sent.
func (h *laneHolds) passes(lane int64, onTrial bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.held[lane]
	return l == nil || onTrial && !time.Now().Before(l.until)
}

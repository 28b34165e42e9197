package relay

import (
	"context"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

const (
	minPoll = 20 * time.Millisecond
	// lookAgain is how long a place in a lane and the list of lanes are good for. A transaction that commits late leaves a row behind the
	// place.
	lookAgain = time.Second
	// readRows is how many index entries one look at a lane reads.
	readRows  = 500
	manyLanes = 32
	// maxOpen bounds the rows between reader and ledger.
	maxOpen = 8000
	// fewOpen is up to how many of them a look from the beginning of a lane reads the rows
	// and not only the index: it meets those again.
	fewOpen = glanceRows / 2
)

// A reader finds due rows of a shard and puts them into the pipes of their targets. It
// takes the lanes in turn and writes nothing.
type reader struct {
	*lead
	stop, hard context.Context
	pipes      map[string]*pipe

	lanes    []outbox.Lane
	listed   time.Time     // when lanes were listed; zero to list them again
	damaged  []outbox.Lane // listed, but begin with a damaged row: see blockFirst
	restUnto time.Time     // not to list them again before
	rewound  time.Time     // when every lane was begun anew
	places   map[int64]outbox.Cursor
	ended    map[int64]bool // nothing due behind the place
	turn     int
	blocked  bool          // pipes or ledger have no room
	sleep    time.Duration // until something known is due
	lone     map[string]bool
	familiar map[int64]familiarLane
	passedBy map[string]int // targets of which only shunned rows were met
}

func newReader(l *lead) *reader {
	return &reader{
		lead:   l,
		pipes:  map[string]*pipe{},
		places: map[int64]outbox.Cursor{},
		ended:  map[int64]bool{},
		lone:   map[string]bool{},

		familiar: map[int64]familiarLane{},
	}
}

// run reads until stop is done or, to drain, until nothing can be sent. What it puts
// into pipes is sent by senders that it starts.
func (r *reader) run(stop, hard context.Context) {
	r.stop, r.hard = stop, hard
	wake, unsubscribe := r.relay.subscribe()
	defer unsubscribe()
	retry := newBackOff(50*time.Millisecond, 5*time.Second)
	idle := minPoll
	var down outage
	for stop.Err() == nil {
		found, err := r.step()
		if stop.Err() != nil {
			return
		}
		down.report(r.log, "read due rows", err)
		switch {
		case err != nil:
			r.wait(wake, retry.NextBackOff()+minPoll)
			r.lookAnew()
			continue
		case found:
			idle = minPoll
		case r.drain && r.drained():
			return
		case r.blocked:
			r.waitForRoom(wake)
		default:
			woken := r.wait(wake, min(idle, r.sleep))
			idle = min(2*idle, r.cfg.Poll)
			var found, all bool
			if woken {
				found, all = r.glance()
			}
			if found {
				idle = minPoll
			}
			if !all {
				r.lookAnew()
			}
		}
		retry.Reset()
	}
}

// wait sleeps until it is woken, for at most d. It reports whether it was woken for new rows.
func (r *reader) wait(wake []<-chan struct{}, d time.Duration) (rows bool) {
	var settled chan struct{}
	if r.drain {
		settled = r.space
	}
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-r.stop.Done():
	case <-settled:
	case <-wake[0]:
		return true
	case <-wake[1]:
	case <-timer.C:
	}
	return false
}

// lookAnew makes the next step look at all lanes.
func (r *reader) lookAnew() {
	r.listed = time.Time{}
	r.rest()
}

// rest keeps the list of many lanes, which costs a look-up for each, from being read
// all the time.
func (r *reader) rest() {
	if d := time.Until(r.restUnto); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-r.stop.Done():
		case <-timer.C:
		}
	}
}

// waitForRoom sleeps until pipes and ledger may take more. Work is at hand, so new work
// only wakes it when some time has passed: it may be in another lane.
func (r *reader) waitForRoom(wake []<-chan struct{}) {
	timer := time.NewTimer(lookAgain / 5)
	defer timer.Stop()
	select {
	case <-r.stop.Done():
		return
	case <-r.space:
		return
	case <-timer.C:
	}
	timer.Reset(lookAgain)
	select {
	case <-r.stop.Done():
	case <-r.space:
	case <-wake[0]:
		r.listed = time.Time{}
	case <-timer.C:
	}
}

// step reads once: it reports whether it has put rows into pipes.
func (r *reader) step() (found bool, err error) {
	ctx, cancel := context.WithTimeout(r.stop, statementTimeout)
	defer cancel()
	if time.Since(r.listed) >= lookAgain {
		if err := r.list(ctx); err != nil {
			return false, err
		}
		if blocked, err := r.blockFirst(ctx); err != nil || blocked {
			return blocked, err
		}
	}
	if len(r.lanes) > 0 && r.holdsAreOlder(obeyWithin/2) {
		if err := r.readHolds(ctx); err != nil {
			return false, err
		}
	}
	r.blocked, r.sleep, r.passedBy = false, r.cfg.Poll, map[string]int{}
	if len(r.damaged) > 0 {
		r.sleep = min(r.sleep, lookAgain) // for what is behind
	}
	picked, err := r.pick(ctx)
	if err != nil {
		return false, err
	}
	if len(picked) == 0 {
		return r.forgiveShunned(), nil
	}
	return true, r.fetch(ctx, picked)
}

// list reads which lanes have rows.
func (r *reader) list(ctx context.Context) error {
	r.flight.beginRead()
	now := time.Now()
	lanes, err := r.store.Lanes(ctx, r.term.now().Shard)
	if err != nil {
		return err
	}
	r.lanes, r.damaged, r.listed = lanes[:0], nil, now
	for _, lane := range lanes {
		if lane.Damage == "" {
			r.lanes = append(r.lanes, lane)
		} else {
			r.damaged = append(r.damaged, lane)
		}
	}
	r.acquaint()
	if len(lanes) > manyLanes {
		r.restUnto = time.Now().Add(4 * time.Since(now))
	}
	if r.rewind.Swap(false) || now.Sub(r.rewound) >= lookAgain {
		clear(r.places)
		r.rewound = now
	}
	for lane := range r.ended {
		delete(r.places, lane)
	}
	clear(r.ended)
	return nil
}

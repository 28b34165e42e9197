package relay

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// A gateState says how many rows a gate lets through.
type gateState int

const (
	gatePaused gateState = iota // none, until a probe finds the right server
	gateHeld                    // none, until a time that the server named
	gateTrial                   // one, whose answer opens the gate or closes it again
	gateOpen                    // all
)

var gateNames = [...]string{"paused", "held", "trial", "open"}

func (s gateState) String() string { return gateNames[s] }

// A gate stands before one target. All shards that the relay leads share it.
type gate struct {
	target  Target
	cfg     Config
	log     *slog.Logger
	changed func()        // called when the gate may let more through; must not block
	kick    chan struct{} // wakes the prober

	mu        sync.Mutex
	state     gateState
	round     uint64    // grows when the gate closes
	answers   uint64    // given by Orbit
	until     time.Time // held: when it ends; paused: next probe
	trialEnds time.Time // a row is on trial, until then at the latest
	failed    bool      // the last trial has shown nothing
	trials    int       // that showed nothing since the gate was closed
	openedAt  time.Time
	backOff   *backoff.ExponentialBackOff
	delay     time.Duration // of the last closing
	probed    bool
	strangers map[int64]struct{}  // rows in succession with a 4xx of somebody else
	shunned   map[int64]time.Time // rows that closed the gate, alone in their request: until when others go first
	suspects  map[int64]struct{}  // rows of batches that closed the gate: sent alone the next time
	inVain    map[int64]vain      // rows that were sent without an answer

	forbidden bool // closed because all queues were refused

	namespace string        // of the credential
	window    time.Duration // how long after WindowFrom a row may be sent
	maxRows   int           // of a batch
	maxBytes  int
	lastError string
	errorAt   time.Time
}

func newGate(t Target, cfg Config, changed func()) *gate {
	return &gate{
		target:    t,
		cfg:       cfg,
		log:       cfg.Log.With("target", t.Name),
		changed:   changed,
		kick:      make(chan struct{}, 1),
		namespace: t.NamespaceID,
		backOff:   newBackOff(cfg.PauseFirst, cfg.PauseMost),
		strangers: map[int64]struct{}{},
		shunned:   map[int64]time.Time{},
		suspects:  map[int64]struct{}{},
		inVain:    map[int64]vain{},
		maxRows:   cfg.BatchRows,
		maxBytes:  orbit.MaxBodyBytes,
	}
}

// Room that a gate leaves for rows of its target.
const (
	roomNone = iota
	roomTrial
	roomAll
)

// room returns how much the gate lets through now and, if it is held, when that ends.
func (g *gate) room() (int, time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.state == gateHeld && !now.Before(g.until) {
		g.state = gateTrial
	}
	switch {
	case g.state == gateOpen:
		return roomAll, time.Time{}
	case g.state == gateHeld:
		return roomNone, g.until
	case g.state == gateTrial && now.Before(g.trialEnds):
		return roomNone, g.trialEnds
	case g.state == gateTrial:
		return roomTrial, time.Time{}
	}
	return roomNone, time.Time{}
}

// beginTrial lets one row through a gate on trial; false if another one was faster. A
// trial whose end is never reported ends by itself.
func (g *gate) beginTrial() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.state != gateTrial || now.Before(g.trialEnds) {
		return g.state == gateOpen
	}
	g.trialEnds = now.Add(g.cfg.Lease)
	return true
}

// tryAny reports whether any row may be on trial next: the one in front may be the reason
// why nothing is answered (REL-019).
func (g *gate) tryAny() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// endTrial reports that the row on trial tells nothing about the target.
func (g *gate) endTrial() {
	g.mu.Lock()
	g.trialEnds = time.Time{}
	g.mu.Unlock()
	g.changed()
}

// passes reports whether a row that was read earlier may still be sent.
func (g *gate) passes(onTrial bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state == gateOpen || g.state == gateTrial && onTrial
}

// A ticket remembers how things stood when a request began, so that its failure is
// not held against a target that has answered others since, nor counted twice.
type ticket struct{ round, answers uint64 }

// board gives the ticket of a request, if the gate lets its rows through at this moment:
// it may have closed since they were chosen. So a closed gate lets nothing pass, and
// what fails later had its ticket before the gate closed.
func (g *gate) board(onTrial bool) (t ticket, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ok = g.state == gateOpen || g.state == gateTrial && onTrial
	return ticket{round: g.round, answers: g.answers}, ok
}

// answered reports that Orbit itself has answered.
func (g *gate) answered(t ticket) {
	g.mu.Lock()
	opened := g.answeredLocked() && t.round == g.round
	if opened {
		g.state, g.openedAt, g.forbidden = gateOpen, time.Now(), false
	}
	g.mu.Unlock()
	if opened {
		g.log.Info("target opened")
		g.changed()
	}
}

func (g *gate) answeredLocked() (onTrial bool) {
	g.answers++
	g.failed = false
	clear(g.strangers)
	return g.state == gateTrial
}

// full holds the gate for the time that Orbit asked for.
func (g *gate) full(t ticket, asked time.Duration, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answeredLocked()
	g.holdLocked(t, asked, why)
}

// throttled holds the gate for somebody in front of Orbit.
func (g *gate) throttled(t ticket, asked time.Duration, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holdLocked(t, asked, why)
}

func (g *gate) holdLocked(t ticket, asked time.Duration, why string) {
	if t.round != g.round {
		if until := time.Now().Add(asked); g.state == gateHeld && until.After(g.until) {
			g.until = until
		}
		return
	}
	g.closeLocked(gateHeld, asked, why)
	g.log.Warn("target held", "for", g.delay, "err", why)
}

// unreachable closes the gate after a request without a usable answer, unless others
// were answered meanwhile, or since its rows were last sent in vain, or other rows have yet to
// be tried: then it may have been the rows (REL-019). A server that asks to be left alone is.
func (g *gate) unreachable(t ticket, asked time.Duration, why string, rows ...*entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	blamed := g.blamedLocked(rows)
	if t.round != g.round {
		return
	}
	g.failed = g.state == gateTrial
	if g.answers > t.answers || asked == 0 && (blamed || g.tryOnLocked()) {
		g.trialEnds = time.Time{} // another row may try
		g.changed()
		return
	}
	g.closeLocked(gatePaused, asked, why)
	g.log.Warn("target cannot be reached", "probe_in", g.delay, "err", why)
}

// tryOnLocked reports whether another row is to be tried after one that has shown nothing: a
// server that has answered the probe may be well, and the rows be the reason (REL-019). One that
// is slow is left alone.
func (g *gate) tryOnLocked() bool {
	const most = 16
	g.trials++
	quick := time.Until(g.trialEnds) > g.cfg.Lease-g.cfg.SendTimeout/2
	return g.failed && quick && g.trials < most
}

// noteVainLocked notes that a row was sent in vain, and returns what there was of it before.
func (g *gate) noteVainLocked(seq int64) vain {
	if len(g.inVain) > maxSuspects {
		clear(g.inVain)
	}
	before := g.inVain[seq]
	g.inVain[seq] = vain{answers: g.answers, times: before.times + 1}
	return before
}

// A vain counts how often a row was sent without an answer, and how many other answers there
// had been the last time.
type vain struct {
	answers uint64
	times   int
}

// leastBlamed puts rows that may be on trial in the order in which they are to be: those first
// that were least often sent in vain, and of these any (REL-019).
func (g *gate) leastBlamed(rows []outbox.Ready) {
	rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.SortStableFunc(rows, func(a, b outbox.Ready) int { return cmp.Compare(g.inVain[a.Seq].times, g.inVain[b.Seq].times) })
}

// blamedLocked notes that rows were sent in vain, and reports whether each of them was so
// before, and others have been answered since.
func (g *gate) blamedLocked(rows []*entry) bool {
	all := len(rows) > 0
	for _, e := range rows {
		before := g.noteVainLocked(e.row.Seq)
		all = all && before.times > 0 && before.answers < g.answers
	}
	return all
}

// wrong closes the gate because the target is misconfigured. Rows are those whose
// request said so. It may be the fault of one of them after all: they are sent alone
// from then on, and one that was alone already after others.
func (g *gate) wrong(t ticket, why string, rows ...*entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.round != g.round {
		return
	}
	if len(g.suspects) > maxSuspects {
		clear(g.suspects)
	}
	for _, e := range rows {
		g.suspects[e.row.Seq] = struct{}{}
	}
	if len(rows) == 1 {
		seq := rows[0].row.Seq
		g.shunned[seq] = time.Now().Add(g.cfg.PauseMost)
		g.noteVainLocked(seq)
		g.failed = g.state == gateTrial // it may be the row: others are tried next (REL-019)
	}
	g.wrongLocked(why)
}

const maxSuspects = 10_000

// forbid closes the gate because every queue was refused: it is the credential's scope
// and not the rows (REL-027).
func (g *gate) forbid(t ticket, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.round == g.round {
		g.forbidden = true
		g.wrongLocked(why)
	}
}

// stillForbidden reports whether a 403 of the row on trial is the credential's fault
// as well: until a queue has taken a row, no row is blocked for it.
func (g *gate) stillForbidden() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.forbidden && g.state == gateTrial
}

func (g *gate) wrongLocked(why string) {
	g.closeLocked(gatePaused, 0, why)
	g.log.Error("target paused", "probe_in", g.delay, "err", why)
}

// stranger reports that a row alone got a 4xx that Orbit does not stand behind. Three
// different rows in succession are too many to be the rows' own fault (REL-026).
func (g *gate) stranger(t ticket, seq int64, why string) {
	const tooMany = 3
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trialEnds = time.Time{}
	defer g.changed() // another row may try
	g.strangers[seq] = struct{}{}
	g.noteVainLocked(seq)
	g.failed = g.state == gateTrial
	if t.round == g.round && len(g.strangers) >= tooMany {
		clear(g.strangers)
		g.excuseLocked()
		g.wrongLocked(why)
	}
}

// excuse is called before an open gate closes for a 4xx that Orbit does not stand behind: it has
// answered since the gate was closed last, so that it may be the rows, and good ones should
// not wait long for them (REL-019).
func (g *gate) excuse(t ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.round == g.round { // else it closes nothing
		g.excuseLocked()
	}
}

func (g *gate) excuseLocked() {
	if g.state == gateOpen {
		g.backOff.Reset()
	}
}

// closeLocked closes the gate for a drawn delay, or longer if so asked. Delays grow
// until the gate has been open for longer than it was closed.
func (g *gate) closeLocked(to gateState, asked time.Duration, why string) {
	if g.state == gateOpen && time.Since(g.openedAt) > g.delay {
		g.backOff.Reset()
	}
	g.delay = max(g.backOff.NextBackOff(), asked)
	g.state, g.until, g.trialEnds, g.trials = to, time.Now().Add(g.delay), time.Time{}, 0
	g.round++
	g.lastError, g.errorAt = why, time.Now()
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// shuns reports whether another row is to be sent before this one.
func (g *gate) shuns(seq int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.shunned[seq])
}

// forgive lets shunned rows through, for want of others.
func (g *gate) forgive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.shunned)
}

// sendsAlone reports whether a row that was read is to be sent alone, once.
func (g *gate) sendsAlone(seq int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, alone := g.suspects[seq]
	delete(g.suspects, seq)
	delete(g.shunned, seq)
	return alone
}

// limits returns what a batch may hold, and how old a row may be.
func (g *gate) limits() (rows, bytes int, window time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.maxRows, g.maxBytes, g.window
}

func (g *gate) stats() TargetStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return TargetStats{Name: g.target.Name, State: g.state.String(), LastError: g.lastError, LastErrorAt: g.errorAt}
}

// standing returns the state and what led to it.
func (g *gate) standing() (gateState, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, "target is " + g.state.String() + ": " + g.lastError
}

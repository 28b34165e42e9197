package outbox

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Trouble is a kind of what can be wrong with an outbox, the worst first.
type Trouble string

// Troubles.
const (
	RelayDead    Trouble = "relay dead"    // due rows, and nobody leads their shard
	NoCredential Trouble = "no credential" // due rows of a target that the relay does not know
	ServerDown   Trouble = "server down"   // the target cannot be reached or is misconfigured
	Stuck        Trouble = "stuck"         // the target is open, yet nothing is accepted
	TooSmall     Trouble = "too small"     // rows are accepted, yet more slowly than they come
	Poison       Trouble = "poison"        // rows that need a person
	Held         Trouble = "held"          // an operator keeps due rows back
)

var troubles = []Trouble{RelayDead, NoCredential, ServerDown, Stuck, TooSmall, Poison, Held}

// A Finding is one trouble, in a line for people.
type Finding struct {
	Trouble Trouble
	Detail  string
}

// String returns trouble and detail.
func (f Finding) String() string { return string(f.Trouble) + ": " + f.Detail }

// How old the first due row must be to mean something. A standby takes over within a
// lease; a healthy relay is behind for a poll.
const (
	deadAfter   = 15 * time.Second
	behindAfter = 10 * time.Second
	stuckAfter  = 30 * time.Second
	tooOften    = 5 // sends with an unknown outcome
)

// oldestRow is the pending row with the lowest seq.
type oldestRow struct {
	seq      int64
	attempts int
	unknown  bool
}

// A diagnosis sorts the lanes of an outbox by what keeps their first row.
type diagnosis struct {
	st     *Status
	oldest oldestRow
	leader map[int]string // of shards that are led
	report map[scope]TargetReport
	waits  map[Trouble]waiting
}

type scope struct {
	shard  int
	target string
}

// waiting is the oldest due row of a trouble.
type waiting struct {
	age    time.Duration
	shard  int
	target string
}

func newDiagnosis(st *Status, oldest oldestRow) *diagnosis {
	d := &diagnosis{st: st, oldest: oldest, leader: map[int]string{}, report: map[scope]TargetReport{}, waits: map[Trouble]waiting{}}
	for _, l := range st.Leaders {
		if l.Left > 0 {
			d.leader[l.Shard] = l.Leader
		}
	}
	for _, r := range st.Targets {
		d.report[scope{r.Shard, r.Target}] = r
	}
	return d
}

// lane takes the first row of a lane into account.
func (d *diagnosis) lane(shard int, l Lane) {
	if l.Wait > 0 {
		return
	}
	if since := d.st.At.Add(l.Wait); d.st.OldestDue.IsZero() || since.Before(d.st.OldestDue) {
		d.st.OldestDue = since
	}
	w := waiting{age: -l.Wait, shard: shard, target: l.Target}
	if t, is := d.trouble(w, l); is && w.age >= d.waits[t].age {
		d.waits[t] = w
	}
}

// held reports whether an operator keeps the lane back.
func (d *diagnosis) held(l Lane) bool {
	return slices.ContainsFunc(d.st.Holds, func(h Hold) bool { return h.Covers(l.Target, l.QueueID) })
}

func (d *diagnosis) trouble(w waiting, l Lane) (Trouble, bool) {
	report, reported := d.report[scope{w.shard, w.target}]
	_, led := d.leader[w.shard]
	switch {
	case d.held(l):
		return Held, true
	case !led:
		return RelayDead, w.age >= deadAfter
	case reported && report.Gate == GateUnclaimed:
		return NoCredential, true
	case reported && (report.Gate == "paused" || report.Gate == "held"):
		return ServerDown, true
	case reported && report.PerMinute > 0:
		return TooSmall, w.age >= behindAfter
	}
	return Stuck, w.age >= stuckAfter
}

func (d *diagnosis) findings() (found []Finding) {
	for t, w := range d.waits {
		found = append(found, Finding{Trouble: t, Detail: d.detail(t, w)})
	}
	if why := d.poison(); why != "" {
		found = append(found, Finding{Trouble: Poison, Detail: why})
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Compare(slices.Index(troubles, a.Trouble), slices.Index(troubles, b.Trouble))
	})
	return found
}

func (d *diagnosis) detail(t Trouble, w waiting) string {
	age := w.age.Round(time.Second)
	report := d.report[scope{w.shard, w.target}]
	switch t {
	case RelayDead:
		return fmt.Sprintf("nobody leads shard %d, its first due row waits for %v", w.shard, age)
	case NoCredential:
		return fmt.Sprintf("relay %s has no credential for target %s, whose first due row waits for %v", d.leader[w.shard], w.target, age)
	case ServerDown:
		return fmt.Sprintf("target %s is %s, its first due row waits for %v: %s", w.target, report.Gate, age, report.Error)
	case Stuck:
		return fmt.Sprintf("relay %s leads shard %d, yet no row of target %s is accepted, the first waits for %v: see its log", d.leader[w.shard], w.shard, w.target, age)
	case TooSmall:
		return fmt.Sprintf("%d rows a minute of target %s are accepted, %d are pending, the first due row waits for %v", report.PerMinute, w.target, d.st.Count[Pending], age)
	}
	return fmt.Sprintf("an operator holds target %s, whose first due row waits for %v", w.target, age)
}

// poison tells of rows that no relay will settle.
func (d *diagnosis) poison() string {
	blocked, again := d.st.Count[Blocked], d.oldest.unknown && d.oldest.attempts >= tooOften
	switch {
	case blocked > 0 && again:
		return fmt.Sprintf("%d rows are BLOCKED, row %d is unknown after %d sends", blocked, d.oldest.seq, d.oldest.attempts)
	case blocked > 0:
		return fmt.Sprintf("%d rows are BLOCKED: they need a person", blocked)
	case again:
		return fmt.Sprintf("row %d is unknown after %d sends", d.oldest.seq, d.oldest.attempts)
	}
	return ""
}

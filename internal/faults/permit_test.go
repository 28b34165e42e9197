//go:build linux

package faults

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
)

// Issue C, "permits checked linearizable with porcupine under kills and pauses: at no time
// two valid permits of one key, tokens strictly increasing". Several nodes share a database;
// workers are killed and paused at random, far beyond their leases. What the workers were
// told and when, and what the database says of each attempt, must fit one order of claims
// and releases.
func TestPermitsAreLinearizableUnderKillsAndPauses(t *testing.T) { // KEY-011, TOK-004, TOK-011, LIC-019, LIC-020, WRK-020, RG-019
	onEngines(t, func(s *scene) {
		s.lease = 1500 * time.Millisecond
		s.openGuard()
		seed := rand.Uint64()
		s.Logf("seed %d", seed)
		u := &unrest{scene: s, rand: rand.New(rand.NewPCG(seed, 0)), nodes: []*node{s.startNode("node-a"), s.startNode("node-b"), s.startNode("node-c")}}
		u.client = s.client(u.nodes[0])
		for i := range u.crew {
			u.crew[i] = u.hire(i)
		}
		// A history of any length would take porcupine any time: it is checked by rounds.
		const usual = 5 * time.Second
		poll(s.T, "enough unrest", func() bool {
			for end := time.Now().Add(seconds(s.T, usual)); time.Now().Before(end) && !s.Failed(); {
				u.round(usual)
			}
			return s.Failed() || u.kills > 1 && u.pauses > 2 && u.lost() > 1
		})
		taken := s.checkWrites()
		s.Logf("%d kills, %d pauses, %d attempts of which %d lost their lease, %d messages and ends checked, %d writes taken, %d stale",
			u.kills, u.pauses, s.count("SELECT COUNT(*) FROM attempt"), u.lost(), u.checked, len(taken), u.stale)
	})
}

const keys = 3

// lost returns how many attempts have lost their lease.
func (u *unrest) lost() int64 {
	u.Helper()
	return u.count("SELECT COUNT(*) FROM attempt WHERE outcome IN (3, 5)")
}

// An unrest is a crew of workers among whom some are killed or paused all the time.
type unrest struct {
	*scene
	rand   *rand.Rand
	nodes  []*node
	client *orbit.Client
	crew   [4]*member
	books  []*book // of everybody who ever worked in this round

	hired, kills, pauses, checked, stale int
}

// A member is a worker, perhaps paused.
type member struct {
	*workerProcess
	until time.Time // when it is to go on; zero if it is not paused
}

// hire starts a worker with a node of its own choice.
func (u *unrest) hire(i int) *member {
	u.Helper()
	u.hired++
	w := u.startWorker(fmt.Sprintf("worker-%d.%d", i, u.hired), u.nodes[u.rand.IntN(len(u.nodes))].url, tapping, capacity(3))
	u.books = append(u.books, w.book)
	return &member{workerProcess: w}
}

// round makes unrest for so long, lets everything come to its end, and checks what
// happened.
func (u *unrest) round(d time.Duration) {
	u.Helper()
	before := now()
	u.books = nil
	for _, m := range u.crew {
		u.books = append(u.books, m.book)
	}
	var ids []string
	const pace = 120 * time.Millisecond
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(pace) {
		ids = append(ids, u.submit(u.client, order{
			key:      fmt.Sprintf("key-%d", u.rand.IntN(keys)),
			other:    u.rand.IntN(2) == 0,
			attempts: 100,
			work:     work{MS: 1 + u.rand.IntN(250), Write: true, Late: u.rand.IntN(2) == 0},
		}))
		u.disturb(u.rand.IntN(len(u.crew)))
	}
	for _, m := range u.crew {
		m.awake(u.T, time.Now().Add(time.Hour))
	}
	for _, id := range ids {
		u.awaitState(u.client, id, orbit.StateSucceeded)
	}
	h := u.history(before)
	h.check(u.T)
	u.checked += h.size()
	u.checkVerdicts(before)
}

// disturb kills or pauses a member now and then, and wakes those whose time has come.
func (u *unrest) disturb(i int) {
	u.Helper()
	for _, m := range u.crew {
		m.awake(u.T, time.Now())
	}
	m := u.crew[i]
	switch {
	case !m.until.IsZero() || u.rand.IntN(2) == 0:
	case u.pauses > 2*u.kills: // by turns, so that no seed is without one of them
		m.kill(u.T)
		u.kills++
		u.crew[i] = u.hire(i)
	default:
		m.pause(u.T)
		m.until = time.Now().Add(time.Duration(u.rand.Int64N(int64(4 * u.lease))))
		u.pauses++
	}
}

// awake lets a paused member go on if its time has come.
func (m *member) awake(t *testing.T, by time.Time) {
	t.Helper()
	if !m.until.IsZero() && !by.Before(m.until) {
		m.resume(t)
		m.until = time.Time{}
	}
}

// checkVerdicts holds what the resource answered to what it may answer.
func (u *unrest) checkVerdicts(since time.Duration) {
	u.Helper()
	for _, e := range inOrder(u.books...) {
		if e.What != evWrite || e.At < since {
			continue
		}
		switch e.Text {
		case "Applied", "Replayed":
		case "stale":
			u.stale++
		default:
			u.Errorf("a write under token %d of %s was answered %q", e.Token, e.Key, e.Text)
		}
	}
}

//go:build linux

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// Issue C, "done when": tasks of every kind under load, while workers, nodes and the
// database are killed, paused and restarted at random. At the end every task is in a state
// that its kind allows, nothing that must not be repeated ran twice, the guarded resource
// was never written to under an old token, and orbit-admin verify finds nothing, as it did
// not on the way.
//
// On the servers of its own the database is killed too; SQLite's lives in the nodes.
func TestSoak(t *testing.T) { // LIC-020, TOK-004, TOK-011, WRK-021, IDEM-013
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			if engine == dbtest.SQLite {
				soak(newScene(t, dbtest.Open(t, engine, migrations.Server)), nil)
				return
			}
			d := startDatabase(t, engine, false)
			soak(newScene(t, d.open()), d)
		})
	}
}

// progressEvery is how often a soak tells how far it is and verifies what is stored.
const progressEvery = 30 * time.Second

func soak(s *scene, d *database) {
	s.lease = 2 * time.Second
	s.openGuard()
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	m := newMischief(s, d, rand.New(rand.NewPCG(seed, 0)))
	l := startTraffic(s, m.balancer.url, seed)
	begin := time.Now()
	end, told := begin.Add(seconds(s.T, 12*time.Second)), begin
	for time.Now().Before(end) && !s.Failed() || !m.complete() {
		m.next()
		if time.Since(told) >= progressEvery {
			told = time.Now()
			s.Logf("%v: %v; %v; verify took %v", time.Since(begin).Round(time.Second), l.figures(), m, s.verifyNow())
		}
	}
	m.rest()
	l.end()
	s.drainedAfter(l)
	took := s.verifyNow()
	l.check(m.takeRuns())
	taken := s.checkWrites()
	s.Logf("soaked for %v: %v; %v; %d attempts, %d writes taken; verify took %v", time.Since(begin).Round(time.Second), l.figures(), m,
		s.count("SELECT COUNT(*) FROM attempt"), len(taken), took)
}

// drainedAfter waits until every task has ended and none waits for a person.
func (s *scene) drainedAfter(l *traffic) {
	s.Helper()
	defer l.close()
	last, since := int64(-1), time.Now()
	for left := s.count("SELECT COUNT(*) FROM task WHERE state < 5"); left > 0; left = s.count("SELECT COUNT(*) FROM task WHERE state < 5") {
		if left != last {
			last, since = left, time.Now()
		}
		if time.Since(since) > 2*time.Minute {
			s.Fatalf("%d tasks do not come to an end", left)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// verifyNow holds the live database to its invariants, and returns how long that took.
func (s *scene) verifyNow() time.Duration {
	s.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	found, err := server.Verify(ctx, s.db.DB)
	if err != nil || len(found) > 0 {
		s.Errorf("verify: %v %q", err, found)
	}
	return time.Since(begin).Round(time.Millisecond)
}

// tally is how often something happened, by name, for people.
type tally map[string]int

func (t tally) String() (text string) {
	for i, name := range mischiefs {
		if n := t[name]; n > 0 {
			text += fmt.Sprintf("%s%d × %s", []string{"", ", "}[min(i, 1)], n, name)
		}
	}
	return text
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/handoff"
	"github.com/orbitkit/orbit/internal/dbtest"
)

// TestMain is what the processes run that a test starts: this program's own main.
func TestMain(m *testing.M) {
	if os.Getenv(processVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// HAND-097, HAND-010, HAND-013: the demonstration runs to the output that README.md prints, again and again.
func TestTheDemonstrationRunsToItsExactOutput(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)\n## handoff-mysql\n[^#]*?```text\n(.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatal("README.md has no output of handoff-mysql")
	}
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			address := dbtest.Open(t, engine).Address
			for range 2 {
				var out bytes.Buffer
				if err := demonstrate(t.Context(), address, &out); err != nil || out.String() != string(m[1]) {
					t.Fatalf("%v\n%s\nREADME.md has\n%s", err, &out, m[1])
				}
			}
		})
	}
}

// Without a database in its environment the demonstration makes one, and removes it.
func TestTheDemonstrationNeedsNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out bytes.Buffer
	if err := run(t.Context(), "", nil, &out); err != nil || strings.Count(out.String(), "\n") != 6 {
		t.Errorf("%v\n%s", err, &out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// takers are processes through which a contest runs: each Take goes to one of its own.
type takers struct {
	handoff.Store
	free chan *process
}

func (s takers) Take(_ context.Context, key handoff.Key, to handoff.Agent) (handoff.Handle, error) {
	p := <-s.free
	defer func() { s.free <- p }()
	r, err := p.do(order{Act: "take", Ticket: handoff.Ticket{Key: key}, Agent: to})
	if err != nil || r.Refusal == "" {
		return handoff.Handle{Fence: r.Generation}, err
	}
	return handoff.Handle{}, fmt.Errorf("another process: %w", refusals[r.Refusal])
}

// HAND-097: the store passes ConcurrentTake with several processes.
func TestOneOfSeveralProcessesTakes(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			address := dbtest.Open(t, engine).Address
			s, err := open(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			const processes = 4
			race := takers{s, make(chan *process, processes)}
			for range processes {
				p, err := start(t.Context(), address)
				if err != nil {
					t.Fatal(err)
				}
				defer p.stop()
				race.free <- p
			}
			for round := range 8 {
				ticket := handoff.Ticket{Key: handoff.Key(fmt.Sprint("race/", round)), From: "from", To: "to", ReplyTo: "inbox", TTL: time.Hour}
				if _, err := s.Offer(t.Context(), ticket); err != nil {
					t.Fatal(err)
				}
				if n, err := handoff.ConcurrentTake(t.Context(), race, ticket.Key, slices.Repeat([]handoff.Agent{"to"}, processes), time.Minute); n != 1 || err != nil {
					t.Fatalf("round %d: %d winners, %v", round, n, err)
				}
			}
			checkAll(t, s)
		})
	}
}

// HAND-007: a process that is killed in the middle of Take has taken or it has not.
func TestAKilledProcessHasTakenOrNot(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			address := dbtest.Open(t, engine).Address
			s, err := open(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for round := range 6 {
				ticket := handoff.Ticket{Key: handoff.Key(fmt.Sprint("kill/", round)), From: "from", To: "to", ReplyTo: "inbox", TTL: time.Hour}
				if _, err := s.Offer(t.Context(), ticket); err != nil {
					t.Fatal(err)
				}
				p, err := start(t.Context(), address)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.do(order{Act: "take", Ticket: handoff.Ticket{Key: "unknown"}}); err != nil { // it is there
					t.Fatal(err)
				}
				if err := p.orders.Encode(order{Act: "take", Ticket: ticket, Agent: "to"}); err != nil {
					t.Fatal(err)
				}
				busy(rand.N(3 * time.Millisecond))
				if !p.kill() {
					t.Fatal("the process was not killed")
				}
				_, err = s.Take(t.Context(), ticket.Key, "to")
				cancelErr := s.Cancel(t.Context(), ticket.Key, "from")
				if err != nil && !errors.Is(err, handoff.ErrTaken) || !errors.Is(cancelErr, handoff.ErrTaken) {
					t.Fatalf("round %d: Take got %v, Cancel %v", round, err, cancelErr)
				}
			}
			checkAll(t, s)
		})
	}
}

// busy passes a moment that is too short to sleep: where in a Take the kill meets a process
// is chance.
func busy(d time.Duration) {
	for begun := time.Now(); time.Since(begun) < d; {
	}
}

func checkAll(t *testing.T, s *store) {
	t.Helper()
	tickets, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.now(t.Context(), s.db)
	if err != nil {
		t.Fatal(err)
	}
	if problems := handoff.Check(tickets, now); len(problems) > 0 || len(tickets) == 0 {
		t.Errorf("%d tickets, problems %v", len(tickets), problems)
	}
}

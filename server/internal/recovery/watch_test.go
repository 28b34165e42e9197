package recovery_test

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/task"
)

// issue 4: each attempt is told of once, by who ended it and with what ended it, and each task that a
// sweep moves; the log names what was lost by its ids and by nothing else.
func TestWhatASweepDoesIsToldOnce(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	w := dispatchtest.New(t, db.DB)
	ended, moved := map[settle.End]int{}, map[string]int{}
	settled := func(tally settle.Tally) {
		for end, n := range tally.Ended {
			ended[end] += n
		}
	}
	var log bytes.Buffer
	node, err := dispatch.New(db.DB, "node", dispatch.Config{Watch: dispatch.Watch{Settled: settled}})
	if err != nil {
		t.Fatal(err)
	}
	r := recovery.New(db.DB, recovery.Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Watch: recovery.Watch{
		Settled: settled, Moved: func(step string, n int) { moved[step] += n },
	}})
	s := scene{t, w, node, r, db}
	q := w.NewQueue("q")
	running, _ := s.lease(spec{Queue: q, Payload: `"secret"`}, true)
	late, _ := s.lease(spec{Queue: q, Handler: "late"}, true)
	idle, _ := s.lease(spec{Queue: q, Handler: "idle"}, false)
	s.expire(running.Attempt, false)
	s.expire(late.Attempt, true)
	s.expire(idle.Attempt, false)
	for range 2 { // there is nothing left for the second one
		s.sweepLeases()
	}
	want := map[settle.End]int{
		{Outcome: task.OutcomeUnknown, Reason: settle.ReasonLeaseExpired}:    1,
		{Outcome: task.OutcomeUnknown, Reason: settle.ReasonAttemptTimeout}:  1,
		{Outcome: task.OutcomeNotStarted, Reason: settle.ReasonLeaseExpired}: 1,
	}
	if !maps.Equal(ended, want) {
		t.Errorf("told of %v, want %v", ended, want)
	}
	if n := strings.Count(log.String(), "lease lost"); n != 3 || !strings.Contains(log.String(), running.Attempt.String()) || strings.Contains(log.String(), "secret") {
		t.Errorf("%d lines of lost leases, want 3 with ids alone:\n%s", n, log.String())
	}
	if again, err := node.Return(t.Context(), []dispatch.Ref{idle}); err != nil || again[0].Refusal != nil || !maps.Equal(ended, want) {
		t.Errorf("a hand-back that comes too late is told of: %v, %v, %v", ended, again, err)
	}

	w.Submit(spec{Queue: q, Handler: "expires", Timeout: -time.Second})
	delayed := w.Submit(spec{Queue: q, Handler: "delayed", Delay: time.Hour})
	w.Exec("UPDATE task SET available_at = ?, order_value = ? WHERE id = ?", w.Now()-1, w.Now()-1, delayed)
	for range 2 {
		if _, err := r.ExpireWaiting(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.PromoteDelayed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int{recovery.StepWaiting: 1, recovery.StepDelayed: 1}; !maps.Equal(moved, want) {
		t.Errorf("told of %v, want %v", moved, want)
	}
}

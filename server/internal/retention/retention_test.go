package retention_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/idempotency"
	"github.com/orbitkit/orbit/server/internal/retention"
	"github.com/orbitkit/orbit/server/internal/task"
)

// IDEM-015, IDEM-017, IDEM-025, STATE-016: both bounds and the state, each around its edge.
func TestNothingGoesEarly(t *testing.T) {
	const soon = time.Minute // more than a test takes
	tests := []struct {
		name string
		age  time.Duration
		x    old
		goes bool
	}{
		{"both bounds passed", 2 * day, old{ended: 2*day + soon, retained: []time.Duration{-soon}}, true},
		{"failed", 2 * day, old{state: task.Failed}, true},
		{"cancelled", 2 * day, old{state: task.Cancelled}, true},
		{"ended too lately", 2 * day, old{ended: 2*day - soon, retained: []time.Duration{-soon}}, false},
		{"still promised", 2 * day, old{ended: 3 * day, retained: []time.Duration{soon}}, false},
		{"neither bound passed", 2 * day, old{ended: day, retained: []time.Duration{soon}}, false},
		{"the later promise counts", 2 * day, old{retained: []time.Duration{-10 * day, soon}}, false},
		{"the later promise has passed too", 2 * day, old{retained: []time.Duration{-10 * day, -soon}}, true},
		{"its records come in any order", 2 * day, old{retained: []time.Duration{soon, -10 * day}}, false},
		{"an age beyond the promise", 200 * day, old{ended: 200*day - soon, retained: []time.Duration{-115 * day}}, false},
		{"an age beyond the promise has passed", 200 * day, old{ended: 200*day + soon, retained: []time.Duration{-115 * day}}, true},
		{"waiting", 2 * day, old{state: task.Waiting}, false},
		{"leased", 2 * day, old{state: task.Leased}, false},
		{"running", 2 * day, old{state: task.Running}, false},
		{"under review", 2 * day, old{state: task.NeedsReview, retained: []time.Duration{-500 * day}}, false},
		{"under review, and stamped", 2 * day, old{state: task.NeedsReview, reviews: 1, evidence: 1}, false},
	}
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		for _, tt := range tests {
			id := s.make(tt.x)
			before := s.counts(id)
			report := s.sweep(tt.age)
			if s.exists(id) == tt.goes || (report.Counts.Tasks == 1) != tt.goes {
				t.Errorf("%s: exists %v after a sweep of %v", tt.name, s.exists(id), report.Counts)
			}
			if after := s.counts(id); !tt.goes && after != before {
				t.Errorf("%s: %v are left of %v", tt.name, after, before)
			}
			if !tt.goes { // it is out of the way of the next one
				s.w.Exec("UPDATE idempotency SET retain_until = retain_until + ? WHERE task_id = ?", (1000 * day).Microseconds(), id)
			}
		}
	}, migrations.Server)
}

// IDEM-017, STATE-016: what a walk has found is judged again under lock, by every bound.
func TestCandidatesAreJudgedAgainUnderLock(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		r := s.retention(db.DB, 2*day, nil)
		goes := s.make(old{})
		stay := []sqldb.ID{
			s.make(old{ended: day}),
			s.make(old{retained: []time.Duration{-10 * day, time.Hour}}),
			s.make(old{state: task.NeedsReview}),
			s.make(old{state: task.Running}),
		}
		got, err := r.PurgeTasks(t.Context(), append(stay, goes)...)
		if err != nil || got.Tasks != 1 || s.exists(goes) {
			t.Errorf("PurgeTasks = %v, %v; want one task", got, err)
		}
		for i, id := range stay {
			if s.counts(id).Records == 0 || !s.exists(id) {
				t.Errorf("task %d is gone", i)
			}
		}
		loose := s.record(sqldb.ID{}, idempotency.UpdateQueue, -10*day)
		got, err = r.PurgeLoose(t.Context(), loose,
			s.record(sqldb.ID{}, idempotency.UpdateQueue, time.Hour), s.record(stay[0], idempotency.Cancel, -10*day))
		if err != nil || got != (retention.Counts{Records: 1}) || s.w.Int("SELECT COUNT(*) FROM idempotency WHERE digest = ?", loose[:]) != 0 {
			t.Errorf("PurgeLoose = %v, %v; want one record", got, err)
		}
	}, migrations.Server)
}

// IDEM-025, KEY-016: a task goes with all that is its own, and with nothing else.
func TestEverythingOfATaskGoesTogether(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		rich := old{attempts: 3, result: 1000, evidence: 2, reviews: 1, key: "k", retained: []time.Duration{-10 * day, -9 * day, -8 * day}}
		stays := rich
		stays.ended, stays.key = day, "l"
		other := s.make(stays)
		s.w.Exec("UPDATE queue SET max_backlog = 5")
		before := s.tables()
		id := s.make(rich)
		want := s.counts(id)
		if (want != retention.Counts{Tasks: 1, Attempts: 3, Evidence: 2, Reviews: 1, Events: 2, Records: 3}) {
			t.Fatalf("made %v", want)
		}
		report := s.sweep(2 * day)
		if report.Counts != want {
			t.Errorf("report = %v, want %v", report.Counts, want)
		}
		if left := s.counts(id); left.Rows() != 0 {
			t.Errorf("left behind: %v", left)
		}
		if left := s.counts(other); left != want {
			t.Errorf("of its neighbour %v are left, want %v", left, want)
		}
		before["audit"]++
		before["resource"]++ // of the key, for good
		if after := s.tables(); !maps.Equal(after, before) {
			t.Errorf("tables = %v, want %v", after, before)
		}
		last, ok, err := retention.Last(t.Context(), db.DB)
		if err != nil || !ok || last.Actor != "node test" || !strings.HasPrefix(last.Note, want.String()+"; ended until ") {
			t.Errorf("audit = %+v, %v, %v", last, ok, err)
		}
		if report.Oldest < 8*day-time.Minute || report.Oldest > 8*day+time.Hour {
			t.Errorf("oldest = %v, want 8 days: until then it was promised", report.Oldest)
		}
	}, migrations.Server)
}

// IDEM-025: a record of a command on a queue goes by its own deadline, and never before
// the age.
func TestRecordsWithoutATaskGoByThemselves(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		var none sqldb.ID
		s.record(none, idempotency.UpdateQueue, -time.Minute)
		s.record(none, idempotency.CreateQueue, -20*day)
		s.record(sqldb.NewID(), idempotency.Cancel, -time.Minute) // of a task that somebody deleted
		s.record(none, idempotency.UpdateQueue, time.Minute)
		if got := s.sweep(100 * day).Counts; got != (retention.Counts{Records: 1}) {
			t.Errorf("swept %v with an age of 100 days, want the record made 110 days ago", got)
		}
		if got := s.sweep(2 * day).Counts; got != (retention.Counts{Records: 2}) {
			t.Errorf("swept %v, want 2 records", got)
		}
		if n := s.w.Int("SELECT COUNT(*) FROM idempotency"); n != 1 {
			t.Errorf("%d records are left, want 1", n)
		}
		if n := s.w.Int("SELECT COUNT(*) FROM audit"); n != 2 {
			t.Errorf("%d audit lines for 2 runs that deleted something", n)
		}
	}, migrations.Server)
}

// IDEM-025
func TestPreviewChangesNothingAndForetellsTheSweep(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		for i := range 230 { // more than a page
			x := old{attempts: i % 3, reviews: i % 2, retained: []time.Duration{-10 * day, -10 * day, -9 * day}}
			if i%5 == 0 {
				x.state = task.NeedsReview
			}
			s.make(x)
		}
		s.record(sqldb.ID{}, idempotency.UpdateQueue, -10*day)
		before := s.tables()
		preview, err := s.retention(db.DB, 2*day, nil).Preview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if after := s.tables(); !maps.Equal(after, before) {
			t.Errorf("a preview changed %v to %v", before, after)
		}
		if report := s.sweep(2 * day); report.Counts != preview.Counts || preview.Counts.Tasks != 184 || preview.Counts.Records != 3*184+1 {
			t.Errorf("preview %v, sweep %v", preview.Counts, report.Counts)
		}
		if n := s.w.Int("SELECT COUNT(*) FROM audit"); n != 1 {
			t.Errorf("%d audit lines for one run", n)
		}
		if got := s.sweep(2 * day); got.Counts.Rows() != 0 || got.Oldest != 0 {
			t.Errorf("second sweep = %+v, want nothing", got)
		}
		if n := s.w.Int("SELECT COUNT(*) FROM audit"); n != 1 {
			t.Error("a run that deleted nothing was audited")
		}
	}, migrations.Server)
}

// IDEM-025: no transaction is larger than the bound, unless a single task is.
func TestTransactionsAreBounded(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		for i := range 40 {
			s.make(old{attempts: i % 4})
		}
		s.make(old{attempts: 30})               // 34 rows
		s.make(old{attempts: 2, result: 60000}) // 120 kB
		s.make(old{attempts: 2, result: 60000})
		for range 7 {
			s.record(sqldb.ID{}, idempotency.UpdateQueue, -10*day)
		}
		var all retention.Counts
		transactions := 0
		r := s.retention(db.DB, 2*day, func(c *retention.Config) {
			c.Removed = func(n retention.Counts) {
				transactions++
				all.Tasks += n.Tasks
				all.Records += n.Records
				if n.Tasks > 5 || n.Tasks == 0 && n.Records > 3 || n.Rows() > 25 && n.Tasks != 1 {
					t.Errorf("one transaction deleted %v", n)
				}
			}
		})
		r.SetBound(5, 25, 150_000, 3)
		report, err := r.Sweep(t.Context())
		if err != nil || all.Tasks != 43 || report.Counts.Tasks != 43 || all.Records != 50 || transactions < 12 {
			t.Errorf("Sweep = %v, %v in %d transactions; removed %v", report.Counts, err, transactions, all)
		}
	}, migrations.Server)
}

// Any number of nodes sweeps at one time: each task goes once, and none is left.
func TestConcurrentSweepersShareTheWork(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		const tasks = 120
		for range tasks {
			s.make(old{attempts: 2, retained: []time.Duration{-10 * day, -9 * day}})
		}
		var sweeping sync.WaitGroup
		var mu sync.Mutex
		var sum retention.Counts
		for i := range 4 {
			r := s.retention(db.Reopen(t).DB, 2*day, func(c *retention.Config) { c.Actor = fmt.Sprintf("node %d", i) })
			r.SetBound(7, 1000, 1<<20, 10)
			sweeping.Go(func() {
				report, err := r.Sweep(t.Context())
				if err != nil {
					t.Errorf("Sweep = %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				sum.Tasks += report.Counts.Tasks
				sum.Records += report.Counts.Records
			})
		}
		sweeping.Wait()
		rest := s.sweep(2 * day).Counts // what two had looked at and left to each other
		if sum.Tasks+rest.Tasks != tasks || sum.Records+rest.Records != 2*tasks || s.w.Int("SELECT COUNT(*) FROM task") != 0 {
			t.Errorf("swept %v and then %v, want %d tasks", sum, rest, tasks)
		}
	}, migrations.Server)
}

// LIC-014: a sweep waits for nobody.
func TestWhatOthersHoldIsLeftToTheNextRun(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		if db.Engine == dbtest.SQLite {
			t.Skip("SQLite has one writer: nobody holds a row while another one writes")
		}
		s := newScene(t, db)
		for _, held := range []string{
			"SELECT id FROM task WHERE id = ? FOR UPDATE",
			"SELECT digest FROM idempotency WHERE task_id = ? ORDER BY digest LIMIT 1 FOR UPDATE",
		} {
			id := s.make(old{retained: []time.Duration{-10 * day, -9 * day}})
			free := s.make(old{})
			tx, err := db.Write().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var locked []byte
			if err := tx.QueryRowContext(t.Context(), held, id).Scan(&locked); err != nil {
				t.Fatal(err)
			}
			before := s.counts(id)
			s.sweep(2 * day)
			if after := s.counts(id); after != before || s.exists(free) {
				t.Errorf("%s: %v are left of %v, its neighbour exists: %v", held, after, before, s.exists(free))
			}
			tx.Rollback()
			if s.sweep(2 * day); s.exists(id) {
				t.Errorf("%s: the task stays after its lock has gone", held)
			}
		}
	}, migrations.Server)
}

// A cancel puts its record in first and then waits for the task: neither may wait for the
// other for ever, and the cancel finds the task gone.
func TestASweepDoesNotWaitForACommandOnTheTask(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		if db.Engine == dbtest.SQLite {
			t.Skip("SQLite has one writer")
		}
		s := newScene(t, db)
		id := s.make(old{})
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		digest := idempotency.NewIdentity(s.w.Namespace, idempotency.Cancel, id, "late")
		_, err = tx.ExecContext(t.Context(), `INSERT INTO idempotency (digest, namespace_id, operation, task_id, idempotency_key, algorithm, content_digest, status, receipt, payload_at, created_at, retain_until)
VALUES (?, ?, 2, ?, ?, ?, ?, 0, ?, 0, ?, ?)`, digest[:], s.w.Namespace, id, []byte("late"), []byte("a"), digest[:], []byte{}, 1, s.w.Now()+int64(90*day/time.Microsecond))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.sweep(2 * day).Counts; got.Tasks != 1 || got.Records != 1 {
			t.Errorf("swept %v, want the task and its one record", got)
		}
	}, migrations.Server)
}

func TestRunSweepsUntilItIsStopped(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	s := newScene(t, db)
	first := s.make(old{})
	ran := make(chan retention.Report)
	r := s.retention(db.DB, 2*day, func(c *retention.Config) {
		c.Interval = time.Millisecond
		c.Ran = func(report retention.Report) { ran <- report }
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	if report := <-ran; report.Counts.Tasks != 1 || s.exists(first) {
		t.Errorf("first run = %v", report.Counts)
	}
	second := s.make(old{})
	for s.exists(second) {
		<-ran
	}
	stop()
	for {
		select {
		case <-ran:
			continue
		case err := <-ended:
			if err != nil {
				t.Errorf("Run = %v", err)
			}
			return
		}
	}
}

func TestAgesBelowTheFloorAreRefused(t *testing.T) {
	for _, cfg := range []retention.Config{
		{Actor: "a"}, {Actor: "a", Age: -time.Hour}, {Actor: "a", Age: retention.MinAge - 1}, {Age: retention.MinAge},
		{Age: retention.MinAge, Actor: strings.Repeat("x", 129)},
	} {
		if _, err := retention.New(nil, cfg); err == nil {
			t.Errorf("New(%+v) passed", cfg)
		}
	}
	if _, err := retention.New(nil, retention.Config{Age: retention.MinAge, Actor: strings.Repeat("x", 128)}); err != nil {
		t.Error(err)
	}
}

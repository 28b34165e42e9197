package depth

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
	"github.com/orbitkit/orbit/server/internal/task"
)

func TestAReadingTellsWhatWaitsAndForHowLong(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		busy := w.NewQueue("busy")
		w.NewQueue("idle")
		for range 3 {
			w.Submit(dispatchtest.Task{Queue: busy})
		}
		other := dispatchtest.Task{Queue: busy, Handler: "other", Delay: -time.Minute}
		w.Submit(other)
		w.Submit(dispatchtest.Task{Queue: busy, Delay: time.Hour})

		r := New(db.DB, Config{})
		if _, known := r.Last(); known {
			t.Error("a reader that has read nothing has a reading")
		}
		got, err := r.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%v", []string{"app default busy 5 0 0 0", "app default idle 0 0 0 0"})
		if lines := fmt.Sprintf("%v", shown(got.Queues)); lines != want || got.More || got.Delayed != 1 {
			t.Errorf("reading = %s, more %v, delayed %d; want %s, false, 1", lines, got.More, got.Delayed, want)
		}
		if age := got.Queues[0].OldestReady; age < time.Minute || age > 10*time.Minute {
			t.Errorf("oldest of busy is ready for %v, want a minute and a little", age)
		}
		if age := got.Queues[1].OldestReady; age != 0 {
			t.Errorf("oldest of idle is ready for %v, want nothing", age)
		}

		claim(t, w, other.Lane())
		if got, err = r.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if line := shown(got.Queues)[0]; line != "app default busy 4 1 0 0" {
			t.Errorf("after a claim: %s, want one leased", line)
		}
		if age := got.Queues[0].OldestReady; age > time.Minute {
			t.Errorf("the oldest was claimed, and the next is ready for %v", age)
		}
	}, migrations.Server)
}

func shown(queues []Queue) []string {
	var lines []string
	for _, q := range queues {
		line := []string{q.Application, q.Namespace, q.Name}
		for _, state := range States {
			line = append(line, fmt.Sprint(q.Tasks[state]))
		}
		lines = append(lines, strings.Join(line, " "))
	}
	return lines
}

func claim(t *testing.T, w *dispatchtest.World, lane dispatch.Lane) {
	t.Helper()
	d, err := dispatch.New(w.DB, "node", dispatch.Config{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Claim(t.Context(), []dispatch.Lane{lane}, []dispatch.Taker{w.Taker(1, lane)})
	if err != nil || len(got.Grants) != 1 {
		t.Fatalf("Claim = %d grants, %v", len(got.Grants), err)
	}
}

// However much there is, a count ends at the cap, a list at its bound, and old news are none.
func TestAReadingIsBounded(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	w := dispatchtest.New(t, db.DB)
	queue := w.NewQueue("deep")
	id := w.Submit(dispatchtest.Task{Queue: queue, Delay: time.Hour})
	columns := "namespace_id, queue_id, state, revision, handler, handler_version, payload_version, payload, business_key, available_at, " +
		"deadline_at, task_timeout_ms, credential_id, created_at, updated_at, lane, dispatch_state, dispatch_lane, order_value"
	w.Exec("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "+
		"INSERT INTO task (id, "+columns+") SELECT randomblob(16), "+columns+" FROM task, n WHERE id = ?", Cap+100, id)
	w.Exec("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO queue (id, namespace_id, name, created_at, updated_at) "+
		"SELECT CAST(x'ff' || randomblob(15) AS BLOB), ?, CAST(i AS BLOB), 0, 0 FROM n", MaxQueues, w.Namespace)
	r := New(db.DB, Config{Interval: time.Hour})
	got, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Queues) != MaxQueues || !got.More || got.Delayed != Cap || got.Queues[0].Tasks[task.Waiting] != Cap {
		t.Errorf("%d queues, more %v, %d delayed, %d waiting; want %d, true, %d, %[6]d",
			len(got.Queues), got.More, got.Delayed, got.Queues[0].Tasks[task.Waiting], MaxQueues, Cap)
	}
	r.keep(got)
	if _, known := r.Last(); !known {
		t.Error("the last reading is not told")
	}
	got.At = got.At.Add(-9 * time.Hour)
	r.keep(got)
	if _, known := r.Last(); known {
		t.Error("a reading of nine intervals ago is told as the last one")
	}
	w.Exec("DELETE FROM task WHERE id <> ?", id) // they have no events: the world would complain
}

func TestReadingsUseTheirIndexes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		by := db.Dialect().ByIndex
		plancheck.Run(t, db, []plancheck.Query{
			{Name: "tasks of a state", Table: "task", Index: "task_state", SQL: fmt.Sprintf(countState, by("task_state")), Args: []any{sqldb.NewID(), 1, Cap}},
			{Name: "next lane", Table: "task", Index: "task_claim", SQL: fmt.Sprintf(selectNextLane, by("task_claim")), Args: []any{int64(math.MinInt64)}},
			{Name: "delayed", Table: "task", Index: "task_claim", SQL: fmt.Sprintf(countDelayed, by("task_claim")), Args: []any{task.TimerLane, Cap}},
		})
	}, migrations.Server)
}

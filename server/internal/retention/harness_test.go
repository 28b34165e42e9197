package retention_test

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/idempotency"
	"github.com/orbitkit/orbit/server/internal/retention"
	"github.com/orbitkit/orbit/server/internal/task"
)

const day = 24 * time.Hour

// A scene is a world with one queue.
type scene struct {
	*testing.T
	db    *dbtest.DB
	w     *dispatchtest.World
	queue sqldb.ID
}

func newScene(t *testing.T, db *dbtest.DB) *scene {
	t.Helper()
	w := dispatchtest.New(t, db.DB)
	return &scene{T: t, db: db, w: w, queue: w.NewQueue("q")}
}

// retention returns a retention on db that logs nothing.
func (s *scene) retention(db *sqldb.DB, age time.Duration, more func(*retention.Config)) *retention.Retention {
	s.Helper()
	cfg := retention.Config{Age: age, Actor: "node test"}
	if more != nil {
		more(&cfg)
	}
	r, err := retention.New(db, cfg)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

func (s *scene) sweep(age time.Duration) retention.Report {
	s.Helper()
	report, err := s.retention(s.db.DB, age, nil).Sweep(s.Context())
	if err != nil {
		s.Fatalf("Sweep = %v", err)
	}
	return report
}

// An old is a task to make. Its zero value has ended 100 days ago and was promised to be
// kept until 10 days ago.
type old struct {
	state    task.State      // zero means SUCCEEDED
	ended    time.Duration   // ago; zero means 100 days
	retained []time.Duration // deadlines of its records, from now; nil means one, 10 days ago
	attempts int
	evidence int
	reviews  int
	result   int // bytes of each attempt's
	key      string
}

// make makes a task as it would be by then.
func (s *scene) make(x old) sqldb.ID {
	s.Helper()
	if x.state == 0 {
		x.state = task.Succeeded
	}
	if x.ended == 0 {
		x.ended = 100 * day
	}
	if x.retained == nil {
		x.retained = []time.Duration{-10 * day}
	}
	live := x.state == task.Leased || x.state == task.Running
	queue := s.queue
	if live {
		queue = s.w.NewQueue(sqldb.NewID().String()) // in which nothing else waits
	}
	id := s.w.Submit(dispatchtest.Task{Queue: queue, Key: x.key, MaxAttempts: max(x.attempts, 1)})
	switch {
	case live:
		s.claim(dispatchtest.Task{Queue: queue}.Lane(), x.state == task.Running)
	case x.state != task.Waiting:
		s.settle(id, x)
	}
	for i, at := range x.retained {
		op := idempotency.Submit
		if i > 0 {
			op = idempotency.Cancel
		}
		s.record(id, op, at)
	}
	for i := range x.evidence {
		s.w.Exec("INSERT INTO evidence (id, task_id, attempt_id, kind, body, created_at) VALUES (?, ?, ?, ?, ?, ?)",
			sqldb.NewID(), id, sqldb.NewID(), []byte("late_finish"), []byte("{}"), i)
	}
	for i := range x.reviews {
		s.w.Exec("INSERT INTO review (id, task_id, actor, decision, note, created_at) VALUES (?, ?, ?, 1, ?, ?)",
			sqldb.NewID(), id, []byte("somebody"), []byte("looked"), i)
	}
	return id
}

// settle takes a task out of line and gives it attempts that have ended.
func (s *scene) settle(id sqldb.ID, x old) {
	s.Helper()
	now := s.w.Now()
	var completed any
	if x.state.Terminal() {
		completed = now - x.ended.Microseconds()
	}
	s.w.Exec(`UPDATE task SET state = ?, revision = 2, completed_at = ?, dispatch_state = 0, dispatch_lane = NULL, expire_at = NULL,
attempt_count = ?, epoch = ?, started_count = ? WHERE id = ?`, x.state, completed, x.attempts, x.attempts, x.attempts, id)
	err := s.w.DB.Tx(s.Context(), func(tx *sqldb.Tx) error {
		w := tx.Writes()
		task.AddEvents(w, []task.Event{{Task: id, Revision: 2, Kind: "ended", At: now}})
		return w.Run(s.Context())
	})
	if err != nil {
		s.Fatal(err)
	}
	for i := range x.attempts {
		token := s.w.DB.Dialect().Uint64(0)
		if x.key != "" {
			s.w.SetKeyVersion(s.w.Namespace, x.key, uint64(2*i+2))
			token = s.w.DB.Dialect().Uint64(uint64(2*i + 1))
		}
		s.w.Exec(`INSERT INTO attempt (id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id, state,
lease_until, lease_ms, claimed_at, started_at, timeout_at, ended_at, outcome, result, concurrency_token) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 3, 1, 1, 1, 1, 1, 1, 1, ?, ?)`,
			sqldb.NewID(), id, i+1, i+1, s.w.Namespace, s.w.Application, s.queue, sqldb.NewID(), []byte("n"), make([]byte, x.result), token)
	}
}

// claim leases the only task of a lane.
func (s *scene) claim(lane dispatch.Lane, start bool) {
	s.Helper()
	node, err := dispatch.New(s.w.DB, "node", dispatch.Config{})
	if err != nil {
		s.Fatal(err)
	}
	taker := s.w.Taker(1, lane)
	c, err := node.Claim(s.Context(), []dispatch.Lane{lane}, []dispatch.Taker{taker})
	if err != nil || len(c.Grants) != 1 {
		s.Fatalf("Claim = %d grants, %v", len(c.Grants), err)
	}
	if !start {
		return
	}
	g := c.Grants[0]
	ref := dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: s.w.Namespace}
	if got, err := node.Start(s.Context(), []dispatch.Ref{ref}); err != nil || got[0].Refusal != nil {
		s.Fatalf("Start = %+v, %v", got, err)
	}
}

// record makes the record of a key; a zero task is none.
func (s *scene) record(id sqldb.ID, op idempotency.Operation, retained time.Duration) idempotency.Identity {
	s.Helper()
	key := sqldb.NewID().String()
	digest := idempotency.NewIdentity(s.w.Namespace, op, id, key)
	until := s.w.Now() + retained.Microseconds()
	s.w.Exec(`INSERT INTO idempotency (digest, namespace_id, operation, task_id, idempotency_key, algorithm, content_digest, status, receipt, payload_at, created_at, retain_until)
VALUES (?, ?, ?, ?, ?, ?, ?, 201, ?, 1, ?, ?)`, digest[:], s.w.Namespace, int(op), id, []byte(key), []byte("a"), digest[:], []byte("{}"), until, until)
	return digest
}

// counts returns how many rows belong to a task.
func (s *scene) counts(id sqldb.ID) retention.Counts {
	s.Helper()
	count := func(table string) int64 {
		return s.w.Int("SELECT COUNT(*) FROM "+table+" WHERE task_id = ?", id)
	}
	return retention.Counts{
		Tasks: s.w.Int("SELECT COUNT(*) FROM task WHERE id = ?", id), Attempts: count("attempt"), Evidence: count("evidence"),
		Reviews: count("review"), Events: count("task_event"), Records: count("idempotency"),
	}
}

func (s *scene) exists(id sqldb.ID) bool { return s.counts(id).Tasks == 1 }

// tables counts every row of the tables that a sweep could touch.
func (s *scene) tables() map[string]int64 {
	s.Helper()
	all := map[string]int64{}
	for _, table := range []string{"application", "application_quota", "namespace", "queue", "resource", "audit",
		"task", "attempt", "evidence", "review", "task_event", "idempotency"} {
		all[table] = s.w.Int("SELECT COUNT(*) FROM " + table)
	}
	return all
}

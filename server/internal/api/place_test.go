package api_test

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

func (n *node) accept(members ...string) string {
	n.t.Helper()
	key := sqldb.NewID().String()
	return n.submit(key, n.body(members...)).want(n.t, 201, "").taskOf(n.t).ID
}

// Law 2: where a new task is put, and who is woken for it.
func TestUnkeyedTasksAreReady(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		for i := range 2 {
			id := n.accept(`"priority":2`)
			got := n.row(id)
			lane := task.Lane(parseID(t, n.creds.QueueID), "file.convert", "v1", false)
			if got.dispatch != int(task.DispatchReady) || got.lane.Int64 != lane || got.own != lane {
				t.Errorf("task %d: %+v, want READY in lane %d", i, got, lane)
			}
			var available int64
			if err := n.db.Write().QueryRowContext(t.Context(), `SELECT available_at FROM task WHERE id = ?`, parseID(t, id)).Scan(&available); err != nil {
				t.Fatal(err)
			}
			if got.order != available-60_000_000 { // SUB-012
				t.Errorf("order value %d, want available_at %d less 60 s", got.order, available)
			}
			if woken := n.takeWoken(); !slices.Equal(woken, []int64{lane}) {
				t.Errorf("woken %v, want [%d]", woken, lane)
			}
		}
	})
}

// A task for later goes to the timer whether its key is busy or not; priority does not
// make it run early (SUB-012).
func TestDelayedTasksGoToTheTimer(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		at := sqldb.Time(n.now()).Add(time.Hour)
		n.hold("object/1")
		for _, key := range []string{"", "object/1"} {
			got := n.row(n.accept(`"available_at":"`+orbit.FormatTime(at)+`"`, `"priority":9`, `"concurrency_key":"`+key+`"`))
			if got.dispatch != int(task.DispatchDelayed) || got.lane != (sql.NullInt64{Valid: true}) || got.order != sqldb.Micros(at) {
				t.Errorf("key %q: %+v, want DELAYED in the timer at %d", key, got, sqldb.Micros(at))
			}
			if woken := n.takeWoken(); !slices.Equal(woken, []int64{task.TimerLane}) {
				t.Errorf("woken %v, want the timer", woken)
			}
		}
	})
}

// hold makes the row of a key and gives it a holder.
func (n *node) hold(key string) {
	n.t.Helper()
	n.resource(key, 1)
	n.exec(`UPDATE resource SET holder_task_id = ?, holder_epoch = 1 WHERE digest = ?`, sqldb.NewID(), n.digest(key))
}

func (n *node) release(key string) {
	n.t.Helper()
	n.exec(`UPDATE resource SET holder_task_id = NULL, holder_epoch = NULL WHERE digest = ?`, n.digest(key))
}

func (n *node) digest(key string) []byte {
	digest := task.KeyDigest(parseID(n.t, n.creds.NamespaceID), key)
	return digest[:]
}

func (n *node) resource(key string, version uint64) {
	n.t.Helper()
	var bound any = version
	if n.db.Engine == "sqlite" {
		bound = binary.BigEndian.AppendUint64(nil, version)
	}
	n.exec(`DELETE FROM resource WHERE digest = ?`, n.digest(key))
	n.exec(`INSERT INTO resource (digest, kind, namespace_id, resource_key, version, created_at) VALUES (?,2,?,?,?,1)`,
		n.digest(key), parseID(n.t, n.creds.NamespaceID), []byte(key), bound)
}

// SUB-060, law 2: a task whose key is busy is parked; one with a READY task of its key and
// lane before it is parked; one that beats that task is READY too; another lane or key is
// not concerned.
func TestKeyedTasksAreParkedBehindTheirKey(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		const (
			ready  = int(task.DispatchReady)
			parked = int(task.DispatchKeyBlocked)
		)
		n.hold("busy")
		n.resource("spent", math.MaxUint64-1)
		n.resource("last", math.MaxUint64-2)
		steps := []struct {
			name    string
			members []string
			want    int
		}{
			{"busy key", []string{`"concurrency_key":"busy"`}, parked},
			{"busy key, high priority", []string{`"concurrency_key":"busy"`, `"priority":9`}, parked},
			{"exhausted key", []string{`"concurrency_key":"spent"`}, parked},
			{"one claim left", []string{`"concurrency_key":"last"`}, ready},
			{"free key", []string{`"concurrency_key":"free"`}, ready},
			{"behind a READY task", []string{`"concurrency_key":"free"`}, parked},
			{"before the READY task", []string{`"concurrency_key":"free"`, `"priority":1`}, ready},
			{"behind the new first", []string{`"concurrency_key":"free"`, `"priority":1`}, parked},
			{"other key", []string{`"concurrency_key":"other"`}, ready},
		}
		for _, s := range steps {
			id := n.accept(s.members...)
			got := n.row(id)
			if got.dispatch != s.want || got.lane.Valid != (s.want == ready) {
				t.Errorf("%s: dispatch %d in %v, want %d", s.name, got.dispatch, got.lane, s.want)
			}
			if got.own != task.Lane(parseID(t, n.creds.QueueID), "file.convert", "v1", true) {
				t.Errorf("%s: lane %d is not the keyed one", s.name, got.own)
			}
			if woken := n.takeWoken(); len(woken) != s.want%3 { // READY wakes its lane, parked nobody
				t.Errorf("%s: woken %v", s.name, woken)
			}
			if n.count(`task WHERE id = ? AND concurrency_key_digest = ?`, parseID(t, id), n.digest(keyOf(s.members))) != 1 {
				t.Errorf("%s: task has not the digest of its key", s.name)
			}
			if task := n.do(ask{path: "/v1/tasks/" + id}).want(t, 200, ""); !containsState(task.data) {
				t.Errorf("%s: %s, want WAITING with no attempt", s.name, task.data)
			}
		}
		n.release("busy")
		if got := n.row(n.accept(`"concurrency_key":"busy"`)); got.dispatch != ready {
			t.Errorf("released key: dispatch %d, want READY", got.dispatch)
		}
		second := n.submit("second-handler", bodyFor(n.creds.QueueID, `"concurrency_key":"free"`)).want(t, 201, "").taskOf(t)
		if got := n.row(second.ID); got.dispatch != parked {
			t.Errorf("same lane again: dispatch %d, want parked", got.dispatch)
		}
		otherQueue := n.queue("second")
		elsewhere := n.submit("other-queue", bodyFor(otherQueue, `"concurrency_key":"free"`)).want(t, 201, "").taskOf(t)
		if got := n.row(elsewhere.ID); got.dispatch != ready {
			t.Errorf("another lane: dispatch %d, want READY", got.dispatch)
		}
	})
}

func keyOf(members []string) string {
	var key string
	for _, m := range members {
		fmt.Sscanf(m, `"concurrency_key":%q`, &key)
	}
	return key
}

func containsState(data []byte) bool {
	var t orbit.Task
	return t.UnmarshalJSON(data) == nil && t.State == orbit.StateWaiting && t.AttemptCount == 0 && t.Revision == 1
}

// TEST-007, KEY-014 (the half of acceptance): the same key in another namespace is another
// resource.
func TestKeysOfNamespacesAreApart(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		other := n.namespace("other")
		n.hold("object/1")
		if got := n.row(n.accept(`"concurrency_key":"object/1"`)); got.dispatch != int(task.DispatchKeyBlocked) {
			t.Errorf("dispatch %d, want parked", got.dispatch)
		}
		elsewhere := n.do(ask{method: "POST", path: "/v1/tasks", key: "k", token: other.Token,
			body: bodyFor(other.QueueID, `"concurrency_key":"object/1"`)}).want(t, 201, "").taskOf(t)
		if got := n.row(elsewhere.ID); got.dispatch != int(task.DispatchReady) {
			t.Errorf("dispatch %d, want READY", got.dispatch)
		}
		if got := n.count("resource WHERE resource_key = ?", []byte("object/1")); got != 2 {
			t.Errorf("%d resource rows, want 2", got)
		}
	})
}

// Within one batch the order of the items decides, as if they came one by one.
func TestKeyedItemsOfOneBatch(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		n.hold("busy")
		n.batch(nil,
			item("1", n.body(`"concurrency_key":"a"`)),
			item("2", n.body(`"concurrency_key":"busy"`)),
			item("3", n.body(`"concurrency_key":"a"`)),
			item("4", n.body(`"concurrency_key":"a"`, `"priority":3`)),
			item("5", n.body(`"concurrency_key":"b"`)),
			item("6", n.body()))
		want := []int{1, 3, 3, 1, 1, 1}
		for i, w := range want {
			var got int
			err := n.db.Write().QueryRowContext(t.Context(),
				`SELECT dispatch_state FROM task WHERE id = (SELECT task_id FROM idempotency WHERE idempotency_key = ?)`,
				[]byte(fmt.Sprint(i+1))).Scan(&got)
			if err != nil || got != w {
				t.Errorf("item %d: dispatch %d (%v), want %d", i+1, got, err, w)
			}
		}
	})
}

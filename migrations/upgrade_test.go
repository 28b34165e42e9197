package migrations_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// Codes of task.state.
const (
	waiting     = 1
	leased      = 2
	running     = 3
	needsReview = 4
	succeeded   = 5
	failed      = 6
	cancelled   = 7
)

var (
	application1, application2 = id(0xa1), id(0xa2)
	namespace1, namespace2     = id(0xb1), id(0xb2)
	otherNamespace             = id(0xb3) // of application1
	queue1, queue2             = id(0xc1), id(0xc2)
	credential1                = id(0xd1)
)

func id(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }

// A taskRow is a task as version 2 knows it.
type taskRow struct {
	id            []byte
	namespace     []byte // namespace1 if nil
	state         int
	key           string // business key
	startDeadline any
}

func insertTask(t *testing.T, db *dbtest.DB, row taskRow) {
	t.Helper()
	if row.namespace == nil {
		row.namespace = namespace1
	}
	execute(t, db, `
INSERT INTO task (id, namespace_id, queue_id, state, revision, handler, handler_version, payload_version, payload,
  business_key, available_at, start_deadline_at, deadline_at, task_timeout_ms, credential_id, created_at, updated_at)
VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, 1000, ?, 9000, 60000, ?, 500, 500)`,
		row.id, row.namespace, queue1, row.state, []byte("send"), []byte("v1"), []byte("1"), []byte(`{"amount":1.0}`),
		[]byte(row.key), row.startDeadline, credential1)
}

// insertAttempt adds an attempt as version 3 knows it.
func insertAttempt(t *testing.T, db *dbtest.DB, attempt, task []byte, number int, started any) {
	t.Helper()
	execute(t, db, `
INSERT INTO attempt (id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id, state,
  lease_until, lease_ms, claimed_at, started_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 3, 2000, 30000, 1000, ?)`,
		attempt, task, number, number, namespace1, application1, queue1, id(0xe1), []byte("node-a"), started)
	execute(t, db, "UPDATE task SET attempt_count = ?, epoch = ? WHERE id = ?", number, number, task)
}

// insertTenants adds two applications with their namespaces and queues.
func insertTenants(t *testing.T, db *dbtest.DB) {
	t.Helper()
	for i, application := range [][]byte{application1, application2} {
		execute(t, db, "INSERT INTO application (id, name, state, created_at, updated_at) VALUES (?, ?, 1, 0, 0)", application, []byte{'a', byte('1' + i)})
	}
	for _, n := range [][2][]byte{{namespace1, application1}, {namespace2, application2}, {otherNamespace, application1}} {
		execute(t, db, "INSERT INTO namespace (id, application_id, name, environment, state, created_at, updated_at) VALUES (?, ?, ?, ?, 1, 0, 0)",
			n[0], n[1], n[0][:1], []byte("test"))
	}
	for _, q := range [][2][]byte{{queue1, namespace1}, {queue2, namespace2}} {
		execute(t, db, "INSERT INTO queue (id, namespace_id, name, created_at, updated_at) VALUES (?, ?, ?, 0, 0)", q[0], q[1], []byte("initial"))
	}
}

// TEST-022, TEST-028, TEST-032, MIG-009, AMB-005, MIG-012 (ordinary tasks and special UTF-8 keys; schedules
// come with their own issue).
func TestUpgradeFromVersion7KeepsDataAndIndexes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 7)
		if n := foreignKeys(t, db); n != 0 {
			t.Errorf("version 7 has %d foreign keys, want 0", n)
		}
		insertTenants(t, db)
		insertTask(t, db, taskRow{id: id(1), state: waiting, key: "订单 𝒦 e\u0301"})
		insertTask(t, db, taskRow{id: id(2), state: running, key: "k "})
		insertTask(t, db, taskRow{id: id(3), state: succeeded})
		insertAttempt(t, db, id(0x11), id(2), 1, 1500)
		execute(t, db, "INSERT INTO task_event (task_id, revision, kind, created_at) VALUES (?, 1, ?, 500)", id(1), []byte("accepted"))
		execute(t, db, "INSERT INTO review (id, task_id, actor, decision, note, created_at) VALUES (?, ?, ?, 1, ?, 500)", id(4), id(3), []byte("ops"), []byte("ok"))
		columnsBefore, indexesBefore, keysBefore := columns(t, db), indexes(t, db), primaryKeys(t, db)
		contentsBefore := contents(t, db, columnsBefore)

		migrate(t, db, latest(t, db, migrations.Server))

		if n := foreignKeys(t, db); n != 0 {
			t.Errorf("newest version has %d foreign keys, want 0", n)
		}
		// What version 7 had must be there unchanged; new columns and indexes may come.
		equal(t, "column", only(columns(t, db), columnsBefore), columnsBefore)
		equal(t, "index", only(indexes(t, db), indexesBefore), indexesBefore)
		equal(t, "primary key of", only(primaryKeys(t, db), keysBefore), keysBefore)
		equal(t, "rows of", contents(t, db, columnsBefore), contentsBefore)
	})
}

func only[V any](all, like map[string]V) map[string]V {
	found := maps.Clone(all)
	maps.DeleteFunc(found, func(key string, _ V) bool { _, ok := like[key]; return !ok })
	return found
}

// TEST-023, TEST-028, MIG-010
func TestUpgradeFromVersion9FillsTheApplicationQuota(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 9)
		insertTenants(t, db)
		for i, state := range []int{waiting, leased, running, needsReview, succeeded, failed, cancelled} {
			insertTask(t, db, taskRow{id: id(byte(i + 1)), state: state})
		}
		insertTask(t, db, taskRow{id: id(0x21), state: waiting, namespace: otherNamespace})
		before := number(t, db, "SELECT "+db.Dialect().Clock)

		migrate(t, db, 10)

		const quotas = "SELECT application_id, max_unfinished, unfinished, max_active_attempts FROM application_quota ORDER BY application_id"
		want := []string{string(application1) + "|0|5|0", string(application2) + "|0|0|0"}
		if got := query(t, db, quotas); !slices.Equal(got, want) {
			t.Errorf("quotas = %q, want %q", got, want)
		}
		if n := number(t, db, "SELECT COUNT(*) FROM application_quota WHERE updated_at BETWEEN ? AND ?", before, number(t, db, "SELECT "+db.Dialect().Clock)); n != 2 {
			t.Errorf("%d quotas have the time of the upgrade, want 2", n)
		}
		migrate(t, db, latest(t, db, migrations.Server))
		if got := query(t, db, quotas); !slices.Equal(got, want) {
			t.Errorf("quotas at the newest version = %q, want %q", got, want)
		}
	})
}

// TEST-024, TEST-028, TEST-032, MIG-011, REF-RETRY-001: old tasks keep the rules under which they were accepted, one attempt
// and a person for what is uncertain, and the attempts that they used are counted.
func TestUpgradeFromVersion4MakesOldTasksSafeToRetry(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 4)
		insertTask(t, db, taskRow{id: id(1), state: waiting})
		insertTask(t, db, taskRow{id: id(2), state: waiting})
		insertAttempt(t, db, id(0x21), id(2), 1, nil) // claimed, never started
		insertTask(t, db, taskRow{id: id(3), state: running})
		insertAttempt(t, db, id(0x31), id(3), 1, nil)
		insertAttempt(t, db, id(0x32), id(3), 2, 1500)
		insertTask(t, db, taskRow{id: id(4), state: succeeded})
		insertAttempt(t, db, id(0x41), id(4), 1, 1200)

		migrate(t, db, 5)

		got := query(t, db, `
SELECT recovery_safety, max_attempts, attempt_timeout_ms, initial_delay_ms, max_delay_ms, started_count, unstarted_count, effect_uncertain
FROM task ORDER BY id`)
		want := []string{"1|1|30000|0|0|0|0|0", "1|1|30000|0|0|0|0|0", "1|1|30000|0|0|1|0|0", "1|1|30000|0|0|1|0|0"}
		if !slices.Equal(got, want) {
			t.Errorf("retry columns = %q, want %q", got, want)
		}
		if n := number(t, db, "SELECT COUNT(*) FROM attempt WHERE timeout_at IS NULL AND retryable = 0"); n != 4 {
			t.Errorf("%d attempts without timeout and retry, want 4", n)
		}
	})
}

// MIG-002
func TestResourceKeyStepGivesHistoryNoKeyAndTokenZero(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 10)
		insertTask(t, db, taskRow{id: id(1), state: running, key: "订单"})
		insertAttempt(t, db, id(0x11), id(1), 1, 1500)
		execute(t, db, `
INSERT INTO worker_session (namespace_id, process_id, credential_id, registration_digest, registration, node_id, connected_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, 0, 0)`, namespace1, id(0xe1), credential1, make([]byte, 32), []byte("{}"), []byte("node-a"))

		migrate(t, db, 11)

		if n := number(t, db, "SELECT COUNT(*) FROM task WHERE concurrency_key = x'' AND concurrency_key_digest = x'' AND business_key = ?", []byte("订单")); n != 1 {
			t.Errorf("%d old tasks without key and with their business key, want 1", n)
		}
		var token uint64 = 1
		if err := db.Read().QueryRowContext(t.Context(), "SELECT concurrency_token FROM attempt").Scan(db.Dialect().ScanUint64(&token)); err != nil || token != 0 {
			t.Errorf("token of an old attempt = %d, %v, want 0", token, err)
		}
		if n := number(t, db, "SELECT COUNT(*) FROM worker_session WHERE concurrency_keys = 0"); n != 1 {
			t.Errorf("%d old sessions without resource keys, want 1", n)
		}
	})
}

func TestWaitingTasksGetTheirExpiryAndTheTimer(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 6)
		insertTask(t, db, taskRow{id: id(1), state: waiting})
		insertTask(t, db, taskRow{id: id(2), state: waiting, startDeadline: 3000})
		insertTask(t, db, taskRow{id: id(3), state: waiting, startDeadline: 9500})
		insertTask(t, db, taskRow{id: id(4), state: running, startDeadline: 3000})

		migrate(t, db, 12)

		got := query(t, db, "SELECT expire_at, dispatch_state, dispatch_lane, order_value FROM task ORDER BY id")
		want := []string{"9000|2|0|1000", "3000|2|0|1000", "9000|2|0|1000", "NULL|0|NULL|0"}
		if !slices.Equal(got, want) {
			t.Errorf("expiry and dispatch = %q, want %q", got, want)
		}
	})
}

package accept

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Law 2: parking is decided under the key's lock. A release that has freed the key, has
// found nothing parked and is about to commit must not be overtaken by a submit that still
// sees the key as busy: its task would wait for a release that has been.
func TestParkingWaitsForAReleaseInProgress(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		item := d.item("keyed", "h", 1)
		item.Submission.Request.ConcurrencyKey = "object/1"
		digest := task.KeyDigest(d.namespace, "object/1")
		if err := newKeyBook(d.db.DB).ensure(t.Context(), []*member{{Item: item}}); err != nil {
			t.Fatal(err)
		}
		hold := `UPDATE resource SET holder_task_id = ?, holder_epoch = 1 WHERE digest = ?`
		if _, err := d.db.Write().ExecContext(t.Context(), hold, item.Queue, digest[:]); err != nil {
			t.Fatal(err)
		}

		release, err := d.db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer release.Rollback()
		free := `UPDATE resource SET holder_task_id = NULL, holder_epoch = NULL WHERE digest = ?`
		if _, err := release.ExecContext(t.Context(), free, digest[:]); err != nil {
			t.Fatal(err)
		}
		outcome := make(chan Outcome, 1)
		go func() { outcome <- d.Submit(t.Context(), []Item{item})[0] }()
		d.until("the submit waits for the release or is done", func() bool { return len(outcome) == 1 || d.waitsForALock() })
		if err := release.Commit(); err != nil {
			t.Fatal(err)
		}
		wantAccepted(t, []Outcome{<-outcome})
		d.noStranded()
		if got := d.count("task WHERE dispatch_state = ?", task.DispatchReady); got != 1 {
			t.Errorf("%d READY tasks, want 1", got)
		}
	})
}

// waitsForALock reports whether a transaction on this database waits for a row. SQLite has
// one writer, who waits from its first statement.
func (d *desk) waitsForALock() bool {
	switch d.db.Engine {
	case dbtest.MySQL:
		return d.count("performance_schema.data_locks WHERE object_schema = DATABASE() AND lock_status = 'WAITING'") > 0
	case dbtest.MariaDB:
		time.Sleep(150 * time.Millisecond) // asked more often, it answers from a cache that it never renews
		return d.count(`information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id
			WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`) > 0
	}
	return true
}

package accept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// retry is a manual retry of task of.
func (d *desk) retry(key string, of sqldb.ID, content byte) Item {
	item := d.item(key, "h", 1)
	item.Retry = &Retry{Of: of, Root: sqldb.NewID(), Digest: orbit.Digest{content}, Reason: "the printer was out of paper"}
	return item
}

func TestAManualRetryIsANewTaskLinkedToTheOld(t *testing.T) { // AMB-072, AMB-073, STATE-019
	onEachEngine(t, func(t *testing.T, d *desk) {
		item := d.retry("key", sqldb.NewID(), 1)
		outcomes := d.Submit(t.Context(), []Item{item})
		wantAccepted(t, outcomes)
		receipt := string(outcomes[0].Receipt.AppendTask(nil))
		if want := `"retry_of":"` + item.Retry.Of.String() + `"`; !strings.Contains(receipt, want) {
			t.Errorf("receipt %s lacks %s", receipt, want)
		}
		for query, args := range map[string][]any{
			"task WHERE retry_of = ? AND operation_root = ?": {item.Retry.Of, item.Retry.Root},
			"task_event WHERE kind = ? AND reason = ?":       {[]byte("accepted"), []byte("manual_retry")},
			"audit WHERE action = ? AND note = ?":            {[]byte("task.retry"), []byte("the printer was out of paper")},
			"idempotency WHERE operation = ?":                {int(idempotency.Retry)},
		} {
			if n := d.count(query, args...); n != 1 {
				t.Errorf("%d rows of %s, want 1", n, query)
			}
		}
		wantAccepted(t, d.Submit(t.Context(), []Item{d.item("key", "h", 1)})) // a submit with the same key is another command
		if n := d.count("task WHERE retry_of IS NULL AND operation_root IS NULL"); n != 1 {
			t.Errorf("%d tasks are retries of nothing, want 1", n)
		}
		if n := d.count("audit WHERE action = ? AND note = ?", []byte("task.submit"), []byte{}); n != 1 {
			t.Errorf("%d audit rows of submits without a note, want 1", n)
		}
	})
}

// The receipt comes before everything else, then the state.
func TestARefusedRetryLeavesNoRecordAndARepeatIsNotRefused(t *testing.T) { // IDEM-019, IDEM-021, AMB-072
	onEachEngine(t, func(t *testing.T, d *desk) {
		conflict := errors.New("the task is RUNNING")
		of := sqldb.NewID()
		refused := d.retry("key", of, 1)
		refused.Retry.Refused = conflict
		if o := d.Submit(t.Context(), []Item{refused})[0]; !errors.Is(o.Err, conflict) {
			t.Errorf("refused retry: %v, want its conflict", o.Err)
		}
		if n := d.count("idempotency"); n != 0 {
			t.Errorf("%d records of a refused retry, want none", n)
		}
		first := d.Submit(t.Context(), []Item{d.retry("key", of, 1)})
		wantAccepted(t, first)
		repeat := d.Submit(t.Context(), []Item{refused})[0]
		if repeat.Err != nil || !repeat.Deduplicated || !bytes.Equal(repeat.Receipt.AppendTask(nil), first[0].Receipt.AppendTask(nil)) {
			t.Errorf("repeat: deduplicated %v, %v; want the first receipt", repeat.Deduplicated, repeat.Err)
		}
		if o := d.Submit(t.Context(), []Item{d.retry("key", of, 2)})[0]; !errors.Is(o.Err, idempotency.ErrConflict) {
			t.Errorf("other content: %v, want ErrConflict", o.Err)
		}
		wantAccepted(t, d.Submit(t.Context(), []Item{d.retry("key", sqldb.NewID(), 2)})) // of another task
	})
}

// Without grouping each item has a transaction of its own, and the promises are the same.
func TestAloneEachItemHasItsOwnTransaction(t *testing.T) { // IDEM-012
	onEachEngine(t, func(t *testing.T, d *desk) {
		alone := []*Committer{New(d.faults.DB, Config{Alone: true}), New(d.db.DB, Config{Alone: true})}
		d.faults.OnCommit(func(int) dbfault.Verdict { return dbfault.Pass })
		wantAccepted(t, alone[0].Submit(t.Context(), []Item{d.item("a", "h", 1), d.item("b", "h", 1), d.item("c", "h", 1)}))
		if n := d.faults.Commits(); n != 3 {
			t.Errorf("%d commits of 3 items, want 3", n)
		}
		if o := alone[0].Submit(t.Context(), []Item{d.item("x", "h", 1), d.item("x", "h", 1), d.item("x", "h", 2)}); o[0].Err != nil ||
			!o[1].Deduplicated || !errors.Is(o[2].Err, ErrConflict) {
			t.Errorf("equal keys: %+v, want accepted, repeated, conflict", o)
		}
		before := d.count("task")
		outcomes := make([]Outcome, 24)
		var submitting sync.WaitGroup
		for i := range outcomes {
			item := d.item(fmt.Sprint("key-", i/3), "h", 1)
			submitting.Go(func() { outcomes[i] = alone[i%2].Submit(context.Background(), []Item{item})[0] })
		}
		submitting.Wait()
		created := 0
		for i, o := range outcomes {
			if o.Err != nil {
				t.Errorf("submit %d: %v", i, o.Err)
			}
			if !o.Deduplicated {
				created++
			}
		}
		if tasks := d.count("task") - before; created != 8 || tasks != 8 {
			t.Errorf("%d created answers and %d tasks for 8 keys", created, tasks)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if o := alone[0].Submit(ended, []Item{d.item("gone", "h", 1)})[0]; !errors.Is(o.Err, ErrUnavailable) {
			t.Errorf("sender that is gone: %v, want ErrUnavailable", o.Err)
		}
	})
}

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
)

// IDEM-025: a dry run, a run, and what the audit tells of it.
func TestRetentionRunAndStatus(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		client := w.serve()
		accepted, err := client.SubmitTask(t.Context(), "key", orbit.SubmitTaskRequest{
			QueueID: w.creds.QueueID, Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1", Payload: []byte(`{}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CancelTask(t.Context(), accepted.Task.ID, "cancel", orbit.CancelTaskRequest{ExpectedRevision: 1, Reason: "r"})
		if err != nil {
			t.Fatal(err)
		}
		var done retained
		w.read(&done, "retention run --older-than 24h")
		if done.Tasks != 0 || w.count("task") != 1 {
			t.Fatalf("a young task: %+v", done)
		}
		for _, dry := range []string{"", " --dry-run"} {
			if out := w.must("retention run --older-than 1d" + dry); !strings.HasPrefix(out, "nothing is due (of what ended until ") || strings.Count(out, "\n") != 1 {
				t.Errorf("with nothing due = %q", out)
			}
		}
		if out := w.must("retention run --json --older-than 1d"); strings.Contains(out, "oldest") {
			t.Errorf("with nothing due = %s", out)
		}
		if out := w.must("retention status"); !strings.HasPrefix(out, "no run") {
			t.Errorf("status = %q", out)
		}
		const back = 100 * 24 * time.Hour
		for _, statement := range []string{"UPDATE task SET completed_at = completed_at - ?", "UPDATE idempotency SET retain_until = retain_until - ?"} {
			if _, err := db.Write().ExecContext(t.Context(), statement, back.Microseconds()); err != nil {
				t.Fatal(err)
			}
		}
		const counts = "tasks 1, attempts 0, evidence 0, reviews 0, events 2, records 2"
		if out := w.must("retention run --older-than 90d --dry-run"); !strings.HasPrefix(out, "would delete "+counts+"\nended until ") {
			t.Errorf("dry run = %q", out)
		}
		if w.count("task") != 1 {
			t.Fatal("a dry run deleted the task")
		}
		if out := w.must("retention run --older-than 2160h"); !strings.HasPrefix(out, "deleted "+counts+"\n") {
			t.Errorf("run = %q", out)
		}
		if n := w.count("task") + w.count("task_event") + w.count("idempotency"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		var last lastRun
		w.read(&last, "retention status")
		now, err := db.Now(t.Context())
		if err != nil || last.At == nil || sqldb.Time(now).Sub(*last.At) > time.Hour || last.Actor != actor() || !strings.HasPrefix(last.Note, counts) {
			t.Errorf("status = %+v, %v", last, err)
		}
		w.refuse(2, "--older-than", "retention run")
		w.refuse(2, "at least 1d", "retention run --older-than 23h")
		w.refuse(2, "run", "retention")
	}, migrations.Server)
}

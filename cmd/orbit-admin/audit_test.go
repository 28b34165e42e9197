package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// SUB-063: the audit is found again by what was done, to what, by whom, where and when; in
// pages that have each row once.
func TestTheAuditIsListed(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		w.must("bootstrap --application b --namespace m --environment e --queue q --output " + filepath.Join(t.TempDir(), "c"))
		w.must("queue", "pause", "--application", "a", "--namespace", "n", "--queue", "q", "--reason", "the bank is down")
		w.must("queue resume --application a --namespace n --queue q")
		task := w.submit(w.serve(), "k", "h", "")
		all := w.audit()
		if len(all) != 4+4+2+1 || !slices.IsSortedFunc(all, func(a, b server.AuditEntry) int { return int(b.Seq - a.Seq) }) {
			t.Fatalf("%d rows: %+v", len(all), all)
		}
		submit := all[0]
		if submit.TargetID != task.ID || submit.CredentialID == "" || submit.RequestID == "" || submit.Handler != "h v1" || submit.Actor != "" {
			t.Errorf("row of the submit = %+v", submit)
		}
		day := func(add time.Duration) string { return submit.At.Add(add).Format(time.DateOnly) }
		if strings.Contains(w.said.String(), "canary-7") {
			t.Error("the audit has a payload")
		}
		for args, want := range map[string]int{
			"--action queue.update": 2, "--target " + w.creds.QueueID: 3, "--request " + submit.RequestID: 1,
			"--application a --namespace n": 3 + 2 + 1, "--application b --namespace m": 3,
			"--target " + w.creds.QueueID + " --application b --namespace m": 0,
			"--from " + day(-24*time.Hour):                                   11, "--before " + day(-24*time.Hour): 0, "--from " + day(48*time.Hour): 0,
			"--application a --namespace n --from " + day(-24*time.Hour) + " --before " + day(48*time.Hour): 6,
			"--application a --namespace n --before " + submit.At.Add(-24*time.Hour).Format(time.RFC3339):   0,
			"--application a --namespace n --from " + day(48*time.Hour):                                     0,
		} {
			if got := w.audit(strings.Fields(args)...); len(got) != want {
				t.Errorf("%s: %d rows, want %d", args, len(got), want)
			}
		}
		if got := w.audit("--actor", actor()); len(got) != 10 {
			t.Errorf("%d rows of this person, want 10", len(got))
		}
		if table := w.must("audit", "list", "--action", "queue.update"); !strings.Contains(table, "paused false -> true; the bank is down") || !strings.Contains(table, w.creds.QueueID) {
			t.Errorf("table = %s", table)
		}
	}, migrations.Server)
}

// audit reads the audit in pages of two.
func (w *world) audit(args ...string) (all []server.AuditEntry) {
	w.Helper()
	var p page[server.AuditEntry]
	for after := ""; ; after = p.Next {
		call := append([]string{"audit", "list", "--limit", "2"}, args...)
		if after != "" {
			call = append(call, "--after", after)
		}
		w.read(&p, call...)
		all = append(all, p.Items...)
		if p.Next == "" {
			return all
		}
		if n, err := strconv.Atoi(p.Next); err != nil || len(p.Items) > 0 && int64(n) > p.Items[len(p.Items)-1].Seq {
			w.Fatalf("next = %q after %+v", p.Next, p.Items)
		}
	}
}

func TestBadInputOfTheAudit(t *testing.T) {
	w := newWorld(t, dbtest.Open(t, dbtest.SQLite, migrations.Server))
	for args, says := range map[string]string{
		"--namespace n": "application", "--application a": "namespace", "--application a --namespace x": `"x"`, "--target x": "--target", "--request 1": "--request",
		"--from yesterday": "--from", "--before 2026-13-01": "--before", "--from 2026-11-02 --before 2026-11-01": "earlier", "--after x": "number of a row",
		"--after 99 --application a --namespace n": "does not exist", "--limit 0": "--limit",
	} {
		w.refuse(2, says, "audit list "+args)
	}
}

// LIST-007, LIST-010: tasks in one state are found over all queues of a namespace
// or an application, each once, and between two moments.
func TestTasksAreListedOverQueues(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		client := w.serve()
		want := map[string]string{} // queue by id
		for _, name := range []string{"q", "b", "x", "a"} {
			if name != "q" {
				w.must("queue create --application a --namespace n --queue " + name)
			}
			var q struct{ ID string }
			w.read(&q, "queue show --application a --namespace n --queue "+name)
			w.creds.QueueID = q.ID
			for i := range 3 {
				if name != "x" {
					want[w.submit(client, fmt.Sprint(name, i), "h", "").ID] = name
				}
			}
		}
		for _, place := range []string{"--application a --namespace n", "--application a"} {
			got := w.inState(place)
			if names := namesOf(got, want); names != "aaabbbqqq" || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 9 {
				t.Errorf("%s: queues %s of %v, want each task once by the names of the queues", place, names, got)
			}
		}
		w.must("bootstrap --application a --namespace m --environment e --queue q --output " + filepath.Join(t.TempDir(), "c"))
		if n := len(w.inState("--application a --namespace m")); n != 0 {
			t.Errorf("%d tasks of an empty namespace", n)
		}
		if n := len(w.inState("--application a")); n != 9 {
			t.Errorf("%d tasks of the application, want 9", n)
		}
		if table := w.must("tasks list --application a --state WAITING --limit 1"); !strings.Contains(table, "NAMESPACE") || !strings.Contains(table, "more with --after") {
			t.Errorf("table = %s", table)
		}
		now := time.Now()
		past, future := now.Add(-24*time.Hour).Format(time.RFC3339), now.Add(24*time.Hour).Format(time.RFC3339)
		for _, place := range []string{"--application a --namespace n --queue a", "--application a"} {
			in, out := w.inState(place+" --from "+past+" --before "+future), w.inState(place+" --from "+future)
			if len(in) == 0 || len(out) != 0 || len(w.inState(place+" --before "+past)) != 0 {
				t.Errorf("%s: %d within the bounds, %d without", place, len(in), len(out))
			}
		}
		one := w.inState("--application a --namespace n --queue a")[0]
		w.refuse(2, "another place", "tasks list --state WAITING --application a --namespace m --after "+one)
		w.refuse(2, "state: is required without --queue", "tasks list --application a --namespace n")
		w.refuse(2, "needs --queue", "tasks list --application a --state WAITING --business-key x")
		w.refuse(2, "earlier", "tasks list --application a --state WAITING --from 2026-01-02 --before 2026-01-01")
		w.refuse(2, "WAITING", "tasks list --application a --state DONE")
		w.refuse(2, "application", "tasks list --state WAITING")
	}, migrations.Server)
}

// inState lists waiting tasks in pages of two.
func (w *world) inState(place string) (ids []string) {
	w.Helper()
	var p page[struct {
		ID      string `json:"id"`
		QueueID string `json:"queue_id"`
	}]
	for after := ""; ; after = " --after " + p.Next {
		w.read(&p, "tasks list --state WAITING --limit 2 "+place+after)
		for _, task := range p.Items {
			if task.QueueID == "" {
				w.Errorf("task %s has no queue", task.ID)
			}
			ids = append(ids, task.ID)
		}
		if p.Next == "" {
			return ids
		}
	}
}

func namesOf(ids []string, names map[string]string) (all string) {
	for _, id := range ids {
		all += names[id]
	}
	return all
}

// A task is shown with the names of its place, and with what its handler has to know.
func TestATaskIsShownWithItsPlace(t *testing.T) {
	w := newWorld(t, dbtest.Open(t, dbtest.SQLite, migrations.Server))
	id := w.submit(w.serve(), "k", "h", "").ID
	var shown shownTask
	w.read(&shown, "tasks show "+id)
	if shown.Application != "a" || shown.Namespace != "n" || shown.Queue != "q" || shown.TimeoutMS <= 0 {
		t.Errorf("task = %+v", shown.TaskDetails)
	}
	table := w.must("tasks show " + id)
	for _, want := range []string{w.creds.QueueID + " q", "payload version", "v1", "30s of an attempt, "} {
		if !strings.Contains(table, want) {
			t.Errorf("table does not show %q:\n%s", want, table)
		}
	}
}

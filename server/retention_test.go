package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

const day = 24 * time.Hour

// cancelled submits a task and cancels it.
func cancelled(t *testing.T, c *orbit.Client, creds orbit.Credentials, key string) (orbit.Accepted, orbit.TaskReceipt) {
	t.Helper()
	accepted, err := c.SubmitTask(t.Context(), key, request(creds))
	if err != nil {
		t.Fatal(err)
	}
	return accepted, cancel(t, c, accepted.Task.ID)
}

func cancel(t *testing.T, c *orbit.Client, id string) orbit.TaskReceipt {
	t.Helper()
	receipt, err := c.CancelTask(t.Context(), id, "cancel", orbit.CancelTaskRequest{ExpectedRevision: 1, Reason: "done with"})
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// age moves the end of a task, and the deadlines of its records, into the past.
func age(t *testing.T, db *dbtest.DB, taskID string, ended, promise time.Duration) {
	t.Helper()
	id, err := sqldb.ParseID(taskID)
	if err != nil {
		t.Fatal(err)
	}
	for statement, by := range map[string]time.Duration{
		"UPDATE task SET completed_at = completed_at - ? WHERE id = ?":             ended,
		"UPDATE idempotency SET retain_until = retain_until - ? WHERE task_id = ?": promise,
	} {
		if _, err := db.Write().ExecContext(t.Context(), statement, by.Microseconds(), id); err != nil {
			t.Fatal(err)
		}
	}
}

func retain(t *testing.T, db *dbtest.DB) server.RetentionReport {
	t.Helper()
	report, err := server.Retain(t.Context(), db.DB, server.RetentionRequest{Age: 30 * day, Actor: "test"})
	if err != nil {
		t.Fatalf("Retain = %v", err)
	}
	return report
}

// sameTask compares what two answers show of a task, field by field.
func sameTask(t *testing.T, what string, got, want orbit.Task) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s = %+v, want %+v", what, got, want)
	}
}

// IDEM-011, IDEM-016, IDEM-017: until a task is deleted its commands are answered by their
// receipts; then its key is new.
func TestReceiptsHoldUntilTheirTaskIsDeleted(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		c := client(t, start(t, db.DB, server.Config{}), creds)
		first, ended := cancelled(t, c, creds, "key")
		for _, passed := range []struct{ end, promise time.Duration }{{31 * day, 0}, {0, 89 * day}} {
			age(t, db, first.Task.ID, passed.end, passed.promise)
			if report := retain(t, db); report.Counts.Tasks != 0 {
				t.Fatalf("deleted %v within the 90 days", report.Counts)
			}
			again, err := c.SubmitTask(t.Context(), "key", request(creds))
			if err != nil || !again.Replayed {
				t.Fatalf("repeated submit = %+v, %v", again, err)
			}
			sameTask(t, "repeated submit", again.Task, first.Task)
			sameTask(t, "repeated cancel", cancel(t, c, first.Task.ID).Task, ended.Task)
		}
		age(t, db, first.Task.ID, 0, day+time.Second)
		if again, err := c.SubmitTask(t.Context(), "key", request(creds)); err != nil || !again.Replayed {
			t.Fatalf("submit after the deadline = %+v, %v; want the receipt as long as it is there", again, err)
		}
		if report := retain(t, db); report.Counts.Tasks != 1 || report.Counts.Records != 2 {
			t.Fatalf("deleted %v after 90 days, want the task and its 2 records", report.Counts)
		}
		var refused *orbit.APIError
		if _, err := c.GetTask(t.Context(), first.Task.ID); !errors.As(err, &refused) || refused.Code != orbit.CodeNotFound {
			t.Errorf("GetTask = %v, want not found", err)
		}
		if _, err := c.CancelTask(t.Context(), first.Task.ID, "cancel", orbit.CancelTaskRequest{ExpectedRevision: 1, Reason: "done with"}); !errors.As(err, &refused) || refused.Code != orbit.CodeNotFound {
			t.Errorf("CancelTask = %v, want not found", err)
		}
		fresh, err := c.SubmitTask(t.Context(), "key", request(creds))
		if err != nil || fresh.Replayed || fresh.Task.ID == first.Task.ID {
			t.Errorf("the old key = %+v, %v; want a new task", fresh, err)
		}
	}, migrations.Server)
}

// IDEM-017: the key of a manual retry belongs to the new task, and is known as long as
// that is there, also when the old task is gone.
func TestARetryIsKnownAfterItsOldTaskIsDeleted(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		c := client(t, start(t, db.DB, server.Config{}), creds)
		old, _ := cancelled(t, c, creds, "key")
		again := orbit.RetryTaskRequest{ExpectedRevision: 2, Reason: "once more"}
		first, err := c.RetryTask(t.Context(), old.Task.ID, "retry", again)
		if err != nil {
			t.Fatal(err)
		}
		age(t, db, old.Task.ID, 100*day, 91*day)
		if report := retain(t, db); report.Counts.Tasks != 1 {
			t.Fatalf("deleted %v, want the old task alone", report.Counts)
		}
		repeat, err := c.RetryTask(t.Context(), old.Task.ID, "retry", again)
		if err != nil || !repeat.Replayed {
			t.Fatalf("repeated retry = %+v, %v", repeat, err)
		}
		sameTask(t, "repeated retry", repeat.Task, first.Task)
		var refused *orbit.APIError
		other := orbit.RetryTaskRequest{ExpectedRevision: 2, Reason: "something else"}
		if _, err := c.RetryTask(t.Context(), old.Task.ID, "retry", other); !errors.As(err, &refused) || refused.Code != orbit.CodeIdempotencyConflict {
			t.Errorf("other content = %v, want a conflict", err)
		}
		if _, err := c.RetryTask(t.Context(), old.Task.ID, "another-key", again); !errors.As(err, &refused) || refused.Code != orbit.CodeNotFound {
			t.Errorf("another key = %v, want not found", err)
		}
		source, err := c.GetTaskSource(t.Context(), first.Task.ID)
		if err != nil || source.TaskID != old.Task.ID {
			t.Errorf("source = %+v, %v; want the id of the old task", source, err)
		}
		cancel(t, c, first.Task.ID)
		age(t, db, first.Task.ID, 100*day, 91*day)
		if report := retain(t, db); report.Counts.Tasks != 1 || report.Counts.Records != 2 {
			t.Errorf("deleted %v, want the new task with its retry and cancel", report.Counts)
		}
		if _, err := c.RetryTask(t.Context(), old.Task.ID, "retry", again); !errors.As(err, &refused) || refused.Code != orbit.CodeNotFound {
			t.Errorf("retry after both are gone = %v, want not found", err)
		}
	}, migrations.Server)
}

// scrape reads /metrics as samples by name and labels.
func scrape(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("metrics = %s, %v", resp.Status, err)
	}
	samples := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+(?:\{.*\})?) (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		samples[m[1]] = value
	}
	return samples
}

// differing tells which samples are not what is wanted.
func differing(got, wants map[string]float64) (differences []string) {
	for sample, want := range wants {
		if got[sample] != want {
			differences = append(differences, fmt.Sprintf("%s = %v, want %v", sample, got[sample], want))
		}
	}
	return differences
}

// A node deletes by itself what is old enough, and its metrics tell of that, of its
// requests and of its commits, by patterns and never by ids.
func TestANodeDeletesWhatIsOldAndCounts(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		metrics, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		before := start(t, db.DB, server.Config{})
		task, _ := cancelled(t, client(t, before, creds), creds, "old")
		age(t, db, task.Task.ID, 100*day, 91*day)
		before.stop()

		n := start(t, db.DB, server.Config{NodeID: "sweeper", Retention: 30 * day, Metrics: metrics})
		addr := metrics.Addr().String()
		c := client(t, n, creds)
		young, _ := cancelled(t, c, creds, "young")
		c.GetTask(t.Context(), young.Task.ID)
		c.GetTask(t.Context(), strings.Repeat("0", 32))
		wants := map[string]float64{
			"orbit_retention_tasks_purged_total":                                                  1,
			"orbit_retention_records_purged_total":                                                2,
			"orbit_accept_commits_total":                                                          1,
			"orbit_accept_tasks_total":                                                            1,
			`orbit_http_requests_total{method="POST",route="/v1/tasks",status="2xx"}`:             1,
			`orbit_http_requests_total{method="POST",route="/v1/tasks/{id}:cancel",status="2xx"}`: 1,
			`orbit_http_requests_total{method="GET",route="/v1/tasks/{id}",status="2xx"}`:         1,
			`orbit_http_requests_total{method="GET",route="/v1/tasks/{id}",status="4xx"}`:         1,
			`orbit_http_request_duration_seconds_count{method="GET",route="/v1/tasks/{id}"}`:      2,
		}
		got := scrape(t, addr)
		for range 1000 { // the run has begun by itself, and an answer is counted after it was given
			if got["orbit_retention_last_run_timestamp_seconds"] > 0 && len(differing(got, wants)) == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
			got = scrape(t, addr)
		}
		for _, difference := range differing(got, wants) {
			t.Error(difference)
		}
		if got["orbit_retention_oldest_purgeable_seconds"] < day.Seconds()-60 || got["go_goroutines"] == 0 {
			t.Errorf("oldest %v, goroutines %v", got["orbit_retention_oldest_purgeable_seconds"], got["go_goroutines"])
		}
		last, ok, err := server.LastRetention(t.Context(), db.DB)
		if err != nil || !ok || last.Actor != "node sweeper" {
			t.Errorf("last run = %+v, %v, %v", last, ok, err)
		}
		if err := n.stop(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if _, err := net.Dial("tcp", addr); err == nil {
			t.Error("the address of the metrics is still served")
		}
	}, migrations.Server)
}

func TestRetentionBelowItsFloorIsRefused(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	for _, short := range []time.Duration{-time.Hour, server.MinRetention - 1} {
		if _, err := server.New(db.DB, server.Config{Retention: short}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(server.MinRetention)) {
			t.Errorf("New with a retention of %v = %v", short, err)
		}
		if _, err := server.Retain(t.Context(), db.DB, server.RetentionRequest{Age: short, Actor: "a"}); err == nil {
			t.Errorf("Retain with an age of %v passed", short)
		}
	}
}

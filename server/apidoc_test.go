package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// A lesson is one shell block of the document with what it is said to show.
type lesson struct {
	line   int    // of the document
	script string // as written
	shows  map[string]string
}

// SUB-050, SUB-051, SUB-052, GET-005, LIST-017, CAN-018, CLI-007, API-015, ERR-013: the
// shell blocks of docs/api.md do as they are written what the document says, one after
// the other, in one shell.
func TestTheDocumentedCommandsWork(t *testing.T) {
	needPrograms(t, "bash", "curl")
	lessons := readLessons(t, "../docs/api.md")
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		folder := t.TempDir()
		creds := credentialsFile(t, db, filepath.Join(folder, ".orbit", "credentials.json"))
		n := start(t, db.DB, server.Config{})
		leaveForReview(t, n, creds)
		taught := slices.Clone(lessons)
		for i := range taught { // where the reader has another server than the one at hand
			taught[i].script = strings.Replace(taught[i].script, "ORBIT_URL=http://127.0.0.1:8080", "ORBIT_URL="+n.url, 1)
		}
		for i, out := range runLessons(t, folder, taught) {
			if err := lessons[i].check(out); err != nil {
				t.Errorf("docs/api.md:%d: %v\n%s", lessons[i].line, err, out)
			}
		}
	}, migrations.Server)
}

// needPrograms skips the test where a program is missing, but not where all tests have to
// run.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("CI") != "" || os.Getenv("ORBIT_TEST_ALL_ENGINES") == "1" {
			t.Fatalf("%s is not installed, so the commands of docs/api.md are not tested", name)
		}
		t.Skipf("%s is not installed: the commands of docs/api.md are not tested", name)
	}
}

// readLessons cuts a document into its shell blocks. What follows one, up to the next,
// belongs to it: at most one block of each kind.
func readLessons(t *testing.T, path string) (lessons []lesson) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var language, block string
	for i, line := range strings.SplitAfter(string(text), "\n") {
		fence, opens := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case opens && language == "":
			language, block = fence, ""
		case opens && language == "sh":
			lessons = append(lessons, lesson{line: i + 1, script: block, shows: map[string]string{}})
			language = ""
		case opens:
			last := lessons[len(lessons)-1]
			if last.shows[language] != "" {
				t.Fatalf("%s:%d: a second %s block after one shell block", path, i+1, language)
			}
			last.shows[language] = block
			language = ""
		default:
			block += line
		}
	}
	if len(lessons) < 20 {
		t.Fatalf("%s has %d shell blocks: is it read rightly?", path, len(lessons))
	}
	return lessons
}

func credentialsFile(t *testing.T, db *dbtest.DB, path string) orbit.Credentials {
	t.Helper()
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	creds, err := server.CreateFile(t.Context(), db.DB, path, func() (orbit.Credentials, error) {
		return server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
			Application: "app", Namespace: "default", Environment: "test", Queue: "default", WorkerAccess: true, Actor: "test",
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// leaveForReview makes the task that the document reviews: its worker does not know what
// became of it.
func leaveForReview(t *testing.T, n *node, creds orbit.Credentials) {
	t.Helper()
	c := client(t, n, creds)
	accepted, err := c.SubmitTask(t.Context(), "monthly-report", orbit.SubmitTaskRequest{
		QueueID: creds.QueueID, Handler: "report.send", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(`{"month":"2026-08"}`), ConcurrencyKey: "mailbox/7",
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.NewWorker(n.url, creds.Token, worker.Config{
		Queues: []string{creds.QueueID}, Log: slog.New(slog.DiscardHandler),
		Handlers: map[worker.Handler]worker.HandlerFunc{
			{Name: "report.send", Version: "v1"}: func(context.Context, worker.Execution) (json.RawMessage, error) {
				return nil, worker.Unknown(errors.New("the mail server closed the connection"))
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for {
		task, err := c.GetTask(t.Context(), accepted.Task.ID)
		if err != nil {
			t.Fatal(err)
		}
		if task.State == orbit.StateNeedsReview {
			break
		}
		time.Sleep(5 * time.Millisecond) // the state is in the database: nobody tells
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatalf("worker: %v", err)
	}
}

// runLessons runs the blocks in one shell, so that variables carry over, and returns what
// each wrote.
func runLessons(t *testing.T, folder string, lessons []lesson) []string {
	t.Helper()
	const mark = "=== end of lesson"
	var script strings.Builder
	for _, l := range lessons {
		fmt.Fprintf(&script, "%s\nprintf '\\n%s %%d\\n' $?\n", l.script, mark)
	}
	file := filepath.Join(folder, "lessons.sh")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "bash", file)
	shell.Dir = folder
	shell.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder} // no settings of whoever runs the test
	var out, failures bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &failures
	if err := shell.Run(); err != nil {
		t.Fatalf("bash: %v\n%s", err, &failures)
	}
	parts := strings.Split(strings.ReplaceAll(out.String(), "\r\n", "\n"), "\n"+mark+" ")
	if len(parts) != len(lessons)+1 {
		t.Fatalf("%d of %d blocks ran to their end\n%s", len(parts)-1, len(lessons), &failures)
	}
	outputs := make([]string, len(lessons))
	for i := range lessons {
		if i > 0 {
			_, parts[i], _ = strings.Cut(parts[i], "\n")
		}
		outputs[i] = parts[i]
		if status := parts[i+1][:1]; status != "0" {
			t.Errorf("docs/api.md:%d: the block ended with status %s\n%s", lessons[i].line, status, &failures)
		}
	}
	return outputs
}

// check compares what a block wrote with what the document shows.
func (l *lesson) check(out string) error {
	answers, err := answersIn(out)
	if err != nil {
		return err
	}
	want := l.shows["json"]
	for _, answer := range answers {
		if strings.Contains(answer, `"error":{`) && !strings.Contains(want, `"error"`) {
			return fmt.Errorf("an error was answered")
		}
	}
	if want != "" {
		if len(answers) == 0 {
			return fmt.Errorf("there is no answer")
		}
		if err := sameJSON(want, answers[len(answers)-1]); err != nil {
			return err
		}
	}
	for line := range strings.Lines(l.shows["http"]) {
		if !strings.Contains(alike(out), alike(line)) {
			return fmt.Errorf("there is no line %s", line)
		}
	}
	if text := l.shows["text"]; text != "" && strings.TrimSpace(out) != strings.TrimSpace(text) {
		return fmt.Errorf("it wrote something else than\n%s", text)
	}
	return nil
}

// answersIn returns the JSON answers in what a block wrote.
func answersIn(out string) (answers []string, err error) {
	at := strings.Index(out, `{"request_id"`)
	if at < 0 {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(out[at:]))
	for {
		var answer json.RawMessage
		if err := d.Decode(&answer); err == io.EOF {
			return answers, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what was answered: %w", err)
		}
		answers = append(answers, string(answer))
	}
}

// sameJSON compares names, their order, and values, apart from those that differ from one
// run to another.
func sameJSON(want, got string) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(want)); err != nil {
		return fmt.Errorf("the document shows no JSON: %w", err)
	}
	if want, got := alike(compact.String()), alike(got); want != got {
		return fmt.Errorf("shown and answered differ:\nshown    %s\nanswered %s", want, got)
	}
	return nil
}

var (
	anID     = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	aTime    = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)
	aDigest  = regexp.MustCompile(`orbit-json-v1:[0-9a-f]{64}`)
	aCursor  = regexp.MustCompile(`"next_cursor":"[A-Za-z0-9_-]+"`)
	aProcess = regexp.MustCompile(`"worker_id":"[^"]+"`)
)

// alike replaces what differs from one run to another. Ids are numbered, so that two that
// are the same stay the same.
func alike(text string) string {
	text = aTime.ReplaceAllString(text, `"TIME"`)
	text = aDigest.ReplaceAllString(text, "DIGEST")
	text = aCursor.ReplaceAllString(text, `"next_cursor":"CURSOR"`)
	text = aProcess.ReplaceAllString(text, `"worker_id":"WORKER"`)
	numbers := map[string]string{}
	return anID.ReplaceAllStringFunc(text, func(id string) string {
		if numbers[id] == "" {
			numbers[id] = fmt.Sprintf("ID%d", len(numbers)+1)
		}
		return numbers[id]
	})
}

package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// A lesson is one shell block of a document with what it is said to show.
type lesson struct {
	at     string // document and line
	script string // as written
	shows  map[string]string
}

// SUB-050, SUB-051, SUB-052, GET-005, LIST-017, CAN-018, CLI-007, API-015, ERR-013: the
// shell blocks of docs/api.md do as they are written what the document says, one after
// the other, in one shell, whichever that is; so do those of docs/task-query.md.
func TestTheDocumentedCommandsWork(t *testing.T) {
	needPrograms(t, "bash", "curl")
	lessons := readLessons(t, "../docs/api.md")
	if len(lessons) < 20 {
		t.Fatalf("docs/api.md has %d shell blocks: is it read rightly?", len(lessons))
	}
	lessons = append(lessons, readLessons(t, "../docs/task-query.md")...)
	taught := withPrograms(t, lessons)
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) { teach(t, db, "bash", lessons, taught) }, migrations.Server)
	for _, shell := range otherShells() {
		t.Run(shell, func(t *testing.T) {
			teach(t, dbtest.Open(t, dbtest.SQLite, migrations.Server), shell, lessons, taught)
		})
	}
}

// otherShells are those that readers use and that are installed here.
func otherShells() (shells []string) {
	for _, shell := range []string{"sh", "zsh"} {
		if _, err := exec.LookPath(shell); err == nil {
			shells = append(shells, shell)
		}
	}
	return shells
}

// teach runs what is taught on a new server and holds it to what the lessons show.
func teach(t *testing.T, db *dbtest.DB, shell string, lessons []lesson, taught []lesson) {
	folder := t.TempDir()
	credentialsFile(t, db, filepath.Join(folder, ".orbit", "credentials.json"))
	n := start(t, db.DB, server.Config{})
	here := slices.Clone(taught)
	for i := range here { // where the reader has another server than the one at hand
		here[i].script = strings.Replace(here[i].script, "ORBIT_URL=http://127.0.0.1:8080", "ORBIT_URL="+n.url, 1)
	}
	for i, out := range runLessons(t, shell, folder, here) {
		if err := lessons[i].check(out); err != nil {
			t.Errorf("%s: %v\n%s", lessons[i].at, err, out)
		}
	}
}

// withPrograms adds to each block the program that the document lets the reader run after it.
func withPrograms(t *testing.T, lessons []lesson) []lesson {
	t.Helper()
	all := slices.Clone(lessons)
	for i, l := range all {
		if l.shows["go"] == "" {
			continue
		}
		folder := t.TempDir()
		source, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "program")
		if err := os.WriteFile(source, []byte(l.shows["go"]), 0o600); err != nil {
			t.Fatal(err)
		}
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, source)
		build.Dir = ".." // the module's root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: the program after it: %v\n%s", l.at, err, out)
		}
		all[i].script += "\n'" + program + "' || exit 1\n"
	}
	return all
}

// CAN-018, CLI-007: the line of the requirement works as it is written, with TASK_ID next to
// the colon, in the shells for which it is meant. (Our documents write ${TASK_ID}: zsh takes
// the c of :cancel for a modifier.)
func TestTheCancelLineOfTheRequirementWorks(t *testing.T) {
	needPrograms(t, "bash", "curl")
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	folder := t.TempDir()
	creds := credentialsFile(t, db, filepath.Join(folder, ".orbit", "credentials.json"))
	n := start(t, db.DB, server.Config{})
	for _, shell := range []string{"bash", "sh"} {
		accepted, err := client(t, n, creds).SubmitTask(t.Context(), shell, orbit.SubmitTaskRequest{
			QueueID: creds.QueueID, Handler: "file.convert", HandlerVersion: "v1", PayloadVersion: "v1", Payload: json.RawMessage(`{}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		script := `ORBIT_URL='` + n.url + `' ORBIT_TOKEN='` + creds.Token + `' TASK_ID='` + accepted.Task.ID + `'
curl "$ORBIT_URL/v1/tasks/$TASK_ID:cancel" \
  -H "Authorization: Bearer $ORBIT_TOKEN" \
  -H 'Content-Type: application/json' \
  -H 'Idempotency-Key: conversion-operation-001-cancel' \
  --data '{"expected_revision":"1","reason":"source object was replaced"}'
`
		out := runLessons(t, shell, folder, []lesson{{at: "CAN-018 in " + shell, script: script}})
		if !strings.Contains(out[0], `"state":"CANCELLED"`) || !strings.Contains(out[0], accepted.Task.ID) {
			t.Errorf("%s: answered %s", shell, out[0])
		}
	}
}

// What is pasted into zsh must not have a comment, which an interactive zsh does not know, nor
// a variable next to a colon.
func TestTheDocumentedCommandsSuitZsh(t *testing.T) {
	block := regexp.MustCompile("(?s)\n```sh\n(.*?)```")
	modifier := regexp.MustCompile(`\$[A-Za-z_]+:`)
	comment := regexp.MustCompile(`(?m)^#.*|\s#\s.*`)
	for _, path := range []string{"../docs/api.md", "../docs/task-query.md", "../examples/README.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		blocks := block.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no shell block: is it read rightly?", path)
		}
		for _, b := range blocks {
			for _, bad := range []*regexp.Regexp{modifier, comment} {
				if found := bad.FindString(b[1]); found != "" {
					t.Errorf("%s: %q is something else in zsh", path, found)
				}
			}
		}
	}
}

// needPrograms skips the test where a program is missing, but not where all tests have to
// run.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			dbtest.Missing(t, "%s is not installed: the commands of docs/api.md are not tested", name)
		}
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
			lessons = append(lessons, lesson{at: fmt.Sprintf("%s:%d", strings.TrimPrefix(path, "../"), i+1), script: block, shows: map[string]string{}})
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

// runLessons runs the blocks in one process of a shell, so that variables carry over, and
// returns what each wrote.
func runLessons(t *testing.T, shell, folder string, lessons []lesson) []string {
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
	process := exec.CommandContext(t.Context(), shell, file)
	process.Dir = folder
	process.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder} // no settings of whoever runs the test
	var out, failures bytes.Buffer
	process.Stdout, process.Stderr = &out, &failures
	if err := process.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", shell, err, &failures)
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
			t.Errorf("%s: the block ended with status %s\n%s", lessons[i].at, status, &failures)
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

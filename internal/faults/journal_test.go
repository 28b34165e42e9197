//go:build linux

package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What an event tells of.
const (
	evReady   = "ready"   // the process is at work
	evStart   = "start"   // a handler was called
	evCancel  = "cancel"  // its context ended; Text is the cause
	evWrite   = "write"   // it wrote to the guarded resource; Text is the verdict or "stale"
	evEnd     = "end"     // it returns
	evError   = "error"   // the worker reported an error
	evSent    = "sent"    // a message is about to be sent
	evGot     = "got"     // a message has arrived
	evStats   = "stats"   // answer to the command of that name
	evSlots   = "slots"   // answer to the command of that name; Text is JSON
	evDrained = "drained" // Run of the worker has returned; Text is its error
	evHalt    = "halt"    // a relay is at the step at which it sends itself a signal
	evPast    = "past"    // it has gone on from there
)

// An event is one line of the journal that a process keeps on its standard output. The
// kernel has a line as soon as it is written: a kill loses none.
type event struct {
	At      time.Duration `json:"at"` // on the clock of now
	What    string        `json:"what"`
	Name    string        `json:"name"` // of the process
	Task    string        `json:"task,omitempty"`
	Attempt string        `json:"attempt,omitempty"`
	Key     string        `json:"key,omitempty"`
	Token   uint64        `json:"token,omitempty"`
	Text    string        `json:"text,omitempty"`
	// Of sent and got.
	Kind string `json:"kind,omitempty"`
	ID   string `json:"id,omitempty"`
	Ref  string `json:"ref,omitempty"`
	// Conn tells connections of one process apart: ids of messages begin anew on each.
	Conn  int           `json:"conn,omitempty"`
	Lease time.Duration `json:"lease,omitempty"` // that the message grants
	// Of stats.
	Goroutines, Files int    `json:",omitempty"`
	Heap              uint64 `json:",omitempty"`
}

func (e event) String() string {
	text, _ := json.Marshal(e)
	return string(text)
}

// journalMu keeps the lines of one process apart and in the order of their times.
var journalMu sync.Mutex

// journal writes e as the process called name. The write is done when it returns.
func journal(name string, e event) {
	journalMu.Lock()
	defer journalMu.Unlock()
	e.At, e.Name = now(), name
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(text, '\n'))
}

// A book takes the journal of a process as it comes.
type book struct {
	mu     sync.Mutex
	rest   []byte
	events []event
}

// Write takes a part of the journal. What is no event stands for itself: the testing
// package of a child prints nothing else.
func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = append(b.rest, p...)
	for {
		line, rest, found := bytes.Cut(b.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{What: evError, Text: fmt.Sprintf("no event: %s", line)}
		}
		b.events = append(b.events, e)
		b.rest = bytes.Clone(rest)
	}
}

// all returns the events so far that match.
func (b *book) all(match func(event) bool) []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []event
	for _, e := range b.events {
		if match(e) {
			found = append(found, e)
		}
	}
	return found
}

// count returns how many events tell of what, for the task if one is given.
func (b *book) count(what, task string) int { return len(b.all(of(what, task))) }

// of matches the events that tell of what, for the task if one is given.
func of(what, task string) func(event) bool {
	return func(e event) bool { return e.What == what && (task == "" || e.Task == task) }
}

// await waits for the first event that matches.
func (b *book) await(t *testing.T, what string, match func(event) bool) event {
	t.Helper()
	var found []event
	poll(t, what, func() bool {
		found = b.all(match)
		return len(found) > 0
	})
	return found[0]
}

// text returns the last events, for a test that failed.
func (b *book) text() string {
	all := b.all(func(event) bool { return true })
	var lines []string
	for _, e := range all[max(0, len(all)-150):] {
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "\n")
}

// inOrder returns the events of several books by time.
func inOrder(books ...*book) []event {
	var all []event
	for _, b := range books {
		all = append(all, b.all(func(event) bool { return true })...)
	}
	slices.SortStableFunc(all, func(a, b event) int { return int(a.At - b.At) })
	return all
}

// poll waits for what another process does; the bound only ends a test that hangs.
func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

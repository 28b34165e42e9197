package orbit

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

const batchRequestID = "0123456789abcdef0123456789abcdef"

// minimalAnswer is what a server answers to a batch of accepted tasks.
func minimalAnswer(tasks ...Task) string {
	items := make([]string, len(tasks))
	for i, t := range tasks {
		items[i] = fmt.Sprintf(`{"status":%d,"content_digest":"%v","data":{"deduplicated":%v,"task":%s}}`,
			201-i%2, Digest{byte(i)}, i%2 == 1, t.AppendMinimalJSON(nil))
	}
	return `{"request_id":"` + batchRequestID + `","data":{"items":[` + strings.Join(items, ",") + "]}}\n"
}

func aTask(id string) Task {
	return Task{
		ID: id, QueueID: strings.Repeat("e", 32), Handler: "order.created", State: StateWaiting, Revision: 7,
		CreatedAt: time.Date(2026, 11, 30, 8, 0, 0, 123456000, time.UTC),
	}
}

func replyOf(body string) *reply {
	return &reply{status: http.StatusOK, header: http.Header{}, body: []byte(body), requestID: batchRequestID}
}

// A relay reads the answers of a server the quick way, and they say what JSON says.
func TestAnswersOfAServerToABatchAreReadQuickly(t *testing.T) { // API-031
	body := minimalAnswer(aTask(strings.Repeat("1", 32)), aTask(strings.Repeat("2", 32)), aTask(strings.Repeat("3", 32)))
	r := replyOf(body)
	quick, whole := r.acceptedBatch(3), r.wholeBatch(3)
	if len(quick) != 3 || !reflect.DeepEqual(quick, whole) {
		t.Errorf("quickly read: %+v, want %+v", quick, whole)
	}
	for i, a := range quick {
		if a.Accepted == nil || a.Accepted.Task.ID != strings.Repeat(string(rune('1'+i)), 32) || a.Replayed != (i == 1) {
			t.Errorf("answer %d = %+v, want it accepted", i, a)
		}
	}
}

// What is not letter for letter an answer of a server, or not the answer to this request, is
// left to the reader of JSON.
func TestOtherAnswersToABatchAreNotReadQuickly(t *testing.T) {
	good := minimalAnswer(aTask(strings.Repeat("1", 32)), aTask(strings.Repeat("2", 32)))
	for name, change := range map[string]func(*reply){
		"half of it":      func(r *reply) { r.body = r.body[:len(r.body)/2] },
		"an end too much": func(r *reply) { r.body = append(r.body, '}') },
		"broken off":      func(r *reply) { r.broken = http.ErrHandlerTimeout },
		"another status":  func(r *reply) { r.status = http.StatusCreated },
		"another request": func(r *reply) { r.requestID = strings.Repeat("a", 32) },
		"no request":      func(r *reply) { r.requestID, r.body = "", []byte(strings.Replace(good, batchRequestID, "", 1)) },
		"a blank":         func(r *reply) { r.body = []byte(strings.Replace(good, `,"data"`, `, "data"`, 1)) },
		"an escape":       func(r *reply) { r.body = []byte(strings.Replace(good, "order.", `order\u002e`, 1)) },
		"a member more":   func(r *reply) { r.body = []byte(strings.Replace(good, `"state":`, `"more":1,"state":`, 1)) },
		"an error":        func(r *reply) { r.body = []byte(strings.Replace(good, `"data":{"ded`, `"error":{},"data":{"ded`, 1)) },
		"a long status":   func(r *reply) { r.body = []byte(strings.Replace(good, `201`, `2010`, 1)) },
		"a bad time":      func(r *reply) { r.body = []byte(strings.Replace(good, `2026-11-30`, `2026-13-30`, 1)) },
		"a bad revision":  func(r *reply) { r.body = []byte(strings.Replace(good, `"7"`, `"07"`, 1)) },
		"a bad flag":      func(r *reply) { r.body = []byte(strings.Replace(good, `:true`, `:yes`, 1)) },
	} {
		r := replyOf(good)
		if change(r); r.acceptedBatch(2) != nil {
			t.Errorf("with %s the answer was read quickly", name)
		}
	}
	for _, n := range []int{0, 1, 3} {
		if replyOf(good).acceptedBatch(n) != nil {
			t.Errorf("an answer for two was read as one for %d", n)
		}
	}
}

func FuzzBatchAnswers(f *testing.F) {
	good := minimalAnswer(aTask(strings.Repeat("1", 32)), aTask(strings.Repeat("2", 32)))
	f.Add(good)
	f.Add(strings.ReplaceAll(good, "201", "503"))
	f.Add(strings.Replace(good, strings.Repeat("1", 32), "not an id", 1))
	f.Add(strings.Replace(good, "order.created", "", 1))
	f.Fuzz(func(t *testing.T, body string) {
		r := replyOf(body)
		if quick := r.acceptedBatch(2); quick != nil && !reflect.DeepEqual(quick, r.wholeBatch(2)) {
			t.Errorf("%q is read as %+v, and by the reader of JSON as %+v", body, quick, r.wholeBatch(2))
		}
	})
}

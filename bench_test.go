package orbit

import (
	"encoding/json"
	"strings"
	"testing"
)

func oneKiB() SubmitTaskRequest {
	r := fullRequest()
	r.Payload = json.RawMessage(`{"note":"` + strings.Repeat("n", 600) + `","lines":[` +
		strings.Repeat(`{"sku":"A-1","count":3,"price":12.50},`, 10) + `{}]}`)
	return r
}

func BenchmarkFreeze(b *testing.B) {
	r := oneKiB()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := r.Freeze(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseSubmission(b *testing.B) {
	body, _, err := oneKiB().Freeze()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseSubmission(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTaskAppendJSON(b *testing.B) {
	task := Task{State: StateWaiting, Payload: oneKiB().Payload}
	var room []byte
	b.ReportAllocs()
	for b.Loop() {
		room = task.AppendJSON(room[:0])
	}
}

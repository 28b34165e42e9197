package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
)

// kinds are all messages by type.
func kinds() map[string]any {
	all := map[string]any{}
	for _, some := range messages {
		for kind, data := range some {
			all[kind] = data
		}
	}
	return all
}

// What strict reading takes means the same when it is written again: a program that reads
// and writes messages through the types loses and invents nothing.
func FuzzMessagesKeepTheirMeaning(f *testing.F) { // API-002, REF-WRK-002
	for _, frame := range exampleFrame.FindAllStringSubmatch(document(f), -1) {
		f.Add([]byte(frame[1]))
	}
	for _, frame := range []string{
		`{"type":"credit","id":"1","data":{"slots":0}}`, `{"type":"credit","id":"1","data":{}}`, `{"type":"drain","id":"1","data":{"x":1}}`,
		`{"type":"task.renew","id":"1","data":{"attempt_id":"","epoch":18446744073709551615,"progress":""}}`,
		`{"type":"task.finish","id":"1","data":{"attempt_id":"a","epoch":1,"receipt":"<&>","outcome":"\u2028","retryable":false,"result":[1.50,{"\u003c":null}]}}`,
		`{"type":"hello.ok","ref":"1","data":{"node_id":"n","lease_ms":1,"ping_ms":0,"attempts":[],"max_frame":1,"server_time":"\ud83d\ude00"}}`,
		`{"type":"hello","id":"1","data":{"process_id":"p","handlers":[{"name":"h"}],"queues":[],"capacity":1,"held":[{"attempt_id":"a","epoch":1}]}}`,
	} {
		f.Add([]byte(frame))
	}
	all := kinds()
	f.Fuzz(func(t *testing.T, text []byte) {
		var e wire.Envelope
		if strictjson.DecodeInside(text, &e, 2) != nil || len(e.Data) == 0 || all[e.Type] == nil {
			return
		}
		read := func(data []byte) (any, error) {
			v := reflect.New(reflect.TypeOf(all[e.Type]))
			err := strictjson.DecodeInside(data, v.Interface(), 1)
			return v.Interface(), err
		}
		first, err := read(e.Data)
		if err != nil {
			return
		}
		written, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("%s: what was read cannot be written: %v", e.Data, err)
		}
		again, err := read(written)
		if err != nil {
			t.Fatalf("%s was written as %s, which is refused: %v", e.Data, written, err)
		}
		twice, _ := json.Marshal(again)
		if !bytes.Equal(written, twice) {
			t.Errorf("%s was written as %s, and then as %s", e.Data, written, twice)
		}
		sameMeaning(t, e.Data, written)
	})
}

// sameMeaning holds two texts of one value to each other. Members that are empty, zero or
// false may be left out of the second; what lies in business data may not.
func sameMeaning(t *testing.T, before, after []byte) {
	t.Helper()
	switch before[0] {
	case '{':
		sameMembers(t, before, after)
		return
	case '[':
		var one, other []json.RawMessage
		if json.Unmarshal(before, &one) != nil || json.Unmarshal(after, &other) != nil || len(one) != len(other) {
			t.Fatalf("%s was written as %s", before, after)
		}
		for i := range one {
			sameMeaning(t, one[i], other[i])
		}
		return
	}
	if !bytes.Equal(canonical(t, before), canonical(t, after)) {
		t.Errorf("%s was written as %s", before, after)
	}
}

func sameMembers(t *testing.T, before, after []byte) {
	t.Helper()
	one, other := membersOf(t, before), membersOf(t, after)
	for name := range other {
		if _, known := one[name]; !known {
			t.Errorf("%s was written as %s: %s is new", before, after, name)
		}
	}
	for name, text := range one {
		kept, found := other[name]
		switch {
		case found && (name == "payload" || name == "result"):
			if !bytes.Equal(canonical(t, text), canonical(t, kept)) {
				t.Errorf("%s was written as %s: %s has changed", before, after, name)
			}
		case found:
			sameMeaning(t, text, kept)
		case !slices.Contains([]string{`""`, `0e0`, `false`, `[]`}, string(canonical(t, text))):
			t.Errorf("%s was written as %s: %s is lost", before, after, name)
		}
	}
}

func membersOf(t *testing.T, text []byte) (all map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return all
}

func canonical(t *testing.T, text []byte) []byte {
	t.Helper()
	out, err := strictjson.AppendCanonical(nil, text, -2) // what lies around a task object does not count
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

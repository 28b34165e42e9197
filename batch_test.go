package orbit

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func batchOf(items ...string) []byte {
	return []byte(`{"items":[` + strings.Join(items, ",") + `]}`)
}

func item(key, task string) string {
	return `{"idempotency_key":` + quoted(key) + `,"task":` + task + `}`
}

// REF-BATCH-002.
func TestFaultsBelowAnItemAreTheItemsAnswer(t *testing.T) {
	good := string(with("x", ""))
	tests := []struct{ name, item, field string }{
		{"NotAnObject", `3`, "item"},
		{"Null", `null`, "item"},
		{"UnknownMember", `{"idempotency_key":"k","task":` + good + `,"x":1}`, "x"},
		{"CaseAlias", `{"Idempotency_Key":"k","task":` + good + `}`, "Idempotency_Key"},
		{"DuplicateMember", `{"idempotency_key":"k","idempotency_key":"k","task":` + good + `}`, "idempotency_key"},
		{"NoKey", `{"task":` + good + `}`, "idempotency_key"},
		{"BlankInKey", item(" k", good), "idempotency_key"},
		{"EmptyKey", item("", good), "idempotency_key"},
		{"NoTask", `{"idempotency_key":"k"}`, "task"},
		{"NullTask", item("k", `null`), "task"},
		{"NullTraceparent", `{"idempotency_key":"k","task":` + good + `,"traceparent":null}`, "traceparent"},
		{"BadTraceparent", `{"idempotency_key":"k","task":` + good + `,"traceparent":""}`, "traceparent"},
		{"UnknownField", item("k", string(with("namespace_id", `"x"`))), "task.namespace_id"},
		{"DuplicateInPayload", item("k", string(with("payload", `{"a":1,"a":1}`))), "task.payload.a"},
		{"LoneSurrogate", item("k", string(with("payload", `"\ud800"`))), "task.payload"},
		{"Number", item("k", string(with("payload", `[1e999]`))), "task.payload[0]"},
		{"Size", item("k", string(with("payload", `"`+strings.Repeat("a", 262143)+`"`))), "task.payload"},
		{"Depth", item("k", string(with("payload", nested(32)))), "task.payload" + strings.Repeat("[0]", 31)},
		{"AbsurdDepth", item("k", string(with("payload", nested(20000)))), "task.payload" + strings.Repeat("[0]", 31)},
		{"Rule", item("k", string(with("retry", `{"max_attempts":101}`))), "task.retry.max_attempts"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			entries, err := ParseBatch(batchOf(item("before", good), test.item, item("after", good)))
			if err != nil || len(entries) != 3 {
				t.Fatalf("ParseBatch: %d entries, %v", len(entries), err)
			}
			if entries[0].Err != nil || entries[0].Key != "before" || entries[2].Err != nil || entries[2].Key != "after" {
				t.Errorf("neighbours %+v and %+v suffered", entries[0], entries[2])
			}
			var bad *InvalidArgumentError
			if !errors.As(entries[1].Err, &bad) || bad.Field != test.field {
				t.Errorf("error %v, want one of %s", entries[1].Err, test.field)
			}
		})
	}
}

func TestOnlyADocumentThatCannotBeCutIsRefusedAsAWhole(t *testing.T) {
	good := item("k", string(with("x", "")))
	many := make([]string, 101)
	for i := range many {
		many[i] = good
	}
	tests := map[string]struct {
		body  []byte
		field string
	}{
		"Empty":         {nil, "body"},
		"BadUTF8":       {batchOf(item("k", string(with("payload", "\"\xff\"")))), "body"},
		"Syntax":        {batchOf(`{"idempotency_key":}`), "items[0].idempotency_key"},
		"Trailing":      {append(batchOf(good), '1'), "body"},
		"UnknownMember": {[]byte(`{"items":[` + good + `],"atomic":true}`), "atomic"},
		"Duplicate":     {[]byte(`{"items":[` + good + `],"items":[]}`), "items"},
		"NotAnArray":    {[]byte(`{"items":{}}`), "items"},
		"None":          {batchOf(), "items"},
		"101":           {batchOf(many...), "items"},
		"TooLong":       {[]byte(string(batchOf(good)) + strings.Repeat(" ", 524289)), "body"},
	}
	for name, test := range tests {
		entries, err := ParseBatch(test.body)
		var bad *InvalidArgumentError
		if entries != nil || !errors.As(err, &bad) || bad.Field != test.field {
			t.Errorf("%s: %d entries, %v; want a refusal of %s", name, len(entries), err, test.field)
		}
	}
	if entries, err := ParseBatch(batchOf(many[:100]...)); err != nil || len(entries) != 100 {
		t.Errorf("100 items: %d entries, %v", len(entries), err)
	}
}

func TestFrozenBytesTravelInABatchUnchanged(t *testing.T) {
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	deep := fullRequest()
	deep.Payload = []byte(nested(31))
	var items []FrozenItem
	var want []Submission
	for i, r := range []SubmitTaskRequest{fullRequest(), deep} {
		body, s, err := r.Freeze()
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, FrozenItem{Key: fmt.Sprintf(`k"\%d`, i), Body: body, Traceparent: []string{"", trace}[i]})
		want = append(want, s)
	}
	body, err := batchBody(items)
	if err != nil {
		t.Fatal(err)
	}
	if size := BatchOverhead + items[0].Size() + items[1].Size() - 1; len(body) != size {
		t.Errorf("body of %d bytes, sizes tell %d", len(body), size)
	}
	entries, err := ParseBatch(body)
	if err != nil || len(entries) != 2 {
		t.Fatalf("ParseBatch(%s) = %d entries, %v", body, len(entries), err)
	}
	for i, e := range entries {
		if e.Err != nil || e.Key != items[i].Key || e.Traceparent != items[i].Traceparent || !reflect.DeepEqual(e.Submission, want[i]) {
			t.Errorf("entry %d: %+v, want %+v", i, e, want[i])
		}
		if !strings.Contains(string(body), string(items[i].Body)) {
			t.Errorf("item %d was not spliced byte for byte", i)
		}
	}
}

func TestBatchesThatNoServerTakesAreNotSent(t *testing.T) {
	good := FrozenItem{Key: "k", Body: with("x", "")}
	large := FrozenItem{Key: "k", Body: []byte("{" + strings.Repeat(" ", 262144) + "}")}
	tests := map[string][]FrozenItem{
		"items":                    nil,
		"items ":                   make([]FrozenItem, 101),
		"items  ":                  {large, large},
		"items[1].idempotency_key": {good, {Key: "a b", Body: good.Body}},
		"items[1].traceparent":     {good, {Key: "k", Body: good.Body, Traceparent: "x"}},
		"items[0].task":            {{Key: "k"}},
	}
	for field, items := range tests {
		var bad *InvalidArgumentError
		if _, err := batchBody(items); !errors.As(err, &bad) || bad.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	// Exactly the limit passes.
	rest := MaxBodyBytes - BatchOverhead - good.Size() - len(`{"idempotency_key":"k","task":{}}`)
	fits := FrozenItem{Key: "k", Body: []byte("{" + strings.Repeat(" ", rest) + "}")}
	if body, err := batchBody([]FrozenItem{good, fits}); err != nil || len(body) != MaxBodyBytes {
		t.Errorf("batch of %d bytes: %v", len(body), err)
	}
}

// A batch is read without a fault of one item touching another, whatever the bytes are.
func FuzzBatch(f *testing.F) {
	f.Add([]byte(`{"items":[{"idempotency_key":"a","task":{"queue_id":"11111111111111111111111111111111"}},7]}`))
	f.Add([]byte(`{"items":[[[[`))
	f.Add([]byte(`{"\u0069tems":[{"idempotency_key":"a","task":{}},{"idempotency_key":"b","traceparent":"x","task":{}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		entries, err := ParseBatch(body)
		if (err == nil) != (len(entries) > 0) || len(entries) > MaxBatchItems {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		for i, e := range entries {
			var bad *InvalidArgumentError
			switch {
			case e.Err != nil && !errors.As(e.Err, &bad):
				t.Fatalf("entry %d: error of type %T", i, e.Err)
			case e.Err == nil && ValidateIdempotencyKey(e.Key) != nil:
				t.Fatalf("entry %d has the key %q", i, e.Key)
			}
			if e.Err == nil && e.Submission.Request.normalise() != nil {
				t.Fatalf("entry %d breaks a rule", i)
			}
		}
	})
}

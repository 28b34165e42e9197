package main

import (
	"errors"
	"fmt"
	"sync"
	"testing"
)

// EX-003, EX-006: the model refuses what is stale, foreign or another operation's, and knows
// what it has applied.
func TestResourceChecksEachWrite(t *testing.T) {
	r := newResource("ns")
	first := write{namespace: "ns", key: "object/42", token: 3, operation: "a", attempt: "1", content: "x"}
	second := write{namespace: "ns", key: "object/42", token: 5, operation: "b", attempt: "2", content: "y"}
	changed, foreign, other := second, second, second
	changed.content = "z"
	foreign.namespace = "other"
	other.key, other.token, other.operation = "object/43", 1, "c" // another key has tokens of its own
	again := first
	again.token = 4 // a later attempt of the same operation
	for i, c := range []struct {
		w       write
		applied bool
		err     error
	}{
		{first, true, nil}, {first, false, nil}, {again, false, nil}, {first, false, errStale},
		{second, true, nil}, {again, false, errStale}, {changed, false, errConflict}, {foreign, false, errForbidden}, {other, true, nil},
	} {
		if applied, err := r.apply(c.w); applied != c.applied || !errors.Is(err, c.err) {
			t.Errorf("%d: apply = %t, %v; want %t, %v", i, applied, err, c.applied, c.err)
		}
	}
	if n := len(r.written()); n != 3 {
		t.Errorf("%d writes, want 3", n)
	}
}

// Check and write are one step: the tokens of what was written never fall.
func TestResourceIsAtomic(t *testing.T) {
	r := newResource("ns")
	var all sync.WaitGroup
	for token := range uint64(200) {
		all.Go(func() {
			r.apply(write{namespace: "ns", key: "k", token: token + 1, operation: fmt.Sprint(token)})
		})
	}
	all.Wait()
	last := uint64(0)
	for _, w := range r.written() {
		if w.token < last {
			t.Fatalf("token %d was written after %d", w.token, last)
		}
		last = w.token
	}
	if last != 200 {
		t.Errorf("the last token written is %d, want 200", last)
	}
}

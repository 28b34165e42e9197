package session

import (
	"slices"
	"testing"
)

func TestOwnersTakeTurns(t *testing.T) {
	var q turns[string]
	for _, one := range []struct{ owner, item string }{
		{"a", "a1"}, {"a", "a2"}, {"a", "a3"}, {"b", "b1"}, {"a", "a4"}, {"c", "c1"}, {"b", "b2"},
	} {
		q.push(one.owner, one.item)
	}
	var got []string
	for i := 0; q.len() > 0; i++ {
		if i == 4 {
			q.push("d", "d1") // waits for one of each other at most
		}
		if next := *q.peek(); next != q.pop() {
			t.Fatal("another item comes than was announced")
		} else {
			got = append(got, next)
		}
	}
	if want := []string{"a1", "b1", "c1", "a2", "b2", "a3", "d1", "a4"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if q.lines != nil || q.next != nil {
		t.Error("an empty queue keeps the memory of a burst")
	}
}

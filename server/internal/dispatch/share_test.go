package dispatch

import (
	"slices"
	"testing"
)

func TestDivideIsEvenAndLeavesNothingThatIsWanted(t *testing.T) { // REF-PRI-001
	for _, c := range []struct {
		n           int
		wants, want []int
	}{
		{100, []int{100}, []int{100}},
		{100, []int{100, 3}, []int{97, 3}},
		{100, []int{100, 100, 100}, []int{33, 33, 34}},
		{100, []int{0, 70, 70}, []int{0, 50, 50}},
		{100, []int{10, 20, 30}, []int{10, 20, 30}},
		{1, []int{5, 5}, []int{0, 1}},
		{0, []int{5}, []int{0}},
		{5, nil, []int{}},
	} {
		if got := divide(c.n, c.wants); !slices.Equal(got, c.want) {
			t.Errorf("divide(%d, %v) = %v, want %v", c.n, c.wants, got, c.want)
		}
	}
}

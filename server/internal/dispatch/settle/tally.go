package settle

import "github.com/orbitkit/orbit/server/internal/task"

// A Tally is what a settlement did to attempts, for those who count it after the commit.
type Tally struct {
	Started int // for the first time
	Ended   map[End]int
}

// An End is how an attempt ended.
type End struct {
	Outcome task.Outcome
	// Reason is one of the Reason constants, or empty if the worker said how it ended.
	Reason string
}

// Tally tells what has been done so far. After a commit of unknown outcome the second run
// finds what the first wrote, and tells of nothing: counts made of tallies may be too low
// by what such commits did, and are never too high.
func (s *Settlement) Tally() Tally {
	t := Tally{Started: len(s.started)}
	if len(s.ended) > 0 {
		t.Ended = make(map[End]int, 1)
	}
	for _, a := range s.ended {
		t.Ended[End{a.Outcome, a.ending.Reason}]++
	}
	return t
}

// Empty reports whether nothing happened to any attempt.
func (t Tally) Empty() bool { return t.Started == 0 && len(t.Ended) == 0 }

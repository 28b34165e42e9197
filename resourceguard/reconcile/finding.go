package reconcile

import (
	"errors"
	"fmt"
)

// An Outcome is what a pass made of a task.
type Outcome string

// The outcomes. Only the first three are decisions, and each is the server's exact answer.
const (
	Succeeded Outcome = "succeeded" // the write is on record
	Failed    Outcome = "failed"    // the write was provably not applied
	Retried   Outcome = "retried"   // the same, and Finding.RetryID repeats it
	Left      Outcome = "left"      // to people, because of Finding.Reason
	Overtaken Outcome = "overtaken" // somebody else changed or decided it meanwhile
	Undecided Outcome = "undecided" // something could not be reached: the next pass goes on
)

// A Reason says why a task is left to people.
type Reason string

// The reasons.
const (
	Keyless      Reason = "keyless"       // it has no concurrency_key, so nothing fences its attempts
	NoRule       Reason = "no_rule"       // its handler is not configured
	NoStore      Reason = "no_store"      // its key lies in no guarded store
	NoFence      Reason = "no_fence"      // no attempt has a fence_token, or one that ended unknown has none
	NoRoot       Reason = "no_root"       // a task of its chain of retries is gone, or not to be read
	NoOperation  Reason = "no_operation"  // Rule.Operation returned an error
	OtherContent Reason = "other_content" // the operation was recorded with other content
	TooOld       Reason = "too_old"       // the absent record may have been pruned
	Refused      Reason = "refused"       // the store refuses namespace, key or operation

	// Superseded: there is no record, and a later token was seen, which may be that of another
	// task with the same operation. It may yet write it: look at the repeats of the first task.
	Superseded Reason = "superseded"
)

// A Finding is what became of one task in one pass.
type Finding struct {
	TaskID, QueueID string
	Handler         Handler
	Outcome         Outcome
	Reason          Reason // with Left
	RetryID         string // with Retried: id of the new task
	Err             error  // with Undecided, and with Left if there is more to tell
}

// Counts are the findings of one pass.
type Counts struct {
	Succeeded, Failed, Retried, Left, Overtaken, Undecided int
}

func (c *Counts) add(o Outcome) {
	switch o {
	case Succeeded:
		c.Succeeded++
	case Failed:
		c.Failed++
	case Retried:
		c.Retried++
	case Left:
		c.Left++
	case Overtaken:
		c.Overtaken++
	case Undecided:
		c.Undecided++
	}
}

// left is the error of who finds a reason to leave a task.
type left struct {
	reason Reason
	err    error
}

func (l *left) Error() string { return fmt.Sprintf("left to people (%s): %v", l.reason, l.err) }
func (l *left) Unwrap() error { return l.err }

func leave(reason Reason) error { return &left{reason, errors.New("nothing is proven")} }

var errOvertaken = errors.New("reconcile: the task was changed or decided meanwhile")

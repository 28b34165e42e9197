package retention

import (
	"fmt"
	"time"
)

// Counts are numbers of rows.
type Counts struct {
	Tasks    int64
	Attempts int64
	Evidence int64
	Reviews  int64
	Events   int64
	Records  int64 // of idempotency keys, with or without a task
}

func (c *Counts) add(more Counts) {
	c.Tasks += more.Tasks
	c.Attempts += more.Attempts
	c.Evidence += more.Evidence
	c.Reviews += more.Reviews
	c.Events += more.Events
	c.Records += more.Records
}

// rows is how many rows they are in all.
func (c Counts) rows() int64 {
	return c.Tasks + c.Attempts + c.Evidence + c.Reviews + c.Events + c.Records
}

// String tells the counts in one line.
func (c Counts) String() string {
	return fmt.Sprintf("tasks %d, attempts %d, evidence %d, reviews %d, events %d, records %d",
		c.Tasks, c.Attempts, c.Evidence, c.Reviews, c.Events, c.Records)
}

// A Report tells of one run.
type Report struct {
	At     time.Time // begin of the run, by the database's clock
	Cutoff time.Time // tasks that ended later stay
	Counts Counts    // deleted; in a preview, what would be
	// Oldest is how long the first thing to go had been due. It grows from run to run if
	// the runs do not keep up. Zero if nothing was due.
	Oldest time.Duration
}

// Empty reports that nothing was due.
func (r *Report) Empty() bool { return r.Counts == Counts{} }

// due notes something that could go since then, in microseconds.
func (r *Report) due(since int64) {
	r.Oldest = max(r.Oldest, r.At.Sub(time.UnixMicro(since)))
}

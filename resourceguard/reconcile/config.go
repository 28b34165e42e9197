package reconcile

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/orbitkit/orbit"
)

// A Handler names the code of a task, as the worker registers it.
type Handler struct {
	Name, Version string
}

// An Absent says what becomes of a task whose write was provably not applied.
type Absent int

// The answers to an absent operation.
const (
	Fail  Absent = iota + 1 // the review decides FAILED
	Retry                   // the same, and then a manual retry makes a new task of it
)

// A Rule tells where the one guarded write of a handler's tasks is recorded, and what to
// do without it. See the package comment for what it promises.
type Rule struct {
	// Store returns the store that a concurrency_key lies in, or nil if it is in none:
	// then the task is left. A key that moves to another store has to take its guard rows
	// along first: without them what was applied is absent. It may be called by several
	// goroutines at once. Required.
	Store func(key string) Store
	// Absent is required: Fail or Retry.
	Absent Absent
	// Operation returns the operation's identity and content, as the handler gives them
	// to the guard. root is the id of the first task of the chain of manual retries. An
	// error leaves the task. Default root and the task's payload, as package guardworker
	// has them.
	Operation func(t orbit.Task, root string) (operation string, content []byte, err error)
}

// Config tunes a Reconciler. The zero value is ready to use.
type Config struct {
	// Interval is the pause between two passes of Run. Default 30s.
	Interval time.Duration
	// Timeout bounds the work on one task, so that a store that does not answer, even one
	// that ignores the end of its context, holds up no other. Default 1m.
	Timeout time.Duration
	// RetryFirst and RetryMost bound the exponential back-off, with jitter, after a pass
	// that met an error. Defaults 1s and 5m.
	RetryFirst, RetryMost time.Duration
	// MaxAge is how long the first task of a chain may have been created ago for an absent
	// record to prove anything: owners may prune records after the platform's 90 days. At
	// most 90 days minus a day for clocks that differ, which is the default. It goes by the
	// chain: if Rule.Operation gives tasks of other chains the same operation, an older one's
	// record may be gone all the same, so records must then be kept longer.
	MaxAge time.Duration
	// MaxRetries bounds a chain of manual retries: a task that already is the so-many-th
	// repeat fails for good. Default 3, at most 20.
	MaxRetries int
	// Source tells the audit who decided, at most 128 bytes. Reconcilers that share tasks
	// have the same one: it tells which retries are theirs to complete. Default
	// "orbit-reconcile".
	Source string
	// Observer is told what became of each task that was looked at, once per pass. It is
	// called by the goroutine of the pass. Default nobody.
	Observer func(Finding)
	// Log gets decisions and what went wrong; never a payload, a result or a credential.
	// Default discards.
	Log *slog.Logger
}

const (
	longestAge    = orbit.IdempotencyRetention - 24*time.Hour
	mostRetries   = 20
	defaultSource = "orbit-reconcile"
)

func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.RetryFirst = cmp.Or(c.RetryFirst, time.Second)
	c.RetryMost = cmp.Or(c.RetryMost, 5*time.Minute)
	c.MaxAge = cmp.Or(c.MaxAge, longestAge)
	c.MaxRetries = cmp.Or(c.MaxRetries, 3)
	c.Source = cmp.Or(c.Source, defaultSource)
	if c.Observer == nil {
		c.Observer = func(Finding) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Interval < 0 || c.Timeout < 0:
		return fmt.Errorf("reconcile: Interval %v and Timeout %v must not be negative", c.Interval, c.Timeout)
	case c.RetryFirst < 0 || c.RetryMost < c.RetryFirst:
		return fmt.Errorf("reconcile: RetryFirst %v must not be negative and RetryMost %v not less", c.RetryFirst, c.RetryMost)
	case c.MaxAge < 0 || c.MaxAge > longestAge:
		return fmt.Errorf("reconcile: MaxAge %v must be from 0 to %v", c.MaxAge, longestAge)
	case c.MaxRetries < 0 || c.MaxRetries > mostRetries:
		return fmt.Errorf("reconcile: MaxRetries %d must be from 0 to %d", c.MaxRetries, mostRetries)
	case len(c.Source) > orbit.MaxReviewSource:
		return fmt.Errorf("reconcile: Source must be at most %d bytes", orbit.MaxReviewSource)
	}
	return nil
}

func (h Handler) validate(r Rule) error {
	switch {
	case h.Name == "" || h.Version == "":
		return fmt.Errorf("reconcile: a handler must have a name and a version, not %q and %q", h.Name, h.Version)
	case r.Store == nil:
		return fmt.Errorf("reconcile: the rule of handler %s %s must have a Store", h.Name, h.Version)
	case r.Absent != Fail && r.Absent != Retry:
		return fmt.Errorf("reconcile: Absent of handler %s %s must be Fail or Retry", h.Name, h.Version)
	}
	return nil
}

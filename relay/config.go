package relay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// A Target is a task server and namespace that rows may be meant for, with the means to
// reach it.
type Target struct {
	// Name is the target's name in outbox.Message.
	Name string
	// Client has the address and the credential. Make it with MinimalBatchAnswers,
	// which keeps answers short, and with a Traceparent if requests are traced.
	Client *orbit.Client
	// NamespaceID is the namespace that the target stands for. A credential of another
	// one keeps the target paused. Empty takes the namespace of the first answer and
	// holds on to it.
	NamespaceID string
}

// Config tunes a Relay. The zero value is ready to use.
type Config struct {
	// Name tells people who leads a shard, at most 128 bytes. Default host name and
	// process id.
	Name string
	// Lease is how long a crashed leader keeps its shard, at most 24h. Default 10s.
	Lease time.Duration
	// SendTimeout bounds one request, from dialling to the end of the answer. At most
	// 0.6 of Lease: nothing is sent that may outlive the lease, and a lease is renewed
	// when 0.3 of it has passed. Default 5s.
	SendTimeout time.Duration
	// StopTimeout bounds the end of Run after its context is canceled: requests under
	// way and their settling. At most 1h. Default SendTimeout + 5s.
	StopTimeout time.Duration
	// Senders is how many requests may be under way at once per shard and target, at
	// most 64. Default 4.
	Senders int
	// BatchRows is the most rows in one request, at most 100. Default 100.
	BatchRows int
	// BufferBytes bounds the requests read ahead per shard and target; one row is
	// read whatever its size, and a look at a lane reads at most as much once more.
	// Default 4 MiB.
	BufferBytes int
	// Poll is the longest time between looks for due rows while idle. It is the last
	// resort: see Notify and Handler. At most 1h. Default 1s.
	Poll time.Duration
	// RetryFirst and RetryMost bound the exponential back-off, with full jitter, of a
	// row with an unknown outcome, at most 24h. Defaults 1s and 5m.
	RetryFirst, RetryMost time.Duration
	// PauseFirst and PauseMost bound the back-off of a target: between probes while
	// it is paused, and while it cannot be reached, at most 24h. Defaults 1s and 1m.
	PauseFirst, PauseMost time.Duration
	// MaxRetryAfter is the longest wait that a server may ask for, at most 24h. Default 5m.
	MaxRetryAfter time.Duration
	// Retain is how long DELIVERED rows are kept: the leader of shard 0 deletes older
	// ones in small batches, with the answers in their journal. A row that is gone no
	// longer detects its duplicate in the outbox; the server does for 90 days. Negative
	// keeps them for ever. Default 30 days (OUT-018).
	Retain time.Duration
	// Hook wakes the relay when the business calls its Notify. Default none.
	Hook *outbox.Hook
	// Observer is told what the relay does, for metrics. Default nobody.
	Observer Observer
	// TracerProvider makes the tracer of requests. A row's send is a span of the trace that
	// was frozen with the row, and the server goes on from there. Default: that of
	// otel.GetTracerProvider, which makes none unless the program sets one; what was frozen
	// is then sent as it is.
	TracerProvider trace.TracerProvider
	// Log gets what happens to targets, shards and the database; never a payload,
	// a key or a credential. Default discards.
	Log *slog.Logger
}

const (
	minLease   = 100 * time.Millisecond
	minRetain  = time.Minute
	maxWait    = time.Hour // longer ones are mistakes: nothing would go on
	longest    = 24 * time.Hour
	maxSenders = 64
	// One row of the largest size, with what a batch has around it, always fits.
	minBuffer = orbit.MaxBodyBytes
)

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, defaultName())
	c.Lease = cmp.Or(c.Lease, 10*time.Second)
	c.SendTimeout = cmp.Or(c.SendTimeout, 5*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, c.SendTimeout+5*time.Second)
	c.Senders = cmp.Or(c.Senders, 4)
	c.BatchRows = cmp.Or(c.BatchRows, orbit.MaxBatchItems)
	c.BufferBytes = cmp.Or(c.BufferBytes, 4<<20)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.RetryFirst = cmp.Or(c.RetryFirst, time.Second)
	c.RetryMost = cmp.Or(c.RetryMost, 5*time.Minute)
	c.PauseFirst = cmp.Or(c.PauseFirst, time.Second)
	c.PauseMost = cmp.Or(c.PauseMost, time.Minute)
	c.MaxRetryAfter = cmp.Or(c.MaxRetryAfter, 5*time.Minute)
	c.Retain = cmp.Or(c.Retain, 30*24*time.Hour)
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func defaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "relay"
	}
	pid := fmt.Sprintf(":%d", os.Getpid())
	return host[:min(len(host), outbox.MaxLeader-len(pid))] + pid
}

// Validate reports every rule that c breaks. Zero values stand for their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var bad []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf("relay: "+format, args...))
		}
	}
	check(len(c.Name) <= outbox.MaxLeader, "Name has %d bytes, at most %d", len(c.Name), outbox.MaxLeader)
	check(c.Lease >= minLease && c.Lease <= longest, "Lease %v must be %v to %v", c.Lease, minLease, longest)
	check(c.SendTimeout > 0 && c.SendTimeout <= c.Lease*6/10,
		"SendTimeout %v must be more than zero and at most 0.6 of Lease %v", c.SendTimeout, c.Lease)
	check(c.StopTimeout >= c.SendTimeout && c.StopTimeout <= maxWait, "StopTimeout %v must be at least SendTimeout %v and at most %v", c.StopTimeout, c.SendTimeout, maxWait)
	check(c.Senders >= 1 && c.Senders <= maxSenders, "Senders %d must be 1 to %d", c.Senders, maxSenders)
	check(c.BatchRows >= 1 && c.BatchRows <= orbit.MaxBatchItems, "BatchRows %d must be 1 to %d", c.BatchRows, orbit.MaxBatchItems)
	check(c.BufferBytes >= minBuffer && c.BufferBytes <= 1<<30, "BufferBytes %d must be %d to %d", c.BufferBytes, minBuffer, 1<<30)
	check(c.Poll >= minPoll && c.Poll <= maxWait, "Poll %v must be %v to %v", c.Poll, minPoll, maxWait)
	check(c.RetryFirst > 0 && c.RetryFirst <= c.RetryMost && c.RetryMost <= longest, "RetryFirst %v must be more than zero and at most RetryMost %v, that at most %v", c.RetryFirst, c.RetryMost, longest)
	check(c.PauseFirst > 0 && c.PauseFirst <= c.PauseMost && c.PauseMost <= longest, "PauseFirst %v must be more than zero and at most PauseMost %v, that at most %v", c.PauseFirst, c.PauseMost, longest)
	check(c.Retain < 0 || c.Retain >= minRetain, "Retain %v must be at least %v, or negative to keep delivered rows", c.Retain, minRetain)
	check(c.MaxRetryAfter > 0 && c.MaxRetryAfter <= longest, "MaxRetryAfter %v must be more than zero and at most %v", c.MaxRetryAfter, longest)
	return errors.Join(bad...)
}

// validateTargets refuses targets that cannot be told apart or not be reached.
func validateTargets(targets []Target) error {
	if len(targets) == 0 {
		return errors.New("relay: no target")
	}
	seen := map[string]bool{}
	for _, t := range targets {
		if err := ValidateTarget(t); err != nil {
			return err
		}
		if seen[t.Name] {
			return fmt.Errorf("relay: target %q is given twice", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// ValidateTarget refuses a target that New would refuse. It does no I/O.
func ValidateTarget(t Target) error {
	if err := outbox.ValidateTarget(t.Name); err != nil {
		return fmt.Errorf("relay: target %q: %w", t.Name, err)
	}
	switch {
	case t.Client == nil:
		return fmt.Errorf("relay: target %q has no client", t.Name)
	case t.NamespaceID != "" && !orbit.ValidID(t.NamespaceID):
		return fmt.Errorf("relay: target %q: NamespaceID must be 32 lower-case hexadecimal characters", t.Name)
	}
	return nil
}

package worker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// A Handler names what a worker can run: the handler and its version, as tasks
// name them.
type Handler struct {
	Name    string // 1-128 characters
	Version string // 1-64 characters
}

// A Registration is what a worker process says of itself. It is fixed for the life
// of ProcessID: the server refuses a reconnect that changes it with STATE_CONFLICT.
type Registration struct {
	ProcessID string    // 32 lower-case hex characters, new for each start of a process; see NewProcessID
	Handlers  []Handler // 1-200, in any order; times the queues at most 2000
	Queues    []string  // ids of the queues to take tasks from, 1-200
	Capacity  int       // most attempts held at one time, 1-1000
	// ConcurrencyKeys says that tasks with a resource key may be given to this
	// process. Set it only when every resource that its handlers write checks the
	// concurrency token: without that check an outdated attempt can overwrite a
	// newer one. Default false: the process gets keyless tasks only.
	ConcurrencyKeys bool
}

// NewProcessID returns a new random process identity.
func NewProcessID() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// Bounds of a registration.
const (
	maxHandlers = 200
	maxQueues   = 200
	maxPairs    = 2000 // handlers times queues
	maxCapacity = 1000
)

// validate refuses a registration that no server would take.
func (r Registration) validate() error {
	if !orbit.ValidID(r.ProcessID) {
		return refuse("ProcessID", "must be 32 lower-case hexadecimal characters")
	}
	if err := r.validateHandlers(); err != nil {
		return err
	}
	if err := r.validateQueues(); err != nil {
		return err
	}
	if len(r.Handlers)*len(r.Queues) > maxPairs {
		return refuse("Handlers", "%d times %d queues must be at most %d", len(r.Handlers), len(r.Queues), maxPairs)
	}
	if r.Capacity < 1 || r.Capacity > maxCapacity {
		return refuse("Capacity", "%d must be 1 to %d", r.Capacity, maxCapacity)
	}
	return nil
}

func (r Registration) validateHandlers() error {
	if len(r.Handlers) < 1 || len(r.Handlers) > maxHandlers {
		return refuse("Handlers", "must name 1 to %d handlers", maxHandlers)
	}
	const rule = "must be 1 to %d characters, begin with an ASCII letter or digit and contain only letters, digits, '_', '.', ':' and '-'"
	for i, h := range r.Handlers {
		switch {
		case !validName(h.Name, orbit.MaxHandler):
			return refuse("Handlers", "%q: name "+rule, h.Name, orbit.MaxHandler)
		case !validName(h.Version, orbit.MaxHandlerVersion):
			return refuse("Handlers", "%q: version "+rule, h.Name, orbit.MaxHandlerVersion)
		case slices.Contains(r.Handlers[:i], h):
			return refuse("Handlers", "%q %q must not be named twice", h.Name, h.Version)
		}
	}
	return nil
}

func (r Registration) validateQueues() error {
	if len(r.Queues) < 1 || len(r.Queues) > maxQueues {
		return refuse("Queues", "must name 1 to %d queues", maxQueues)
	}
	for i, id := range r.Queues {
		switch {
		case !orbit.ValidID(id):
			return refuse("Queues", "%q must be 32 lower-case hexadecimal characters", id)
		case slices.Contains(r.Queues[:i], id):
			return refuse("Queues", "%s must not be named twice", id)
		}
	}
	return nil
}

func refuse(field, format string, args ...any) error {
	return fmt.Errorf("worker: %s: %w", field, fmt.Errorf(format, args...))
}

// validName applies the contract's rule for names and versions (SUB-008).
func validName(name string, most int) bool {
	return name != "" && len(name) <= most && !strings.ContainsRune("_.:-", rune(name[0])) &&
		strings.IndexFunc(name, notInName) < 0
}

func notInName(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("_.:-", r)
}

// hello is the registration as it is sent. A false ConcurrencyKeys is left out: an
// older server does not know the field.
func (r Registration) hello(held []Attempt) wire.Hello {
	h := wire.Hello{
		ProcessID: r.ProcessID, Queues: r.Queues, Capacity: r.Capacity, ConcurrencyKeys: r.ConcurrencyKeys,
	}
	for _, one := range r.Handlers {
		h.Handlers = append(h.Handlers, wire.Handler{Name: one.Name, Version: one.Version})
	}
	for _, a := range held {
		h.Held = append(h.Held, wire.Held{AttemptID: a.ID, Epoch: a.Epoch})
	}
	return h
}

func (r Registration) serves(h Handler) bool { return slices.Contains(r.Handlers, h) }

func (r Registration) consumes(queue string) bool { return slices.Contains(r.Queues, queue) }

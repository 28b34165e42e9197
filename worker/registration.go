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
	Handlers  []Handler // at least one
	Queues    []string  // ids of the queues to take tasks from, at least one
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

const maxCapacity = 1000

// validate refuses a registration that no server would take.
func (r Registration) validate() error {
	if !orbit.ValidID(r.ProcessID) {
		return refuse("ProcessID", "must be 32 lower-case hexadecimal characters")
	}
	if len(r.Handlers) == 0 {
		return refuse("Handlers", "must name at least one handler")
	}
	for _, h := range r.Handlers {
		if !validName(h.Name, orbit.MaxHandler) {
			return refuse("Handlers", "%q: name must be 1 to %d characters, begin with an ASCII letter or digit and contain only letters, digits, '_', '.', ':' and '-'", h.Name, orbit.MaxHandler)
		}
		if !validName(h.Version, orbit.MaxHandlerVersion) {
			return refuse("Handlers", "%q: version must be 1 to %d characters, begin with an ASCII letter or digit and contain only letters, digits, '_', '.', ':' and '-'", h.Name, orbit.MaxHandlerVersion)
		}
	}
	return r.validateShare()
}

func (r Registration) validateShare() error {
	if len(r.Queues) == 0 {
		return refuse("Queues", "must name at least one queue")
	}
	for _, id := range r.Queues {
		if !orbit.ValidID(id) {
			return refuse("Queues", "%q must be 32 lower-case hexadecimal characters", id)
		}
	}
	if r.Capacity < 1 || r.Capacity > maxCapacity {
		return refuse("Capacity", "%d must be 1 to %d", r.Capacity, maxCapacity)
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

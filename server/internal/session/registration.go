package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// Bounds of a registration.
const (
	maxHandlers = 200
	maxQueues   = 200
	maxPairs    = 2000 // handlers times queues
	maxCapacity = 1000
)

// A registration is what a process said of itself, checked. It is fixed for the life of
// the process (WRK-003).
type registration struct {
	process  sqldb.ID
	handlers []wire.Handler // sorted
	queues   []sqldb.ID     // sorted
	capacity int
	keys     bool
}

// newRegistration checks a hello by itself. Its error is an [*orbit.InvalidArgumentError].
func newRegistration(h *wire.Hello) (*registration, error) {
	r := &registration{capacity: h.Capacity, keys: h.ConcurrencyKeys}
	var err error
	if r.process, err = sqldb.ParseID(h.ProcessID); err != nil {
		return nil, invalid("process_id", "must be 32 lower-case hexadecimal characters")
	}
	if h.Capacity < 1 || h.Capacity > maxCapacity {
		return nil, invalid("capacity", "must be 1 to %d", maxCapacity)
	}
	if err := r.setHandlers(h.Handlers); err != nil {
		return nil, err
	}
	if err := r.setQueues(h.Queues); err != nil {
		return nil, err
	}
	if len(r.handlers)*len(r.queues) > maxPairs {
		return nil, invalid("handlers", "times queues must be at most %d", maxPairs)
	}
	return r, nil
}

func (r *registration) setHandlers(handlers []wire.Handler) error {
	if len(handlers) < 1 || len(handlers) > maxHandlers {
		return invalid("handlers", "must be 1 to %d", maxHandlers)
	}
	for i, h := range handlers {
		switch {
		case !validName(h.Name, orbit.MaxHandler):
			return invalid(fmt.Sprintf("handlers[%d].name", i), "must be a handler name of 1 to %d characters", orbit.MaxHandler)
		case !validName(h.Version, orbit.MaxHandlerVersion):
			return invalid(fmt.Sprintf("handlers[%d].version", i), "must be a version of 1 to %d characters", orbit.MaxHandlerVersion)
		}
	}
	r.handlers = slices.Clone(handlers)
	slices.SortFunc(r.handlers, func(a, b wire.Handler) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	if len(slices.Compact(slices.Clone(r.handlers))) != len(handlers) {
		return invalid("handlers", "must not name one handler and version twice")
	}
	return nil
}

func (r *registration) setQueues(queues []string) error {
	if len(queues) < 1 || len(queues) > maxQueues {
		return invalid("queues", "must be 1 to %d", maxQueues)
	}
	for i, text := range queues {
		id, err := sqldb.ParseID(text)
		if err != nil {
			return invalid(fmt.Sprintf("queues[%d]", i), "must be 32 lower-case hexadecimal characters")
		}
		r.queues = append(r.queues, id)
	}
	slices.SortFunc(r.queues, compareIDs)
	if len(slices.Compact(slices.Clone(r.queues))) != len(queues) {
		return invalid("queues", "must not name one queue twice")
	}
	return nil
}

func compareIDs(a, b sqldb.ID) int { return slices.Compare(a[:], b[:]) }

func invalid(field, format string, args ...any) error {
	return &orbit.InvalidArgumentError{Field: field, Rule: fmt.Sprintf(format, args...)}
}

// validName applies the contract's rule for handler names and versions (SUB-008).
func validName(name string, most int) bool {
	if len(name) < 1 || len(name) > most {
		return false
	}
	for i, c := range []byte(name) {
		word := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !word && (i == 0 || c != '_' && c != '.' && c != ':' && c != '-') {
			return false
		}
	}
	return true
}

// digest tells whether two registrations are the same, in whatever order they list their
// parts. A false keys does not enter it: what was registered before the flag existed
// stays valid (AMB-038, WRK-008).
func (r *registration) digest() [32]byte {
	h := sha256.New()
	text := func(s string) {
		var size [4]byte
		binary.BigEndian.PutUint32(size[:], uint32(len(s)))
		h.Write(size[:])
		h.Write([]byte(s))
	}
	text("orbit-registration-v1")
	text(fmt.Sprint(len(r.handlers)))
	for _, one := range r.handlers {
		text(one.Name)
		text(one.Version)
	}
	text(fmt.Sprint(len(r.queues)))
	for _, id := range r.queues {
		text(id.String())
	}
	text(fmt.Sprint(r.capacity))
	if r.keys {
		text("concurrency_keys")
	}
	return [32]byte(h.Sum(nil))
}

// text is what is stored for people.
func (r *registration) text() []byte {
	queues := make([]string, len(r.queues))
	for i, id := range r.queues {
		queues[i] = id.String()
	}
	body, err := json.Marshal(struct {
		Handlers        []wire.Handler `json:"handlers"`
		Queues          []string       `json:"queues"`
		Capacity        int            `json:"capacity"`
		ConcurrencyKeys bool           `json:"concurrency_keys,omitempty"`
	}{r.handlers, queues, r.capacity, r.keys})
	if err != nil {
		panic(err) // plain strings
	}
	return body
}

// lanes are the kinds of task that the process can take. One that has not declared
// support for resource keys takes no keyed task (WRK-004).
func (r *registration) lanes() []dispatch.Lane {
	var lanes []dispatch.Lane
	for _, queue := range r.queues {
		for _, h := range r.handlers {
			l := dispatch.Lane{Queue: queue, Handler: h.Name, Version: h.Version}
			lanes = append(lanes, l)
			if l.Keyed = true; r.keys {
				lanes = append(lanes, l)
			}
		}
	}
	return lanes
}

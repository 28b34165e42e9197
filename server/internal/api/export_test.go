package api

import (
	"context"
	"slices"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Routes returns what the interface serves, such as "GET /v1/tasks/{}:cancel", sorted. HEAD
// goes with GET and is left out.
func Routes() []string {
	var all []string
	add := func(path string, r route) {
		for method := range r.methods {
			if method != "HEAD" {
				all = append(all, method+" "+path)
			}
		}
	}
	for path, r := range fixed {
		add(path, r)
	}
	for collection, routes := range below {
		for rest, r := range routes {
			add(collection+"{}"+rest, r)
		}
	}
	slices.Sort(all)
	return all
}

// Public returns the paths that need no credential, sorted.
func Public() []string {
	var all []string
	for path, r := range fixed {
		if r.public {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all
}

// A RefusalLog decides which refusals are told.
type RefusalLog struct{ log *refusalLog }

// NewRefusalLog returns one that has told nothing.
func NewRefusalLog() RefusalLog { return RefusalLog{newRefusalLog()} }

// Tell is what happens with a refusal of an address.
func (l RefusalLog) Tell(address string, now time.Time) (withheld int, told bool) {
	return l.log.tell(source{address: address}, now)
}

// Sources is how many are remembered.
func (l RefusalLog) Sources() int { return l.log.sources.Len() }

// FillBatches takes the room of an application for all but left items of batches. Who finds
// none is refused at once, from then on.
func (h *Handler) FillBatches(application sqldb.ID, left int) (leave func(), err error) {
	h.batches.patience = time.Millisecond
	return h.batches.enter(context.Background(), application, int(h.batches.most)-left)
}

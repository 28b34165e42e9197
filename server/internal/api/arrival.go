package api

import (
	"context"
	"io"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"github.com/orbitkit/orbit/internal/sqldb"
)

const (
	// arrivalStep is what a body takes of the node's budget at a time: a sender that stalls
	// holds no more than it has sent, and little else.
	arrivalStep = 16 << 10
	// arrivalPatience is how long the next step of a body may take.
	arrivalPatience = 10 * time.Second
	// bodyShare bounds the bodies of one credential that are held at one time, in bytes: who
	// fills it holds up nobody else.
	bodyShare = bodyBudget / 4
	// bodyShares is how many credentials are remembered.
	bodyShares = 4096
	// bodyTime bounds the whole of it, however steadily it trickles in.
	bodyTime = 60 * time.Second
)

var errBusy = unavailable("the server is busy; nothing was accepted")

// An arrival is a body on its way in.
type arrival struct {
	*call
	share *semaphore.Weighted // of the credential
	body  io.Reader
	begun time.Time
	taken int64 // of the budget
	got   int64
}

// Read takes room before what comes needs it.
func (a *arrival) Read(p []byte) (int, error) {
	if a.got == a.taken {
		if err := a.step(); err != nil {
			return 0, err
		}
	}
	n, err := a.body.Read(p[:min(int64(len(p)), a.taken-a.got)])
	a.got += int64(n)
	return n, err
}

// step makes room for a part more, and bounds the time that it may take. A body that is to
// be over at once because the node stops keeps that bound.
func (a *arrival) step() error {
	ctx, cancel := context.WithTimeout(a.r.Context(), bodyPatience)
	defer cancel()
	if err := a.share.Acquire(ctx, arrivalStep); err != nil {
		return errBusy
	}
	if err := a.bodies.Acquire(ctx, arrivalStep); err != nil {
		a.share.Release(arrivalStep)
		return errBusy
	}
	a.taken += arrivalStep
	if a.drained.Err() == nil {
		a.bound()
	}
	return nil
}

func (a *arrival) bound() {
	deadline := time.Now().Add(arrivalPatience)
	if last := a.begun.Add(bodyTime); deadline.After(last) {
		deadline = last
	}
	control := http.NewResponseController(a.w)
	_ = control.SetReadDeadline(deadline) // what has no deadlines has no connection
	if a.drained.Err() != nil {           // it began to drain just now
		_ = control.SetReadDeadline(time.Now().Add(a.patience))
	}
}

// release gives the room back. It may be called more than once.
func (a *arrival) release() {
	a.bodies.Release(a.taken)
	a.share.Release(a.taken)
	a.taken = 0
}

// A bodyBook knows how much of the bodies that are held belongs to whom.
type bodyBook struct {
	shares *lru.Cache[sqldb.ID, *semaphore.Weighted]
}

func newBodyBook() bodyBook {
	shares, err := lru.New[sqldb.ID, *semaphore.Weighted](bodyShares)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return bodyBook{shares}
}

// of returns the share of a credential. One that is forgotten meanwhile begins anew, which
// at worst lets it hold twice as much.
func (b bodyBook) of(credential sqldb.ID) *semaphore.Weighted {
	fresh := semaphore.NewWeighted(bodyShare)
	if known, found, _ := b.shares.PeekOrAdd(credential, fresh); found {
		return known
	}
	return fresh
}

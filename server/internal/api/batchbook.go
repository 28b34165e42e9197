package api

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/orbitkit/orbit/internal/sqldb"
)

const (
	// defaultBatchItems are four full batches: while one transaction commits them, the next
	// gathers.
	defaultBatchItems = 400
	// batchPatience is how long a batch waits for others of its application.
	batchPatience = 5 * time.Second
)

var errBatchBusy = unavailable("the application has too many batches under way; nothing was accepted")

// A batchBook bounds the items of batches that each application has under way, so that what
// one of them sends stands in nobody else's way for long. It is safe for concurrent use.
type batchBook struct {
	most     int64
	patience time.Duration

	mu   sync.Mutex
	open map[sqldb.ID]*batchShare // of applications that have some under way or waiting
}

type batchShare struct {
	room  *semaphore.Weighted
	users int
}

func newBatchBook(most int) *batchBook {
	return &batchBook{most: int64(most), patience: batchPatience, open: make(map[sqldb.ID]*batchShare)}
}

// enter waits for room for n items. Leave gives it back. It is refused if there is none in
// time; requests of one application have their turn in order.
func (b *batchBook) enter(ctx context.Context, application sqldb.ID, n int) (leave func(), err error) {
	share := b.join(application)
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	if err := share.room.Acquire(ctx, int64(n)); err != nil {
		b.part(application, share)
		return nil, errBatchBusy
	}
	return func() {
		share.room.Release(int64(n))
		b.part(application, share)
	}, nil
}

func (b *batchBook) join(application sqldb.ID) *batchShare {
	b.mu.Lock()
	defer b.mu.Unlock()
	share := b.open[application]
	if share == nil {
		share = &batchShare{room: semaphore.NewWeighted(b.most)}
		b.open[application] = share
	}
	share.users++
	return share
}

func (b *batchBook) part(application sqldb.ID, share *batchShare) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if share.users--; share.users == 0 {
		delete(b.open, application)
	}
}

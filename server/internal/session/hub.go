package session

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// An Authenticator tells who connects, and later what that credential may do now. A
// refusal is an [*auth.Error]; any other error means that it could not be looked up.
type Authenticator interface {
	Authenticate(ctx context.Context, r *http.Request) (auth.Principal, error)
	Refresh(ctx context.Context, credential sqldb.ID) (auth.Principal, error)
	Ended(ctx context.Context, credentials []sqldb.ID) ([]sqldb.ID, error)
}

// Config tunes a Hub. The zero value is ready to use.
type Config struct {
	// Node is the node's id, 1 to 64 bytes. Default: random.
	Node string
	// Lease is how long an attempt is leased. Default 15s, at least 5s, at most 5min.
	Lease time.Duration
	// ShortLease takes a Lease under the minimum. For tests.
	ShortLease bool
	// Ping is how often a silent connection is asked for a sign of life; without one for
	// two and a half times as long it is given up. Default 15s.
	Ping time.Duration
	// HelloTimeout bounds the time from the upgrade to hello. Default 10s.
	HelloTimeout time.Duration
	// WriteTimeout bounds the writing of one frame. Default 10s.
	WriteTimeout time.Duration
	// DrainTimeout is how long a stopping hub waits for its workers to go elsewhere.
	// Default 10s.
	DrainTimeout time.Duration
	// Recheck is how often it is looked again what credentials of connections may do.
	// Default 30s.
	Recheck time.Duration
	// EndCheck is how often it is asked whether credentials of connections were revoked,
	// have expired or were disabled. Nothing is assigned to such a worker and nothing of
	// its begins in any case; this ends its connection. Default 1s.
	EndCheck time.Duration
	// MinPoll and MaxPoll bound the pace of looking for tasks that other nodes accepted,
	// while somebody here waits for some. Default 100ms and 2s.
	MinPoll, MaxPoll time.Duration
	// MaxSessions bounds the connections. Default 20000.
	MaxSessions int
	// MaxPerCredential bounds the connections of one credential, so that no one of them
	// can take all of a node. Connections that have died unnoticed count until they are
	// given up: leave room for every process to come back. Default half of MaxSessions.
	MaxPerCredential int
	// MaxLanes bounds the kinds of task of all registrations, which are queues times handlers,
	// twice with resource keys, counted once for equal registrations of a namespace. A node
	// keeps about 200 bytes for each. Default 200000.
	MaxLanes int
	// MaxLanesPerCredential bounds those of one credential. Default half of MaxLanes.
	MaxLanesPerCredential int
	// Ungrouped runs each message of a worker in a transaction of its own instead of with
	// those that come while the last one commits. To measure what grouping gives. Default false.
	Ungrouped bool
	// Watch is told what happens on connections, Dispatch what is done to attempts. Default:
	// nobody is told.
	Watch    Watch
	Dispatch dispatch.Watch
	// Modes is what the node remembers of limits. Default: the hub remembers alone.
	Modes *quota.Modes
	// Woken is called with the lanes that have got tasks by what workers did here, the
	// timer's (0) among them. It must not block. Default: nobody is told.
	Woken func(lanes []int64)
	// Log gets what is swallowed. Default: discarded.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.Ping, 15 * time.Second}, {&c.HelloTimeout, 10 * time.Second}, {&c.WriteTimeout, 10 * time.Second},
		{&c.DrainTimeout, 10 * time.Second}, {&c.Recheck, 30 * time.Second}, {&c.EndCheck, time.Second},
		{&c.MinPoll, 100 * time.Millisecond}, {&c.MaxPoll, 2 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if c.Node == "" {
		c.Node = sqldb.NewID().String()
	}
	if c.MaxSessions <= 0 {
		c.MaxSessions = 20_000
	}
	if c.MaxPerCredential <= 0 {
		c.MaxPerCredential = (c.MaxSessions + 1) / 2
	}
	if c.MaxLanes <= 0 {
		c.MaxLanes = defaultLanes
	}
	if c.MaxLanesPerCredential <= 0 {
		c.MaxLanesPerCredential = (c.MaxLanes + 1) / 2
	}
	if c.Woken == nil {
		c.Woken = func([]int64) {}
	}
	c.Watch = c.Watch.orNobody()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// A Hub serves the worker connections of one node. Its ServeHTTP answers
// GET /v1/worker/connect; Run must be running, else nothing is claimed and no message
// answered. It is safe for concurrent use.
type Hub struct {
	db         *sqldb.DB
	auth       Authenticator
	cfg        Config
	node       string
	log        *slog.Logger
	dispatcher *dispatch.Dispatcher
	upgrader   websocket.Upgrader
	board      *board
	polls      polls

	starts   *batcher[dispatch.Ref, dispatch.Started]
	resumes  *batcher[dispatch.Ref, dispatch.Resumed]
	renewals *batcher[dispatch.Renewal, dispatch.Renewed]
	finishes *batcher[dispatch.Finish, dispatch.Finished]
	returns  *batcher[dispatch.Ref, dispatch.Returned]
	drains   *batcher[*session, struct{}]

	mu       sync.Mutex
	sessions map[processKey]*session // the newest of each process
	open     map[*session]struct{}   // all whose socket is open
	openOf   map[sqldb.ID]int        // how many of them a credential has
	draining bool
	empty    chan struct{} // closed when draining and nothing is open
}

// A processKey names a worker process.
type processKey struct{ namespace, process sqldb.ID }

// New returns a hub for db. It fails if the lease or the node's id is out of bounds.
func New(db *sqldb.DB, auth Authenticator, cfg Config) (*Hub, error) {
	cfg = cfg.withDefaults()
	h := &Hub{
		db: db, auth: auth, cfg: cfg, node: cfg.Node, log: cfg.Log.With("node_id", cfg.Node),
		upgrader: newUpgrader(cfg), board: newBoard(),
		polls:    polls{least: cfg.MinPoll, most: cfg.MaxPoll, hurry: make(chan struct{}, 1)},
		sessions: make(map[processKey]*session), open: make(map[*session]struct{}), openOf: make(map[sqldb.ID]int), empty: make(chan struct{}),
	}
	h.board.room.most, h.board.room.mostEach = cfg.MaxLanes, cfg.MaxLanesPerCredential
	var err error
	h.dispatcher, err = dispatch.New(db, cfg.Node, dispatch.Config{
		Lease: cfg.Lease, ShortLease: cfg.ShortLease, Modes: cfg.Modes, Wake: h.wakeAll, Watch: cfg.Dispatch, Log: h.log,
	})
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	small := func(*dispatch.Ref) int { return 256 }
	h.starts = newBatcher(h.dispatcher.Start, small)
	h.resumes = newBatcher(h.dispatcher.Resume, small)
	h.renewals = newBatcher(h.dispatcher.Renew, func(r *dispatch.Renewal) int { return 256 + len(r.Progress) })
	h.finishes = newBatcher(h.dispatcher.Finish, func(f *dispatch.Finish) int { return 1024 + len(f.Result) + len(f.Error) })
	h.returns = newBatcher(h.dispatcher.Return, small)
	h.drains = newBatcher(h.markDrained, func(**session) int { return 64 })
	h.starts.alone, h.renewals.alone, h.finishes.alone = cfg.Ungrouped, cfg.Ungrouped, cfg.Ungrouped
	h.watch(cfg.Watch)
	return h, nil
}

// Node returns the node's id.
func (h *Hub) Node() string { return h.node }

// Wake tells that lanes have got READY tasks, for example by a submit. It never blocks.
func (h *Hub) Wake(lanes []int64) { h.board.wake(lanes) }

// wakeAll is Wake for what happened here: others may want to know.
func (h *Hub) wakeAll(lanes []int64) {
	h.board.wake(lanes)
	h.cfg.Woken(lanes)
}

// Run serves until ctx is canceled. Then it claims nothing more, asks the workers to
// connect elsewhere, answers what they still say, and returns nil when all have gone or
// after the drain timeout. Attempts that run go on: their leases decide.
func (h *Hub) Run(ctx context.Context) error {
	var claims, batches sync.WaitGroup
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, run := range []func(context.Context){h.starts.Run, h.resumes.Run, h.renewals.Run, h.finishes.Run, h.returns.Run, h.drains.Run} {
		batches.Go(func() { run(serve) })
	}
	for _, run := range []func(context.Context){h.claimLoop, h.pollLoop, h.recheckLoop, h.endCheckLoop} {
		claims.Go(func() { run(ctx) })
	}
	<-ctx.Done()
	h.drain()
	claims.Wait()
	h.waitForWorkers()
	stop()
	batches.Wait()
	return nil
}

// drain refuses new connections, asks the others to go and hands back what was claimed for
// them and is not sent yet.
func (h *Hub) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for _, s := range h.sessions { // one whose hello is under way hears of it in replace
		s.nodeStops()
	}
	if len(h.open) == 0 {
		close(h.empty)
	}
}

// waitForWorkers waits until nothing is open, and ends what is still open at the bound.
func (h *Hub) waitForWorkers() {
	t := time.NewTimer(h.cfg.DrainTimeout)
	defer t.Stop()
	select {
	case <-h.empty:
		return
	case <-t.C:
	}
	h.mu.Lock()
	for s := range h.open {
		s.end(websocket.CloseGoingAway, "the node stops")
	}
	h.mu.Unlock()
	<-h.empty // each has write and close bounded
}

// enter counts a connection in, or tells why the hub does not take it.
func (h *Hub) enter(s *session) *denial {
	h.mu.Lock()
	defer h.mu.Unlock()
	credential := s.principal.Credential
	switch {
	case h.draining || len(h.open) >= h.cfg.MaxSessions:
		return full("this node takes no connection now", time.Second)
	case h.openOf[credential] >= h.cfg.MaxPerCredential:
		return full("the credential has as many connections to this node as it may", crowded)
	}
	h.open[s] = struct{}{}
	h.openOf[credential]++
	return nil
}

// crowded is when a credential with too many connections may try again: not soon, since it
// is a mistake, or waits for dead connections to be given up.
const crowded = 5 * time.Second

func full(message string, retryAfter time.Duration) *denial {
	return &denial{http.StatusServiceUnavailable, orbit.CodeUnavailable, message, retryAfter}
}

// exit counts a connection out.
func (h *Hub) exit(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, s)
	credential := s.principal.Credential
	if h.openOf[credential]--; h.openOf[credential] == 0 {
		delete(h.openOf, credential)
	}
	if h.sessions[s.key()] == s {
		delete(h.sessions, s.key())
	}
	if h.draining && len(h.open) == 0 {
		close(h.empty)
	}
}

// replace makes s the session of its process, unless another was registered later: the time
// of registration counts, by the database's clock. The older one ends at once.
func (h *Hub) replace(s *session) {
	h.mu.Lock()
	old := h.sessions[s.key()]
	if old == nil || old.connectedAt < s.connectedAt {
		h.sessions[s.key()] = s
	} else {
		old = s // that was registered later, and came here before
	}
	draining := h.draining
	h.mu.Unlock()
	if old != nil {
		old.end(wire.CloseReplaced, "the process connected again")
	}
	if draining { // it began between enter and here
		s.nodeStops()
	}
}

// Cancel tells the worker of a running attempt that somebody wants its task cancelled, if
// it is connected here. It hears of it on its next renewal anyway.
func (h *Hub) Cancel(attempt sqldb.ID, epoch int64, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if s.holds(attempt) {
			s.say(wire.TypeCancel, "", wire.Cancel{AttemptID: attempt.String(), Epoch: uint64(epoch), Reason: reason})
			return
		}
	}
}

package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/semaphore"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/command"
)

const (
	// requestTimeout bounds the work on one request after its body has been read.
	requestTimeout = 30 * time.Second
	// bodyBudget bounds the request bodies that are held at one time, in bytes.
	bodyBudget = 64 << 20
	// bodyPatience is how long a request waits for its part of the budget.
	bodyPatience = 5 * time.Second
)

// Config holds the parts that the interface joins. All but Tracer, BatchItems and
// Log are required.
type Config struct {
	DB        *sqldb.DB
	Auth      *auth.Authenticator
	Committer *accept.Committer
	Commands  *command.Commands
	Worker    http.Handler                // takes the connections of workers
	Ready     func(context.Context) error // tells why the node cannot serve; its text is shown
	Tracer    trace.Tracer                // makes a span for each request; default: none are made
	// BatchItems is how many items of batches of one application are under way at a time, at
	// least a batch full. Default 400.
	BatchItems int
	Log        *slog.Logger // default: nothing is logged
}

// A Handler serves the HTTP interface. It is safe for concurrent use.
type Handler struct {
	cfg      Config
	queues   *queueBook
	refusals *refusalLog
	bodies   *semaphore.Weighted // room for all
	shares   bodyBook            // of each credential in it
	batches  *batchBook
	readies  readiness
	draining atomic.Bool

	drained  context.Context // ends with Drain
	drain    context.CancelFunc
	patience time.Duration // what a body may still take then
}

// New returns the handler of one node.
func New(cfg Config) *Handler {
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.BatchItems == 0 {
		cfg.BatchItems = defaultBatchItems
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = Quiet(cfg.Log, cfg.DB.Dialect())
	drained, drain := context.WithCancel(context.Background())
	return &Handler{
		drained:  drained,
		drain:    drain,
		cfg:      cfg,
		queues:   newQueueBook(cfg.DB),
		refusals: newRefusalLog(),
		bodies:   semaphore.NewWeighted(bodyBudget),
		shares:   newBodyBook(),
		batches:  newBatchBook(cfg.BatchItems),
		readies:  readiness{probe: cfg.Ready},
	}
}

// Drain makes /readyz answer that the node goes away, so that balancers send new
// requests elsewhere. Requests are still served, but a body that is not complete within
// patience is given up: a stalled upload must not hold up a stop. It is called once.
func (h *Handler) Drain(patience time.Duration) {
	h.patience = patience
	h.draining.Store(true)
	h.drain()
}

// A call is one request on its way to its answer.
type call struct {
	*Handler
	w         http.ResponseWriter
	r         *http.Request
	id        sqldb.ID // of the request, made here: what the client sends is not adopted
	principal auth.Principal
	subject   string // id of the thing that the path names: a task or a queue
	part      string // id of a part of it, such as an attempt
	answered  bool
	status    int  // of the answer
	logged    bool // a line of the log names the request
	read      bool // the body has been read to its end
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Handler: h, w: w, r: r, id: sqldb.NewID()}
	w.Header().Set(orbit.HeaderRequestID, c.id.String())
	span := c.begin()
	defer c.conclude(span)
	defer c.recover()
	err := c.serve()
	c.dropBody()
	if err != nil {
		c.refuse(err)
	}
}

// serve answers or returns why not.
func (c *call) serve() error {
	route, subject, part, found := find(c.r)
	if !found && idMissing(c.r) {
		return errNoID
	}
	if !found {
		return errNoPath
	}
	c.subject, c.part = subject, part
	serve, allowed := route.methods[c.r.Method]
	if !allowed {
		return route.notAllowed()
	}
	if !route.public {
		if err := c.authenticate(); err != nil {
			return err
		}
	}
	return serve(c)
}

func (c *call) authenticate() error {
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	var refused *auth.Error
	var err error
	c.principal, err = c.cfg.Auth.Authenticate(ctx, c.r)
	if errors.As(err, &refused) {
		return &refusal{
			status: http.StatusUnauthorized, code: orbit.CodeUnauthenticated, message: refused.Reason, retryAfter: refused.RetryAfter,
		}
	}
	return err
}

// require refuses a credential that lacks permission.
func (c *call) require(permission string) error {
	if c.principal.Can(permission) {
		return nil
	}
	return denied("the credential lacks the permission " + permission)
}

// recover turns a panic into 503: nobody knows how far the request got. The value of the
// panic may hold anything and is not logged unless it is the runtime's own.
func (c *call) recover() {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	cause := fmt.Sprintf("%T", v)
	if e, ok := v.(runtime.Error); ok {
		cause = e.Error()
	}
	c.cfg.Log.ErrorContext(c.r.Context(), "request panicked",
		"request_id", c.id.String(), "cause", cause, "stack", string(debug.Stack()))
	if c.answered {
		panic(http.ErrAbortHandler) // half an answer is cut off
	}
	c.respondRefusal(errUnavailable)
}

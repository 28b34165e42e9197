package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// operatorPatience bounds one call of an operator. A purge or a verify of a large outbox
// that takes longer is one for the command.
const operatorPatience = 5 * time.Minute

// A tokenHolder keeps the token of operators, or none: then they are let in nowhere.
type tokenHolder struct {
	digest atomic.Pointer[[sha256.Size]byte]
}

func (h *tokenHolder) set(token string) {
	if token == "" {
		h.digest.Store(nil)
		return
	}
	digest := sha256.Sum256([]byte(token))
	h.digest.Store(&digest)
}

// admits reports whether a request carries the token. The time that it takes tells nothing
// about the token.
func (h *tokenHolder) admits(r *http.Request) bool {
	digest := h.digest.Load()
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if digest == nil || !strings.EqualFold(scheme, "Bearer") { // RFC 9110 has schemes in any case
		return false
	}
	presented := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(presented[:], digest[:]) == 1
}

// handler serves what other processes ask the relay. With closed, everything but health
// wants the token.
func (s *supervisor) handler(closed bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	open := func(pattern string, h http.HandlerFunc) {
		h = withoutParameters(h)
		if closed {
			h = s.forOperators(h)
		}
		mux.HandleFunc(pattern, h)
	}
	open("POST /nudge", func(w http.ResponseWriter, _ *http.Request) {
		for _, r := range s.sources() {
			r.nudge()
		}
		w.WriteHeader(http.StatusNoContent)
	})
	open("POST /nudge/{source}", func(w http.ResponseWriter, r *http.Request) {
		run := s.find(r.PathValue("source"))
		if run == nil {
			refuse(w, problem{Status: http.StatusNotFound, Detail: "there is no such source"})
			return
		}
		run.nudge()
		w.WriteHeader(http.StatusNoContent)
	})
	open("GET /status", func(w http.ResponseWriter, _ *http.Request) { respond(w, s.standing()) })
	s.addOperations(mux)
	return mux
}

// withoutParameters refuses a query: whoever sends one expects something of it.
func withoutParameters(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := parameters(r, nil); err != nil {
			refuse(w, problemOf(r, nil, err))
			return
		}
		h(w, r)
	}
}

func (r *sourceRun) nudge() {
	if _, forward, _ := r.opened(); forward != nil {
		forward.Notify()
	}
}

// A standing is how a source is served now.
type standing struct {
	Source string       `json:"source"`
	State  string       `json:"state"`           // running, or opening while its database cannot be opened
	Error  string       `json:"error,omitempty"` // why it cannot
	Stats  *relay.Stats `json:"stats,omitempty"`
}

// standing is the Stats of the one relay that flags make, or a list with a standing for each
// source.
func (s *supervisor) standing() any {
	all := []standing{}
	for _, r := range s.sources() {
		one := standing{Source: r.config.Name, State: "opening"}
		_, forward, why := r.opened()
		one.Error = why
		if forward != nil {
			stats := forward.Stats()
			one.State, one.Stats = "running", &stats
		}
		if s.single {
			if one.Stats == nil {
				return relay.Stats{Shards: []relay.ShardStats{}, Targets: []relay.TargetStats{}}
			}
			return one.Stats
		}
		all = append(all, one)
	}
	return map[string][]standing{"sources": all}
}

// forOperators lets only those in who have the token. Who fails again and again is held back.
func (s *supervisor) forOperators(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.token.digest.Load() == nil:
			refuse(w, problem{Status: http.StatusNotFound, Detail: "the interface of operators is off: the relay has no token for it"})
		case !s.token.admits(r):
			if wait := s.guesses.HoldBack(r.Context(), r.RemoteAddr); wait > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
			}
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, problem{Status: http.StatusUnauthorized, Detail: "the token of operators is missing or wrong"})
		default:
			h(w, r)
		}
	}
}

// An operation is one command of operators on the outbox of a source. What it returns is
// what the command prints with --json.
type operation func(ctx context.Context, store *outbox.Store, r *http.Request) (any, error)

// addOperations serves the commands of operators.
func (s *supervisor) addOperations(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/sources", s.forOperators(withoutParameters(func(w http.ResponseWriter, _ *http.Request) {
		all := []standing{}
		for _, r := range s.sources() {
			_, forward, why := r.opened()
			one := standing{Source: r.config.Name, State: "opening", Error: why}
			if forward != nil {
				one.State = "running"
			}
			all = append(all, one)
		}
		respond(w, map[string][]standing{"sources": all})
	})))
	for path, op := range map[string]operation{
		"GET rows": httpList, "GET rows/{row}": httpShow, "GET status": httpStatus, "GET verify": httpVerify, "GET doctor": httpDoctor,
		"POST requeue": httpRequeue, "POST discard": httpDiscard, "POST hold": httpHold(holdScope), "POST release": httpHold(releaseScope),
		"POST purge": httpPurge,
	} {
		method, path, _ := strings.Cut(path, " ")
		mux.HandleFunc(method+" /v1/sources/{source}/"+path, s.forOperators(s.operate(op)))
	}
}

// maxOperations is how many calls of operators a source serves at one time: its relay needs
// the connections more.
const maxOperations = 2

// operate runs an operation and answers.
func (s *supervisor) operate(op operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		run := s.find(r.PathValue("source"))
		if run == nil {
			refuse(w, problem{Status: http.StatusNotFound, Detail: "there is no such source"})
			return
		}
		store, _, why := run.opened()
		if store == nil {
			refuse(w, problem{Status: http.StatusServiceUnavailable, Detail: "the database of the source is not open: " + why})
			return
		}
		if !run.operations.TryAcquire(1) {
			w.Header().Set("Retry-After", "1")
			refuse(w, problem{Status: http.StatusServiceUnavailable, Detail: "as many calls of operators as may run at one time run already"})
			return
		}
		defer run.operations.Release(1)
		ctx, cancel := context.WithTimeout(r.Context(), operatorPatience)
		defer cancel()
		result, err := op(ctx, store, r)
		run.tell(r, result, err)
		if err != nil {
			refuse(w, problemOf(r, result, err))
			return
		}
		respond(w, result)
	}
}

func newOperations() *semaphore.Weighted { return semaphore.NewWeighted(maxOperations) }

// tell logs what was done, and failures whose words are not for the network.
func (r *sourceRun) tell(req *http.Request, result any, err error) {
	if d, acted := result.(did); acted && (err == nil || d.Count > 0) {
		r.log.Info("operator acted", "act", d.Action, "rows", d.Count, "dry_run", d.DryRun)
	}
	if err != nil && statusOf(err) >= http.StatusInternalServerError {
		r.log.Error("call of an operator failed", "call", req.Method+" "+req.URL.Path, "err", err)
	}
}

// respond writes v as the commands do with --json.
func respond(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	e.Encode(v) // a connection that is gone by now is the caller's
}

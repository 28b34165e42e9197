package api

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// logRefusal logs that a request is refused, at debug level. That a caller may not do what
// it asks for, 401 and 403, concerns the operator, so it is told at info level, but
// sparingly. The line holds what the server knows and nothing that the client wrote: no
// message, no id of a path, no key (ERR-015).
func (c *call) logRefusal(status int, code, route string) {
	ctx, log := c.r.Context(), c.cfg.Log
	if c.logged || !log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	c.logged = true
	who := source{credential: c.principal.Credential}
	if who.credential == (sqldb.ID{}) {
		who.address = addressOf(c.r)
	}
	level, withheld := slog.LevelDebug, 0
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		told := false
		if withheld, told = c.refusals.tell(who, time.Now()); told {
			level = slog.LevelInfo
		}
	}
	if !log.Enabled(ctx, level) {
		return
	}
	args := []any{"request_id", c.id.String(), "status", status, "code", code, "route", route, who.attr()}
	if withheld > 0 {
		args = append(args, "withheld", withheld)
	}
	log.Log(ctx, level, "request refused", args...)
}

// A source is who is refused: a credential, or an address while none is known.
type source struct {
	credential sqldb.ID
	address    string
}

func (s source) attr() slog.Attr {
	if s.address != "" {
		return slog.String("address", s.address)
	}
	return slog.String("credential_id", s.credential.String())
}

// addressOf returns the address of the other end of the connection, without the port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	return host
}

const (
	refusalSources = 4096        // remembered
	refusalPause   = time.Second // between two lines about one source
	refusalLines   = 50          // about all sources within one pause
)

// A refusalLog decides which refusals are told at info level: of each source one a second,
// and of all together not many, however many there are.
type refusalLog struct {
	mu      sync.Mutex
	sources *lru.Cache[source, toldOf]
	since   time.Time // beginning of the pause in which lines were told
	lines   int
}

// toldOf is when a source was last told of, and how many lines were withheld since.
type toldOf struct {
	at       time.Time
	withheld int
}

func newRefusalLog() *refusalLog {
	sources, err := lru.New[source, toldOf](refusalSources)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &refusalLog{sources: sources}
}

// tell reports whether a refusal of s is to be told now, and how many were withheld since
// the last one that was.
func (l *refusalLog) tell(s source, now time.Time) (withheld int, told bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= refusalPause {
		l.since, l.lines = now, 0
	}
	last, known := l.sources.Get(s)
	if l.lines >= refusalLines || known && now.Sub(last.at) < refusalPause {
		last.withheld++
		l.sources.Add(s, last)
		return 0, false
	}
	l.lines++
	l.sources.Add(s, toldOf{at: now})
	return last.withheld, true
}

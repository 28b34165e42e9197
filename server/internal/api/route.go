package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// A route is what one path offers.
type route struct {
	public  bool // needs no credential
	methods map[string]func(*call) error
}

func get(serve func(*call) error) route {
	return route{methods: map[string]func(*call) error{http.MethodGet: serve, http.MethodHead: serve}}
}

func post(serve func(*call) error) route {
	return route{methods: map[string]func(*call) error{http.MethodPost: serve}}
}

func public(r route) route {
	r.public = true
	return r
}

// fixed are the paths without an id in them.
var fixed = map[string]route{
	"/healthz":         public(get((*call).health)),
	"/readyz":          public(get((*call).ready)),
	"/v1/capabilities": get((*call).capabilities),
	"/v1/tasks":        post((*call).submit),
	"/v1/tasks:batch":  post((*call).submitBatch),
	// The handler of workers authenticates by itself: it has to look again while a
	// connection lasts.
	wire.Path: public(get((*call).worker)),
}

// ofTask are the paths below one task.
var ofTask = map[string]route{
	"":          get((*call).getTask),
	"/attempts": get((*call).listAttempts),
}

const taskPrefix = "/v1/tasks/"

// find returns the route of a request and the id of the task that its path names. Paths
// match exactly: no cleaning of //, no trailing slash, no redirect. A custom method is
// the suffix :name of the last segment, and a task has none here (API-028).
func find(r *http.Request) (found route, task string, ok bool) {
	path, ok := plainPath(r.URL)
	if !ok {
		return route{}, "", false
	}
	if found, ok = fixed[path]; ok {
		return found, "", true
	}
	rest, below := strings.CutPrefix(path, taskPrefix)
	if !below {
		return route{}, "", false
	}
	id, rest := cutSegment(rest)
	found, ok = ofTask[rest]
	return found, id, ok && id != "" && !strings.Contains(id, ":")
}

// plainPath returns the decoded path, unless an encoded slash would make it look like
// another one.
func plainPath(u *url.URL) (string, bool) {
	if strings.Contains(strings.ToLower(u.EscapedPath()), "%2f") {
		return "", false
	}
	return u.Path, true
}

// cutSegment cuts path before its first slash.
func cutSegment(path string) (segment, rest string) {
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

func (r route) notAllowed() error {
	var methods []string
	for method := range r.methods {
		methods = append(methods, method)
	}
	slices.Sort(methods)
	return &refusal{
		status:  http.StatusMethodNotAllowed,
		code:    orbit.CodeInvalidArgument,
		message: "method is not allowed here",
		allow:   strings.Join(methods, ", "),
	}
}

package api

import (
	"maps"
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

func patch(serve func(*call) error) route {
	return route{methods: map[string]func(*call) error{http.MethodPatch: serve}}
}

// and joins what one path offers.
func (r route) and(other route) route {
	joined := route{public: r.public, methods: maps.Clone(r.methods)}
	maps.Copy(joined.methods, other.methods)
	return joined
}

func public(r route) route {
	r.public = true
	return r
}

// fixed are the paths without an id in them.
var fixed = map[string]route{
	"/healthz":                     public(get((*call).health)),
	"/readyz":                      public(get((*call).ready)),
	"/openapi.yaml":                public(get((*call).description)),
	"/worker-protocol.schema.json": public(get((*call).workerSchema)),
	"/v1/capabilities":             get((*call).capabilities),
	"/v1/tasks":                    post((*call).submit).and(get((*call).listTasks)),
	"/v1/tasks:batch":              post((*call).submitBatch),
	"/v1/queues":                   get((*call).listQueues).and(post((*call).createQueue)),
	"/v1/application":              get((*call).getApplication).and(patch((*call).updateApplication)),
	// The handler of workers authenticates by itself: it has to look again while a
	// connection lasts.
	wire.Path: public(get((*call).worker)),
}

// below are the paths that name one thing: the collection, then what follows the id of
// the thing. A custom method is a suffix :name (API-028), and {} is a second id.
var below = map[string]map[string]route{
	"/v1/tasks/": {
		"":             get((*call).getTask),
		":cancel":      post((*call).cancelTask),
		":review":      post((*call).reviewTask),
		":retry":       post((*call).retryTask),
		"/source":      get((*call).getSource),
		"/attempts":    get((*call).listAttempts),
		"/attempts/{}": get((*call).getAttempt),
		"/evidence":    get((*call).listEvidence),
		"/evidence/{}": get((*call).getEvidence),
	},
	"/v1/queues/": {
		"": get((*call).getQueue).and(patch((*call).updateQueue)),
	},
}

// find returns the route of a request and the ids that its path names. Paths match
// exactly: no cleaning of //, no trailing slash, no redirect.
func find(r *http.Request) (found route, subject, part string, ok bool) {
	path, ok := plainPath(r.URL)
	if !ok {
		return route{}, "", "", false
	}
	if found, ok = fixed[path]; ok {
		return found, "", "", true
	}
	for collection, routes := range below {
		rest, inside := strings.CutPrefix(path, collection)
		if !inside {
			continue
		}
		subject, rest = cutAny(rest, "/:")
		if found, ok = routes[rest]; !ok {
			rest, part = cutPart(rest)
			found, ok = routes[rest]
		}
		return found, subject, part, ok && subject != "" && !strings.Contains(part, ":")
	}
	return route{}, "", "", false
}

// idMissing reports whether the path of a request would have been found if it had an id
// where it has nothing, as when a shell's variable was empty.
func idMissing(r *http.Request) bool {
	path, ok := plainPath(r.URL)
	for collection, routes := range below {
		rest, inside := strings.CutPrefix(path, collection)
		if !ok || !inside {
			continue
		}
		subject, rest := cutAny(rest, "/:")
		if _, found := routes[rest+"{}"]; found && rest != "" {
			return true
		}
		if _, found := routes[rest]; !found {
			rest, _ = cutPart(rest)
		}
		_, found := routes[rest]
		return found && subject == ""
	}
	return false
}

// cutPart takes the id out of /parts/id.
func cutPart(path string) (pattern, part string) {
	at := strings.LastIndexByte(path, '/')
	if at <= 0 || at == len(path)-1 {
		return path, ""
	}
	return path[:at+1] + "{}", path[at+1:]
}

// plainPath returns the decoded path, unless an encoded slash would make it look like
// another one.
func plainPath(u *url.URL) (string, bool) {
	if strings.Contains(strings.ToLower(u.EscapedPath()), "%2f") {
		return "", false
	}
	return u.Path, true
}

// cutAny cuts path before the first of the characters.
func cutAny(path, characters string) (before, rest string) {
	if i := strings.IndexAny(path, characters); i >= 0 {
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

package api

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/query"
	"github.com/orbitkit/orbit/server/internal/task"
)

// noQuery refuses query parameters where there are none.
func (c *call) noQuery() error {
	_, err := c.query()
	return err
}

// query returns the query parameters of the request. See parseQuery.
func (c *call) query(names ...string) (parameters, error) {
	return parseQuery(c.r.URL.RawQuery, names)
}

// parameters are query parameters by name. One that is empty is present.
type parameters map[string]string

// parseQuery reads a query in which each parameter may occur once and must be one of names
// (LIST-001, LIST-019).
func parseQuery(raw string, names []string) (parameters, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, badRequest("query: is malformed")
	}
	known := 0
	p := parameters{}
	for _, name := range names {
		all, present := values[name]
		if !present {
			continue
		}
		if len(all) > 1 {
			return nil, badRequest(name + ": must occur once")
		}
		known++
		p[name] = all[0]
	}
	if known < len(values) {
		return nil, badRequest(shownName(firstUnknown(values, names)) + ": is not a known parameter")
	}
	return p, nil
}

// firstUnknown returns the first name, by its bytes, that is none of names.
func firstUnknown(values url.Values, names []string) string {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			return name
		}
	}
	return ""
}

// shownCharacters bounds how much of a name that a client made up is shown.
const shownCharacters = 64

// shownName is a name as a message shows it: quoted unless it is a plain word, so that it
// can forge neither another message nor a line of a log.
func shownName(name string) string {
	if plainWord.MatchString(name) {
		return name
	}
	shown, count := name, 0
	for at := range name {
		if count == shownCharacters {
			shown = name[:at] + "…"
			break
		}
		count++
	}
	return strconv.QuoteToASCII(shown)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

const (
	defaultLimit = 20
	maxLimit     = 100
)

// limit reads the size of a page (LIST-008).
func (p parameters) limit() (int, error) {
	text, present := p["limit"]
	if !present {
		return defaultLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxLimit || strconv.Itoa(limit) != text {
		return 0, badRequest("limit: must be a number from 1 to 100")
	}
	return limit, nil
}

var taskListParameters = []string{
	"queue_id", "state", "business_key", "created_from", "created_before", "limit", "cursor",
}

// taskFilter reads the filters of the list of tasks.
func (p parameters) taskFilter() (f query.TaskFilter, err error) {
	if f.Queue, err = p.queue(); err != nil {
		return f, err
	}
	if f.State, err = p.state(); err != nil {
		return f, err
	}
	if f.BusinessKey, err = p.businessKey(); err != nil {
		return f, err
	}
	if f.CreatedFrom, err = p.instant("created_from"); err != nil {
		return f, err
	}
	if f.CreatedBefore, err = p.instant("created_before"); err != nil {
		return f, err
	}
	if f.CreatedFrom != nil && f.CreatedBefore != nil && *f.CreatedFrom >= *f.CreatedBefore {
		return f, badRequest("created_from: must be earlier than created_before")
	}
	return f, nil
}

func (p parameters) queue() (sqldb.ID, error) {
	text, present := p["queue_id"]
	if !present {
		return sqldb.ID{}, badRequest("queue_id: is required")
	}
	id, err := sqldb.ParseID(text)
	if err != nil {
		return id, badRequest("queue_id: must be 32 lower-case hexadecimal characters")
	}
	return id, nil
}

// states are those that a filter may name.
var states = []task.State{
	task.Waiting, task.Leased, task.Running, task.NeedsReview, task.Succeeded, task.Failed, task.Cancelled,
}

// state returns 0 if none is named (LIST-003).
func (p parameters) state() (task.State, error) {
	text, present := p["state"]
	if !present {
		return 0, nil
	}
	at := slices.IndexFunc(states, func(s task.State) bool { return s.String() == text })
	if at < 0 {
		return 0, badRequest("state: must be one of WAITING, LEASED, RUNNING, NEEDS_REVIEW, SUCCEEDED, FAILED, CANCELLED")
	}
	return states[at], nil
}

// businessKey returns "" if none is named. One that is named is not empty (LIST-004,
// LIST-005).
func (p parameters) businessKey() (string, error) {
	key, present := p["business_key"]
	if present && key == "" {
		return "", badRequest("business_key: must have 1 to 191 Unicode characters")
	}
	return key, orbit.ValidateBusinessKey(key)
}

// instant reads a time, in microseconds UTC; nil means that none is given (LIST-007).
func (p parameters) instant(name string) (*int64, error) {
	text, present := p[name]
	if !present {
		return nil, nil
	}
	t, err := orbit.ParseTime(text)
	switch {
	case err != nil && lostPlus(text):
		return nil, badRequest(name + ": has a blank in it: + is written %2B in a query")
	case err != nil:
		return nil, badRequest(name + ": " + err.Error())
	}
	micros := sqldb.Micros(t)
	return &micros, nil
}

// lostPlus reports whether text is a time whose + a query has made a blank.
func lostPlus(text string) bool {
	_, err := orbit.ParseTime(strings.Replace(text, " ", "+", 1))
	return err == nil
}

package api

import (
	"net/url"
	"strconv"
)

// noQuery refuses query parameters where there are none.
func (c *call) noQuery() error {
	_, err := c.query()
	return err
}

// query returns the query parameters, each of which may occur once and must be one of
// names (LIST-001, LIST-019).
func (c *call) query(names ...string) (map[string]string, error) {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("query: is malformed")
	}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	parameters := map[string]string{}
	for name, all := range values {
		if !known[name] {
			return nil, badRequest("query: has a parameter that is not known")
		}
		if len(all) > 1 {
			return nil, badRequest(name + ": must occur once")
		}
		parameters[name] = all[0]
	}
	return parameters, nil
}

const (
	defaultLimit = 20
	maxLimit     = 100
)

// limitOf reads the size of a page (LIST-008).
func limitOf(parameters map[string]string) (int, error) {
	text, present := parameters["limit"]
	if !present {
		return defaultLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxLimit || strconv.Itoa(limit) != text {
		return 0, badRequest("limit: must be a number from 1 to 100")
	}
	return limit, nil
}

package api

import (
	"net/http"
	"strings"
)

// Pattern returns the path of a request with {id} for each id, such as
// /v1/tasks/{id}/attempts/{id}, or "other" if the interface has no such path: there are few
// patterns, whatever clients send.
func Pattern(r *http.Request) string {
	_, subject, part, ok := find(r)
	if !ok {
		return "other"
	}
	for collection := range below {
		if rest, inside := strings.CutPrefix(r.URL.Path, collection); inside && subject != "" {
			rest = strings.TrimPrefix(rest, subject)
			if part != "" {
				rest = strings.TrimSuffix(rest, part) + "{id}"
			}
			return collection + "{id}" + rest
		}
	}
	return r.URL.Path
}

package api

import (
	"slices"
)

// Routes returns what the interface serves, such as "GET /v1/tasks/{}:cancel", sorted. HEAD
// goes with GET and is left out.
func Routes() []string {
	var all []string
	add := func(path string, r route) {
		for method := range r.methods {
			if method != "HEAD" {
				all = append(all, method+" "+path)
			}
		}
	}
	for path, r := range fixed {
		add(path, r)
	}
	for collection, routes := range below {
		for rest, r := range routes {
			add(collection+"{}"+rest, r)
		}
	}
	slices.Sort(all)
	return all
}

// Public returns the paths that need no credential, sorted.
func Public() []string {
	var all []string
	for path, r := range fixed {
		if r.public {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all
}

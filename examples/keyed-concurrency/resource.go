package main

import (
	"errors"
	"slices"
	"sync"
)

var (
	errForbidden = errors.New("the namespace may not write to this resource")
	errStale     = errors.New("the resource has seen a greater token")
	errConflict  = errors.New("the operation was applied with other content")
)

// A resource is a model, in memory, of whoever owns the objects that tasks write to.
//
// Its mutex and its maps only show which steps have to be one atomic step. They are no store
// for production: they protect nothing outside this process and are gone when it ends. A
// real owner does the same in one transaction of the database that holds the objects, see
// package resourceguard and docs/resource-keys.md.
type resource struct {
	namespace string

	mu      sync.Mutex
	highest map[string]uint64 // token, by key
	applied map[string]string // content, by operation
	writes  []write           // that were done, in their order
}

// A write is a request to the resource.
type write struct {
	namespace, key string
	token          uint64
	operation      string // the same in every attempt of the task
	attempt        string
	content        string
}

func newResource(namespace string) *resource {
	return &resource{namespace: namespace, highest: make(map[string]uint64), applied: make(map[string]string)}
}

// apply does w, or refuses it. It reports false if the operation had been applied before:
// then it answers as it did then and writes nothing.
func (r *resource) apply(w write) (bool, error) {
	if w.namespace != r.namespace { // a token is no permission
		return false, errForbidden
	}
	r.mu.Lock() // from the check of the token to the write: one step
	defer r.mu.Unlock()
	if w.token < r.highest[w.key] {
		return false, errStale
	}
	content, before := r.applied[w.operation]
	if before && content != w.content {
		return false, errConflict
	}
	r.highest[w.key] = w.token
	if before {
		return false, nil
	}
	r.applied[w.operation] = w.content
	r.writes = append(r.writes, w)
	return true, nil
}

// written returns what was written, in its order.
func (r *resource) written() []write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

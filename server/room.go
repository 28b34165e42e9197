package server

import "fmt"

// Room bounds what one node holds of workers. Who is over a bound is answered UNAVAILABLE
// and may come again, to another node if there is one.
type Room struct {
	// Connections is how many workers may be connected, at about 50 KiB each. Default 20,000.
	Connections int
	// ConnectionsPerCredential is how many of them one credential may have. One that has
	// died unnoticed counts until it is given up: leave room for every process to come back.
	// Default half of Connections.
	ConnectionsPerCredential int
	// Kinds is how many kinds of task the registrations may name, at about 200 bytes each:
	// queues times handlers, twice with resource keys, once for equal registrations of a
	// namespace. Default 200,000.
	Kinds int
	// KindsPerCredential is how many of them one credential may name. Default half of Kinds.
	KindsPerCredential int
}

func (r Room) check() error {
	for _, bound := range []struct {
		name         string
		all, perEach int
	}{{"connections", r.Connections, r.ConnectionsPerCredential}, {"kinds", r.Kinds, r.KindsPerCredential}} {
		if bound.all < 0 || bound.perEach < 0 {
			return fmt.Errorf("max %s must not be negative", bound.name)
		}
		if bound.all != 0 && bound.perEach > bound.all {
			return fmt.Errorf("max %s per credential %d must be at most max %s %d", bound.name, bound.perEach, bound.name, bound.all)
		}
	}
	return nil
}

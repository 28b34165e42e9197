// Package freeport finds ports for the servers that tests start by address.
//
// A port that the system chooses and that is closed again may be given to somebody else, such
// as the next connection of a test beside, before the server takes it. These are chosen below
// those that the system gives away.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// The ports: the private servers of make test have those from 20000 to 31999, and systems give
// away ports from 32768 or 49152 on.
const (
	first = 10000
	count = 10000
)

// Address returns an address of this machine at which nobody listens.
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Port(t)))
}

// Port returns the port of such an address.
func Port(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := first + rand.IntN(count)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
		return port
	}
	t.Fatal("no port is free")
	return 0
}

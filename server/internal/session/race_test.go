//go:build race

package session_test

// underRace tells that the race detector takes memory of its own for each goroutine.
const underRace = true

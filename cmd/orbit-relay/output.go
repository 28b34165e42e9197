package main

import (
	"fmt"
	"io"
	"time"

	"github.com/orbitkit/orbit/internal/cli"
)

// fields shows pairs of a name and a value, those without a value left out.
func fields(w io.Writer, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", pairs[i], cli.Plain(pairs[i+1]))
		}
	}
}

// at is a time for people, empty for none.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// since is a time for JSON, absent for none.
func since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

package handofftest

import (
	"context"
	"fmt"
)

// Judge runs one clause alone.
func Judge(ctx context.Context, open Open, name string) (broken error) {
	for _, c := range clauses() {
		if c.name == name {
			return c.judge(ctx, open)
		}
	}
	panic(fmt.Sprintf("there is no clause %s", name))
}

// Clauses returns the names of all.
func Clauses() (names []string) {
	for _, c := range clauses() {
		names = append(names, c.name)
	}
	return names
}

package resourceguard_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// What is not there is refused by name, before any I/O: no database is given at all.
func TestNothingInPlaceOfAnArgumentIsRefused(t *testing.T) { // RG-003, RG-010
	guard, err := resourceguard.New(resourceguard.MySQL, guardtest.Authorise, resourceguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	fence := resourceguard.Fence{Namespace: "ns", Key: "key", Token: 5}
	pool, never := (*sql.DB)(nil), func(context.Context, *sql.Tx) error { panic("called") }
	for name, c := range map[string]struct {
		field string
		call  func(*resourceguard.Guard) error
	}{
		"Transact, db": {"db", func(g *resourceguard.Guard) error { return g.Transact(t.Context(), nil, never) }},
		"Transact, f":  {"f", func(g *resourceguard.Guard) error { return g.Transact(t.Context(), new(sql.DB), nil) }},
		"Apply, fn": {"fn", func(g *resourceguard.Guard) error {
			_, err := g.Apply(t.Context(), nil, write(5, "a"), nil)
			return err
		}},
		"Lookup, no *DB": {"q", func(g *resourceguard.Guard) error {
			_, _, err := g.Lookup(t.Context(), pool, "ns", "key", "a")
			return err
		}},
		"Prune, no *DB": {"db", func(g *resourceguard.Guard) error {
			_, err := g.Prune(t.Context(), pool, resourceguard.PromisedWindow, 1)
			return err
		}},
		"Prune, other pool": {"db", func(g *resourceguard.Guard) error {
			_, err := g.Prune(t.Context(), bunDB{}, resourceguard.PromisedWindow, 1)
			return err
		}},
		"Raise": {"", func(g *resourceguard.Guard) error { return g.Raise(t.Context(), nil, fence) }},
	} {
		var invalid *resourceguard.InvalidError
		if err := c.call(guard); c.field != "" && (!errors.As(err, &invalid) || invalid.Field != c.field) {
			t.Errorf("%s = %v, want an InvalidError of %s", name, err, c.field)
		}
		for _, unmade := range []*resourceguard.Guard{nil, {}} {
			if err := c.call(unmade); !errors.As(err, &invalid) || invalid.Field != "guard" {
				t.Errorf("%s of a guard that New has not made = %v, want an InvalidError of guard", name, err)
			}
		}
	}
	in := resourceguard.InTransaction
	for _, tx := range []resourceguard.Tx{in(in(nil)), in((*sql.Conn)(nil)), in(in((*sql.Tx)(nil))), pool} {
		if err := guard.Raise(t.Context(), tx, fence); !errors.Is(err, resourceguard.ErrNoTransaction) {
			t.Errorf("Raise through %T = %v, want ErrNoTransaction", tx, err)
		}
	}
	var invalid *resourceguard.InvalidError
	if _, err := resourceguard.New(&resourceguard.Dialect{}, guardtest.Authorise, resourceguard.Config{}); !errors.As(err, &invalid) || invalid.Field != "dialect" {
		t.Errorf("New with an empty dialect = %v, want an InvalidError of dialect", err)
	}
}

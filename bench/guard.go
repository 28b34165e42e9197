package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/orbitkit/orbit/resourceguard"
)

const (
	guardClients = 16
	manyKeys     = 10_000
)

// benchGuard compares guarded writes per second with the same statements written by hand,
// on one key that all clients want and on many keys, on each engine.
func benchGuard(ctx context.Context, o options) error {
	for _, engine := range guardEngines {
		if !strings.Contains(engine.name, o.engine) {
			continue
		}
		yard, err := engine.open(ctx, o)
		if errors.Is(err, errMissing) {
			fmt.Printf("guard, %s: left out: %v\n", engine.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("guard, %s: %w", engine.name, err)
		}
		err = errors.Join(benchGuardOn(ctx, o, engine, yard.DB), yard.close())
		if err != nil {
			return fmt.Errorf("guard, %s: %w", engine.name, err)
		}
	}
	return nil
}

func benchGuardOn(ctx context.Context, o options, engine guardEngine, db *sql.DB) error {
	guard, err := resourceguard.New(engine.dialect, everybody, resourceguard.Config{})
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, engine.business); err != nil {
		return err
	}
	if err := sameStatements(ctx, db, guard, engine); err != nil {
		return err
	}
	ours := &guarded{db: db, guard: guard, engine: engine}
	floor := &byHand{db: db, engine: engine}
	for _, keys := range []int{1, manyKeys} {
		if err := benchGuardKeys(ctx, o, engine, keys, ours, floor); err != nil {
			return err
		}
	}
	return nil
}

// benchGuardKeys runs pairs, the floor first in every second one. Every run is the work of
// one attempt per key, whose token is above that of the run before: the first write to a
// key raises it. Keys are there already, as those of a resource in use.
func benchGuardKeys(ctx context.Context, o options, engine guardEngine, keys int, ours *guarded, floor *byHand) error {
	name := "one hot key"
	if keys > 1 {
		name = fmt.Sprintf("%d keys", keys)
	}
	for _, w := range []guardWriter{ours, floor} {
		if err := meetKeys(ctx, w, engine, keys); err != nil {
			return err
		}
	}
	r := ratio{name: fmt.Sprintf("guard, %s, %s", engine.name, name)}
	cpu := ratio{name: "  processor time"}
	retries := int64(0)
	for pair := range o.pairs {
		runs := make(map[guardWriter]guardResult)
		order := []guardWriter{ours, floor}
		if pair%2 == 1 {
			order = []guardWriter{floor, ours}
		}
		for _, w := range order {
			var err error
			if runs[w], err = guardRun(ctx, w, engine, guardWrites(w.namespace(), keys, pair+2, guardClients*o.each)); err != nil {
				return err
			}
		}
		r.add(runs[ours].perSecond, runs[floor].perSecond)
		cpu.add(runs[ours].cpu, runs[floor].cpu)
		retries += runs[ours].retries
	}
	r.print()
	cpu.printAs("µs a write, of this process")
	fmt.Printf("%-28s %d writes of ours ended by a deadlock or lock wait\n", "", retries)
	return nil
}

// A guardWriter does one guarded write in a transaction of its own.
type guardWriter interface {
	namespace() string
	write(ctx context.Context, w resourceguard.Write) error
}

// A guardResult is what a run came to.
type guardResult struct {
	perSecond float64
	cpu       float64 // of this process, in microseconds a write
	retries   int64   // writes that the database could not judge
}

// guardRun does all writes on the usual number of clients. A write that the database
// could not judge is run again and counted.
func guardRun(ctx context.Context, w guardWriter, engine guardEngine, writes []resourceguard.Write) (guardResult, error) {
	var again atomic.Int64
	before := cpuOfSelf()
	perSecond, err := rate(guardClients, len(writes), func(i int) error {
		for {
			err := w.write(ctx, writes[i])
			if err == nil || !errors.Is(err, resourceguard.ErrRetryable) && !engine.dialect.Transient(err) {
				return err
			}
			again.Add(1)
		}
	})
	return guardResult{perSecond, float64(cpuOfSelf()-before) / float64(len(writes)), again.Load()}, err
}

// meetKeys writes once to each key.
func meetKeys(ctx context.Context, w guardWriter, engine guardEngine, keys int) error {
	_, err := guardRun(ctx, w, engine, guardWrites(w.namespace(), keys, 1, keys))
	return err
}

// guardWrites are n operations on keys in turn, in no order that a B-tree likes.
func guardWrites(namespace string, keys, token, n int) []resourceguard.Write {
	const stride = 7919 // a prime: each key comes once in as many writes as there are keys
	writes := make([]resourceguard.Write, n)
	for i := range writes {
		writes[i] = resourceguard.Write{
			Namespace: namespace,
			Key:       fmt.Sprintf("object/%d/%d", keys, i*stride%keys),
			Token:     uint64(token),
			Attempt:   fmt.Sprintf("%032d", token),
			Operation: fmt.Sprintf("operation-%d-%d", token, i),
			Content:   []byte(`{"product":"pen","quantity":2,"order":"a business document of some length"}`),
		}
	}
	return writes
}

func everybody(context.Context, string, string) error { return nil }

var guardReceipt = []byte(`{"reserved":2}`)

// guarded writes through the guard.
type guarded struct {
	db     *sql.DB
	guard  *resourceguard.Guard
	engine guardEngine
}

func (*guarded) namespace() string { return "ours" }

func (g *guarded) write(ctx context.Context, w resourceguard.Write) error {
	return inTx(ctx, g.db, func(tx *sql.Tx) error { return g.apply(ctx, tx, w) })
}

func (g *guarded) apply(ctx context.Context, tx resourceguard.Tx, w resourceguard.Write) error {
	res, err := g.guard.Apply(ctx, tx, w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, g.engine.insertBusiness, w.Key)
		return guardReceipt, err
	})
	if err == nil && res.Verdict != resourceguard.Applied {
		return fmt.Errorf("write is %v, want Applied", res.Verdict)
	}
	return err
}

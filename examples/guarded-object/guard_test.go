package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// RG-015: a store of another kind keeps all promises of a guard.
func TestGuardOfObjectsConforms(t *testing.T) {
	open := func(context.Context) (guardtest.Store, error) {
		return &log{guard{newMemoryBucket(), guardtest.Authorise}}, nil
	}
	guardtest.Run(t, open)
	if problems := guardtest.Check(t.Context(), open); len(problems) > 0 {
		t.Errorf("broken or not evaluated: %v", problems)
	}
}

// A log keeps the entries that the suite wants as the content of its objects.
type log struct{ guard }

var errRolledBack = errors.New("rolled back")

func (l *log) Apply(ctx context.Context, w resourceguard.Write, receipt []byte, end guardtest.End) (resourceguard.Result, error) {
	res, err := l.apply(ctx, w, func(content []byte) ([]byte, []byte, error) {
		switch end {
		case guardtest.RollBack:
			return nil, nil, errRolledBack
		case guardtest.Refuse:
			return nil, nil, guardtest.ErrBusiness
		}
		entries, err := parseLog(content)
		if err != nil {
			return nil, nil, err
		}
		next, err := json.Marshal(append(entries, guardtest.Entry{Token: w.Token, Operation: w.Operation}))
		return next, receipt, err
	})
	if errors.Is(err, errRolledBack) {
		return resourceguard.Result{Verdict: resourceguard.Applied, Receipt: receipt}, nil
	}
	return res, err
}

func parseLog(content []byte) (entries []guardtest.Entry, err error) {
	if content != nil {
		err = json.Unmarshal(content, &entries)
	}
	return entries, err
}

func (l *log) Log(ctx context.Context, namespace, key string) ([]guardtest.Entry, error) {
	content, err := l.content(ctx, namespace, key)
	if err != nil {
		return nil, err
	}
	return parseLog(content)
}

func (l *log) Raise(ctx context.Context, f resourceguard.Fence) error { return l.raise(ctx, f) }

func (l *log) Lookup(ctx context.Context, namespace, key, id string) (resourceguard.Record, bool, error) {
	return l.lookup(ctx, namespace, key, id)
}

func (l *log) Reopen(context.Context) (guardtest.Store, error) { return &log{l.guard}, nil }

// The demonstration runs to the output that README.md prints.
func TestTheDemonstrationRunsToItsExactOutput(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)\n## guarded-object\n[^#]*?```text\n(.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatal("README.md has no output of guarded-object")
	}
	var out bytes.Buffer
	if err := demonstrate(t.Context(), &out); err != nil || out.String() != string(m[1]) {
		t.Errorf("%v\n%s\nREADME.md has\n%s", err, &out, m[1])
	}
}

// The body is bounded: records go when they are too old to matter, and not before.
func TestBodyForgetsOnlyWhatIsTooOld(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	b := guardedBody{Operations: make(map[string]operation)}
	for i := range mostOperations {
		b.Operations[fmt.Sprint(i)] = operation{AppliedAt: now}
	}
	w, _ := draft(5, "one more")
	if err := b.record(w, nil, now.Add(keep)); !errors.Is(err, errFull) {
		t.Errorf("record beside %d of the last 90 days = %v, want errFull", mostOperations, err)
	}
	if err := b.record(w, nil, now.Add(keep+1)); err != nil || len(b.Operations) != 1 {
		t.Errorf("record after 90 days = %v, %d are left", err, len(b.Operations))
	}
}

// Something else in the object's place is an error, never an empty guard.
func TestForeignObjectIsNoGuardedBody(t *testing.T) {
	w, f := draft(5, "first")
	for _, body := range []string{"", "content", `{}`, `{"namespace":"shop","key":"document/8","highest":"5"}`, `{"namespace":"shop","key":"document/7"}`} {
		store := newMemoryBucket()
		if _, err := store.put(t.Context(), objectName(w.Namespace, w.Key), "", []byte(body), nil); err != nil {
			t.Fatal(err)
		}
		g := guard{store, guardtest.Authorise}
		if _, err := g.apply(t.Context(), w, f); err == nil || store.puts != 1 {
			t.Errorf("apply over %q = %v, %d puts; want an error and 1", body, err, store.puts)
		}
	}
}

// What breaks a rule is refused before the object is read or, of a receipt, before it is written.
func TestInvalidInputIsRefused(t *testing.T) {
	store := newMemoryBucket()
	store.afterGet = func() { t.Error("the object was read") }
	g := guard{store, guardtest.Authorise}
	refused := func(field string, err error) {
		t.Helper()
		var invalid *resourceguard.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%v, want an invalid %s", err, field)
		}
	}
	for _, bad := range []string{"", "\xff", strings.Repeat("x", resourceguard.MaxName+1)} {
		for field, names := range map[string][3]string{"namespace": {bad, "k", "o"}, "key": {"n", bad, "o"}, "operation": {"n", "k", bad}} {
			_, _, err := g.lookup(t.Context(), names[0], names[1], names[2])
			refused(field, err)
		}
	}
	w, _ := draft(5, "first")
	_, err := g.apply(t.Context(), w, nil)
	refused("f", err)
	store.afterGet = nil
	_, err = g.apply(t.Context(), w, func([]byte) ([]byte, []byte, error) { return nil, make([]byte, resourceguard.MaxReceipt+1), nil })
	refused("receipt", err)
	if store.puts != 0 {
		t.Errorf("%d puts, want none", store.puts)
	}
}

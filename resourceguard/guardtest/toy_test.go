package guardtest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// A toy is a guard that is written apart from the real ones, sound by itself, and
// broken in one way by its fault.
type toy struct {
	fault string

	waiting *atomic.Int32 // calls that want the lock
	holder  *atomic.Value // place of the one that has it
	mu      *sync.Mutex
	rows    map[string]row
	ops     map[string]resourceguard.Record
	logs    map[string][]guardtest.Entry

	calls map[string]int // how often a key was wanted
}

type row struct {
	highest uint64
	attempt string
}

func newToy(fault string) *toy {
	return &toy{
		fault: fault, mu: new(sync.Mutex), waiting: new(atomic.Int32), holder: new(atomic.Value),
		rows:  make(map[string]row),
		ops:   make(map[string]resourceguard.Record),
		logs:  make(map[string][]guardtest.Entry),
		calls: make(map[string]int),
	}
}

func (t *toy) is(fault string) bool { return t.fault == fault }

// Reopen shares everything, but for a toy that keeps in its process what belongs into
// the store.
func (t *toy) Reopen(context.Context) (guardtest.Store, error) {
	other := *t
	if t.is("keeps the maximum in its process") {
		other.rows = maps.Clone(t.rows)
	}
	return &other, nil
}

// pause lets others in where the fault tears the atomic step apart.
func (t *toy) pause() {
	t.mu.Unlock()
	for range 20 {
		runtime.Gosched()
	}
	t.mu.Lock()
}

// lock makes a call wait for the others; it lets them come first, so that they meet.
func (t *toy) lock(place string) error {
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	if !t.is("hasty") {
		runtime.Gosched()
	}
	if !t.mu.TryLock() {
		if t.is("locks the keys beside it") && t.holder.Load() != place {
			return errors.New("locked")
		}
		t.mu.Lock()
	}
	t.holder.Store(place)
	if t.is("locks the keys beside it") {
		runtime.Gosched()
	}
	return nil
}

func (t *toy) Apply(ctx context.Context, w resourceguard.Write, receipt []byte, end guardtest.End) (resourceguard.Result, error) {
	if err := t.refuse(ctx, w.Namespace, w.Key, w.Attempt, w.Operation, w.Token); err != nil {
		return resourceguard.Result{}, err
	}
	if len(w.Content) == 0 && !t.is("takes empty contents") {
		return resourceguard.Result{}, resourceguard.ErrInvalid
	}
	if err := t.lock(w.Namespace + "\x00" + w.Key); err != nil {
		return resourceguard.Result{}, err
	}
	defer t.mu.Unlock()
	at, op := t.row(w.Namespace, w.Key), t.op(w.Namespace, w.Key, w.Operation)
	t.calls[at]++
	seen, done := t.rows[at], t.ops[op]
	repeat := done.Token > 0
	if repeat && t.is("looks for repeats before attempts") && w.Token == seen.highest && done.Digest == digest(w) {
		return resourceguard.Result{Verdict: resourceguard.Replayed, Receipt: done.Receipt}, nil
	}
	if repeat && t.is("answers stale repeats") && done.Digest == digest(w) {
		return resourceguard.Result{Verdict: resourceguard.Replayed, Receipt: done.Receipt}, nil
	}
	switch {
	case t.is("last first contact wins") && seen.highest == 0,
		t.is("asks first, writes later on busy keys") && t.calls[at] > 16:
		t.pause()
		done = t.ops[op]
		repeat = done.Token > 0
	case t.is("looks for repeats before the lock"):
		t.pause()
		seen = t.rows[at]
	case t.is("looks for repeats of others before the lock"):
		t.pause()
		seen = t.rows[at]
		if now := t.ops[op]; now.Attempt == w.Attempt {
			done, repeat = now, true
		}
	}
	if err := t.judge(seen, w.Token, w.Attempt); err != nil {
		var stale *resourceguard.StaleError
		if errors.As(err, &stale) {
			same := done.Digest == digest(w) || t.is("tells it was applied with other content")
			stale.AlreadyApplied = repeat && same && !t.is("never tells what was applied")
		}
		return resourceguard.Result{}, err
	}
	if repeat && !t.is("writes repeats again") {
		return t.replay(at, seen, w, receipt, done)
	}
	return t.write(at, op, seen, w, receipt, end)
}

func (t *toy) replay(at string, seen row, w resourceguard.Write, receipt []byte, done resourceguard.Record) (resourceguard.Result, error) {
	if done.Digest != digest(w) && !t.is("replays other content") {
		if t.is("conflict raises") {
			t.raise(at, seen, w.Token, w.Attempt)
		}
		return resourceguard.Result{}, &resourceguard.ConflictError{Operation: w.Operation}
	}
	switch {
	case t.is("repeat does not raise"):
	case t.is("repeat keeps the holder"):
		t.raise(at, seen, w.Token, seen.attempt)
	default:
		t.raise(at, seen, w.Token, w.Attempt)
	}
	if t.is("answers its own receipt") {
		done.Receipt = receipt
	}
	return resourceguard.Result{Verdict: resourceguard.Replayed, Receipt: done.Receipt}, nil
}

func (t *toy) write(at, op string, seen row, w resourceguard.Write, receipt []byte, end guardtest.End) (resourceguard.Result, error) {
	entry := guardtest.Entry{Token: w.Token, Operation: w.Operation}
	record := resourceguard.Record{Digest: digest(w), Token: w.Token, Attempt: w.Attempt, Receipt: receipt}
	if t.is("forgets receipts") {
		record.Receipt = nil
	}
	place := w.Namespace + "\x00" + w.Key
	res := resourceguard.Result{Verdict: resourceguard.Applied, Receipt: receipt}
	switch {
	case end == guardtest.RollBack:
		if t.is("remembers the rolled back token") || t.is("remembers the raced rollback") && t.waiting.Load() > 0 {
			t.raise(at, seen, w.Token, w.Attempt)
		}
		if t.is("remembers the rolled back record") {
			t.ops[op] = record
		}
		return res, nil
	case end == guardtest.Refuse:
		if t.is("keeps the raise") {
			t.raise(at, seen, w.Token, w.Attempt)
		}
		if t.is("records refused writes") {
			t.ops[op] = record
		}
		if t.is("keeps the entry of a refused write") {
			t.logs[place] = append(t.logs[place], entry)
		}
		return resourceguard.Result{}, guardtest.ErrBusiness
	}
	t.raise(at, seen, w.Token, w.Attempt)
	t.ops[op] = record
	t.logs[place] = append(t.logs[place], entry)
	return res, nil
}

func (t *toy) refuse(ctx context.Context, namespace, key, attempt, operation string, token uint64) error {
	for _, name := range []string{namespace, key, attempt, operation} {
		mayBeEmpty := t.is("takes empty keys") && name == key
		mayBeBad := t.is("mends keys") && name == key
		mayBeLong := t.is("cuts keys") && name == key
		if name == "" && !mayBeEmpty || !utf8.ValidString(name) && !mayBeBad || utf8.RuneCountInString(name) > resourceguard.MaxName && !mayBeLong {
			return resourceguard.ErrInvalid
		}
	}
	if token == 0 && !t.is("takes token zero") {
		return resourceguard.ErrInvalid
	}
	if err := guardtest.Authorise(ctx, namespace, key); err != nil && !t.is("asks nobody") {
		return fmt.Errorf("%w: %w", resourceguard.ErrNotAuthorised, err)
	}
	return nil
}

func (t *toy) judge(seen row, token uint64, attempt string) error {
	holds := attempt == seen.attempt || attempt == "" || t.is("takes tokens of others") ||
		t.is("folds attempts") && strings.EqualFold(attempt, seen.attempt)
	switch {
	case t.is("takes every token"):
		return nil
	case t.less(token, seen.highest), token == seen.highest && t.is("refuses the equal token"):
		stale := &resourceguard.StaleError{Presented: token, Highest: seen.highest}
		if t.is("reports the presented as highest") {
			stale.Highest = token
		}
		return stale
	case token == seen.highest && !holds:
		return &resourceguard.CollisionError{Token: token}
	}
	return nil
}

func (t *toy) less(a, b uint64) bool {
	switch t.fault {
	case "compares tokens as float":
		return float64(a) < float64(b)
	case "compares tokens as int64":
		return int64(a) < int64(b)
	case "compares tokens as text":
		return strconv.FormatUint(a, 10) < strconv.FormatUint(b, 10)
	case "compares tokens as 32 bits":
		return uint32(a) < uint32(b)
	}
	return a < b
}

func (t *toy) raise(at string, seen row, token uint64, attempt string) {
	if token > seen.highest {
		t.rows[at] = row{token, attempt}
	}
}

// row is the identity of a key, op that of an operation.
func (t *toy) row(namespace, key string) string {
	switch t.fault {
	case "folds case":
		key = strings.ToLower(key)
	case "trims keys":
		key = strings.TrimRight(key, " ")
	case "drops combining marks":
		key = dropped(key, unicode.Mn)
	case "drops zero-width characters":
		key = dropped(key, unicode.Cf)
	case "drops namespaces":
		namespace = ""
	case "joins namespace and key":
		return namespace + "/" + key
	case "cuts keys":
		key = string([]rune(key)[:min(utf8.RuneCountInString(key), resourceguard.MaxName)])
	case "mends keys":
		key = strings.ToValidUTF8(key, "\ufffd")
	}
	return namespace + "\x00" + key
}

func (t *toy) op(namespace, key, operation string) string {
	if t.is("folds operations") {
		operation = strings.ToLower(operation)
	}
	if t.is("operations of all keys are one") {
		return operation
	}
	return t.row(namespace, key) + "\x00" + operation
}

func dropped(s string, set *unicode.RangeTable) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(set, r) {
			return -1
		}
		return r
	}, s)
}

func digest(w resourceguard.Write) [32]byte { return sha256.Sum256(w.Content) }

func (t *toy) Log(_ context.Context, namespace, key string) ([]guardtest.Entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]guardtest.Entry(nil), t.logs[namespace+"\x00"+key]...), nil
}

func (t *toy) Raise(ctx context.Context, f resourceguard.Fence) error {
	attempt := f.Attempt
	if attempt == "" {
		attempt = "reconciler"
	}
	if err := t.refuse(ctx, f.Namespace, f.Key, attempt, "raise", f.Token); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.row(f.Namespace, f.Key)
	seen := t.rows[at]
	switch {
	case t.is("raise does nothing"):
		return nil
	case t.is("raise lowers"):
		t.rows[at] = row{f.Token, f.Attempt}
		return nil
	case t.is("raise takes the token away") && f.Token == seen.highest:
		t.rows[at] = row{f.Token, f.Attempt}
		return nil
	}
	if err := t.judge(seen, f.Token, f.Attempt); err != nil {
		return err
	}
	t.raise(at, seen, f.Token, f.Attempt)
	return nil
}

func (t *toy) Lookup(_ context.Context, namespace, key, operation string) (resourceguard.Record, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.is("lookup of all keys") {
		for op, r := range t.ops {
			if strings.HasSuffix(op, "\x00"+operation) {
				return r, true, nil
			}
		}
	}
	r, there := t.ops[t.op(namespace, key, operation)]
	if t.is("lookup tells the last token") {
		r.Token = t.rows[t.row(namespace, key)].highest
	}
	return r, there, nil
}

// A keeper says that it keeps the raise of refused writes.
type keeper struct{ *toy }

func (keeper) KeepsRaise() bool { return true }

func (k keeper) Apply(ctx context.Context, w resourceguard.Write, receipt []byte, end guardtest.End) (resourceguard.Result, error) {
	res, err := k.toy.Apply(ctx, w, receipt, end)
	if errors.Is(err, guardtest.ErrBusiness) && k.is("keeps the raise") {
		err = fmt.Errorf("%w: %w", resourceguard.ErrRefused, err)
	}
	return res, err
}

// A bare store can neither raise nor look up nor be reopened nor roll back.
type bare struct{ *toy }

func (b bare) Apply(ctx context.Context, w resourceguard.Write, receipt []byte, end guardtest.End) (resourceguard.Result, error) {
	if end == guardtest.RollBack {
		return resourceguard.Result{}, guardtest.ErrUnsupported
	}
	return b.toy.Apply(ctx, w, receipt, end)
}

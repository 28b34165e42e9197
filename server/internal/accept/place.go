package accept

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// lastClaimable is the highest version of a key that a claim may start from: it needs one
// step for itself and one for its release (AMB-009). A key beyond it is exhausted, and
// its tasks stay parked.
const lastClaimable = math.MaxUint64 - 2

// A keyLane is where tasks compete: those of one resource key that the same workers can
// take.
type keyLane struct {
	key  [32]byte
	lane int64
}

// A keyView is what was seen of some resource keys.
type keyView struct {
	closed map[[32]byte]bool // by key that has a row: held by an attempt, or exhausted
	ready  map[keyLane]int64 // order value of the first READY task
}

// place decides which keyed members are parked. The first look takes no lock, and if
// nobody has to be parked none is needed: a READY task cannot be stranded, at worst the
// claimer that finds its key busy parks it. Parking needs the key's row locked against a
// release, which looks for parked tasks, and a second look under the lock (law 2).
func place(ctx context.Context, tx *sqldb.Tx, members []*member) error {
	keyed := slices.DeleteFunc(slices.Clone(members), func(m *member) bool {
		return len(m.draft.key) == 0 || m.draft.dispatch == task.DispatchDelayed
	})
	if len(keyed) == 0 {
		return nil
	}
	view, err := readKeys(ctx, tx, keysOf(keyed), "")
	if err != nil {
		return err
	}
	parked := view.decide(keyed)
	if len(parked) == 0 {
		return nil
	}
	locked, err := readKeys(ctx, tx, parked, tx.Dialect().Share)
	if err != nil {
		return err
	}
	view.replace(parked, locked)
	view.decide(keyed)
	return nil
}

// keysOf returns the keys of members, sorted, each once.
func keysOf(members []*member) [][]byte {
	keys := make([][]byte, len(members))
	for i, m := range members {
		keys[i] = m.draft.key
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// decide sets the dispatch state of members, which are in order of arrival, and returns
// the keys, sorted, of those that it parks. A member that comes before the READY task of
// its lane is READY too, and the one that the next is compared with.
func (v *keyView) decide(members []*member) [][]byte {
	first := maps.Clone(v.ready)
	var parked []*member
	for _, m := range members {
		d := &m.draft
		at := keyLane{[32]byte(d.key), d.lane}
		best, contested := first[at]
		closed, known := v.closed[at.key]
		// Without a row there is nothing to lock and nobody can hold the key.
		if known && (closed || contested && d.order >= best) {
			d.dispatch = task.DispatchKeyBlocked
			parked = append(parked, m)
			continue
		}
		d.dispatch = task.DispatchReady
		first[at] = d.order
	}
	return keysOf(parked)
}

// replace puts a newer look at some keys in the place of an older one.
func (v *keyView) replace(keys [][]byte, newer keyView) {
	for _, key := range keys {
		delete(v.closed, [32]byte(key))
	}
	maps.DeleteFunc(v.ready, func(at keyLane, _ int64) bool {
		_, found := slices.BinarySearchFunc(keys, at.key[:], bytes.Compare)
		return found
	})
	maps.Copy(v.closed, newer.closed)
	maps.Copy(v.ready, newer.ready)
}

const selectKeys = `
SELECT digest, version, holder_task_id
FROM resource
WHERE digest IN %s
ORDER BY digest`

// readKeys looks at keys, which are sorted. With a lock, the READY tasks are read after
// it has been got, by a statement of its own with a snapshot of its own.
func readKeys(ctx context.Context, tx *sqldb.Tx, keys [][]byte, lock string) (keyView, error) {
	v := keyView{closed: map[[32]byte]bool{}, ready: map[keyLane]int64{}}
	query := fmt.Sprintf(selectKeys, sqldb.Placeholders(len(keys))) + lock
	rows, err := tx.QueryContext(ctx, query, values(keys)...)
	if err != nil {
		return v, fmt.Errorf("read resource keys: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var digest []byte
		var version uint64
		var holder sqldb.ID
		if err := rows.Scan(&digest, tx.Dialect().ScanUint64(&version), &holder); err != nil {
			return v, fmt.Errorf("read resource keys: %w", err)
		}
		v.closed[[32]byte(digest)] = !holder.IsZero() || version > lastClaimable
	}
	if err := rows.Err(); err != nil {
		return v, fmt.Errorf("read resource keys: %w", err)
	}
	return v, readReady(ctx, tx, keys, v.ready)
}

const selectReady = `
SELECT concurrency_key_digest, lane, MIN(order_value)
FROM task
WHERE concurrency_key_digest IN %s
  AND dispatch_state = ?
GROUP BY concurrency_key_digest, lane`

func readReady(ctx context.Context, tx *sqldb.Tx, keys [][]byte, ready map[keyLane]int64) error {
	query := fmt.Sprintf(selectReady, sqldb.Placeholders(len(keys)))
	rows, err := tx.QueryContext(ctx, query, append(values(keys), task.DispatchReady)...)
	if err != nil {
		return fmt.Errorf("read ready tasks of keys: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var digest []byte
		var lane, order int64
		if err := rows.Scan(&digest, &lane, &order); err != nil {
			return fmt.Errorf("read ready tasks of keys: %w", err)
		}
		ready[keyLane{[32]byte(digest), lane}] = order
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read ready tasks of keys: %w", err)
	}
	return nil
}

func values(keys [][]byte) []any {
	args := make([]any, len(keys))
	for i, key := range keys {
		args[i] = key
	}
	return args
}

package settle

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// MaxClaimVersion is the highest version at which a key may still be taken, and to which
// one may be raised: a claim needs room for its own step and for that of its release (AMB-009).
const MaxClaimVersion = math.MaxUint64 - 2

// A Digest is the primary key of a resource key's row.
type Digest [32]byte

// ParseDigest reads the digest column of a task: empty means that the task has no key.
func ParseDigest(column []byte) (d Digest, keyed bool, err error) {
	switch len(column) {
	case 0:
		return d, false, nil
	case len(d):
		return Digest(column), true, nil
	}
	return d, false, fmt.Errorf("key digest of %d bytes, want none or %d", len(column), len(d))
}

// A Key is the row of a resource key, locked by the transaction that read it. Holder
// and HolderEpoch are the permit: zero means that the key is free.
type Key struct {
	Digest      Digest
	Namespace   sqldb.ID
	Text        []byte
	Version     uint64
	Holder      sqldb.ID
	HolderEpoch int64

	createdAt int64
	changed   bool
}

// Free reports whether nobody holds the key.
func (k *Key) Free() bool { return k.Holder.IsZero() }

// Exhausted reports whether the key's numbers are used up: it is never given again
// (TOK-007).
func (k *Key) Exhausted() bool { return k.Version > MaxClaimVersion }

// Take gives the key to an attempt and returns its token, the version after this step.
// It reports false, and changes nothing, if the key is held or exhausted.
func (k *Key) Take(holder sqldb.ID, epoch int64) (token uint64, ok bool) {
	if !k.Free() || k.Exhausted() {
		return 0, false
	}
	k.Version++
	k.Holder, k.HolderEpoch, k.changed = holder, epoch, true
	return k.Version, true
}

// Release takes the key back from the attempt that holds it and reports whether that
// attempt did. The version goes up, so that no attempt ever has this number (TOK-017).
func (k *Key) Release(holder sqldb.ID, epoch int64) bool {
	if k.Free() || k.Holder != holder || k.HolderEpoch != epoch {
		return false
	}
	k.Version++
	k.Holder, k.HolderEpoch, k.changed = sqldb.ID{}, 0, true
	return true
}

// Raise lifts a lower version to least, which is at most MaxClaimVersion, and reports
// whether it did. Who holds the key keeps it and its token, and can still give it back.
func (k *Key) Raise(least uint64) bool {
	if k.Version >= least {
		return false
	}
	k.Version, k.changed = least, true
	return true
}

// Keys are locked key rows by digest.
type Keys map[Digest]*Key

const selectKeys = `
SELECT digest, namespace_id, resource_key, version, holder_task_id, COALESCE(holder_epoch, 0), created_at
FROM resource
WHERE digest IN `

// LockKeys reads and locks the rows of keys in the order of their digests. With
// SkipLocked as lock it never waits, and what another transaction holds is missing.
func LockKeys(ctx context.Context, tx *sqldb.Tx, digests []Digest, lock string) (Keys, error) {
	digests = sortedDigests(digests)
	if len(digests) == 0 {
		return nil, nil
	}
	query := selectKeys + sqldb.Placeholders(len(digests)) + " ORDER BY digest" + lock
	rows, err := tx.QueryContext(ctx, query, digestArgs(digests)...)
	if err != nil {
		return nil, fmt.Errorf("lock resource keys: %w", err)
	}
	defer rows.Close()
	keys := make(Keys, len(digests))
	for rows.Next() {
		var (
			k      Key
			digest []byte
		)
		if err := rows.Scan(&digest, &k.Namespace, &k.Text, tx.Dialect().ScanUint64(&k.Version), &k.Holder, &k.HolderEpoch, &k.createdAt); err != nil {
			return nil, fmt.Errorf("lock resource keys: %w", err)
		}
		k.Digest = Digest(digest)
		keys[k.Digest] = &k
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock resource keys: %w", err)
	}
	return keys, nil
}

const (
	keyColumns = 8
	insertKeys = `
INSERT INTO resource (digest, kind, namespace_id, resource_key, version, holder_task_id, holder_epoch, created_at)
VALUES `
)

// AddChanged has the changed rows written in one statement. They exist and are locked, so the
// upsert never inserts.
func (keys Keys) AddChanged(w *sqldb.Writes, d *sqldb.Dialect) {
	var args []any
	n := 0
	for _, k := range keys {
		if !k.changed {
			continue
		}
		n++
		args = append(args, k.Digest[:], task.ResourceKey, k.Namespace, k.Text, d.Uint64(k.Version), k.Holder, epochOrNull(k), k.createdAt)
		k.changed = false
	}
	if n == 0 {
		return
	}
	w.Add("save resource keys", insertKeys+sqldb.Rows(n, keyColumns)+
		d.OnConflict([]string{"digest"}, "version", "holder_task_id", "holder_epoch"), args...)
}

func epochOrNull(k *Key) any {
	if k.Free() {
		return nil
	}
	return k.HolderEpoch
}

func sortedDigests(digests []Digest) []Digest {
	digests = slices.Clone(digests)
	slices.SortFunc(digests, func(a, b Digest) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(digests)
}

func digestArgs(digests []Digest) []any {
	args := make([]any, len(digests))
	for i := range digests {
		args[i] = digests[i][:]
	}
	return args
}

// SortedIDs returns ids in the order in which they are locked, each once.
func SortedIDs(ids []sqldb.ID) []sqldb.ID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b sqldb.ID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// IDArgs returns ids as bound values.
func IDArgs(ids []sqldb.ID) []any {
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i].Arg()
	}
	return args
}

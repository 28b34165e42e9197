package admin

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A KeyView is a resource key: who holds it, and since when.
type KeyView struct {
	Digest      string     `json:"digest"` // place in the list
	Application string     `json:"application"`
	Namespace   string     `json:"namespace"`
	Key         string     `json:"key"`
	LastToken   uint64     `json:"last_token,string"` // no attempt has had a higher one
	TaskID      string     `json:"holder_task_id,omitempty"`
	AttemptID   string     `json:"holder_attempt_id,omitempty"`
	Since       *time.Time `json:"held_since,omitempty"`
}

// A KeyFilter says which resource keys are wanted.
type KeyFilter struct {
	Place         // Queue is not looked at
	Prefix string // of the key, compared as bytes; empty means any
	Held   bool   // only those that somebody holds
	After  []byte // digest of the last key of the page before; empty means from the first on
}

const (
	kindKey    = 2    // of a row of a resource key
	keyWindow  = 1000 // rows read by one statement
	digestSize = 32
)

// ParseKeyDigest reads the digest of a KeyView.
func ParseKeyDigest(text string) ([]byte, error) {
	d, err := hex.DecodeString(text)
	if err != nil || len(d) != digestSize {
		return nil, &InvalidError{"after", "must be the digest of a key: 64 hexadecimal characters"}
	}
	return d, nil
}

// Keys lists at most limit resource keys of a namespace, in the order of their digests,
// and reports whether there are more. The table has no other index (KEY-016): the keys of
// other namespaces and those that do not fit are read too, in short statements. A key
// cannot be freed or reset by anybody (KEY-018).
func (o *Operator) Keys(ctx context.Context, f KeyFilter, limit int) (keys []KeyView, more bool, err error) {
	found, err := o.namespace(ctx, f.Place)
	if err != nil {
		return nil, false, err
	}
	keys = []KeyView{}
	after := f.After
	for rows := keyWindow; rows == keyWindow; {
		var page []keyRow
		if page, err = o.keyRows(ctx, after); err != nil {
			return nil, false, fmt.Errorf("list keys: %w", err)
		}
		rows = len(page)
		for _, row := range page {
			after = row.digest
			switch {
			case !f.fits(&row, found.namespace):
			case len(keys) == limit:
				return keys, true, nil
			default:
				keys = append(keys, row.view(f.Place))
			}
		}
	}
	return keys, false, nil
}

func (f *KeyFilter) fits(r *keyRow, namespace sqldb.ID) bool {
	return r.kind == kindKey && r.namespace == namespace && bytes.HasPrefix(r.key, []byte(f.Prefix)) && (!f.Held || !r.task.IsZero())
}

const selectKeyRows = `
SELECT r.digest, r.kind, r.namespace_id, r.resource_key, r.version, r.holder_task_id, a.id, a.claimed_at
FROM resource r
LEFT JOIN attempt a ON a.task_id = r.holder_task_id AND a.epoch = r.holder_epoch
WHERE r.digest > ?
ORDER BY r.digest
LIMIT ?`

type keyRow struct {
	digest, key     []byte
	kind            int
	namespace, task sqldb.ID
	version         uint64
	attempt         sqldb.ID
	claimed         *int64
}

func (o *Operator) keyRows(ctx context.Context, after []byte) (page []keyRow, err error) {
	if after == nil {
		after = []byte{}
	}
	err = sqldb.EachRow(ctx, o.db.Read(), selectKeyRows, []any{after, keyWindow}, func(scan func(...any) error) error {
		var r keyRow
		err := scan(&r.digest, &r.kind, &r.namespace, &r.key, o.db.Dialect().ScanUint64(&r.version), &r.task, &r.attempt, &r.claimed)
		page = append(page, r)
		return err
	})
	return page, err
}

func (r *keyRow) view(p Place) KeyView {
	v := KeyView{
		Digest: hex.EncodeToString(r.digest), Application: p.Application, Namespace: p.Namespace, Key: string(r.key),
		LastToken: r.version, TaskID: hexOf(r.task), AttemptID: hexOf(r.attempt),
	}
	if r.claimed != nil {
		t := sqldb.Time(*r.claimed)
		v.Since = &t
	}
	return v
}

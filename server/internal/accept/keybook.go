package accept

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// knownKeys is how many resource keys a node remembers to have a row, about 10 MiB.
const knownKeys = 1 << 16

// A keyBook sees to it that resource keys have their row before a task refers to it. Rows
// are never deleted, so to have seen one is enough. It is safe for concurrent use.
type keyBook struct {
	db    *sqldb.DB
	known *lru.Cache[[32]byte, struct{}]
}

func newKeyBook(db *sqldb.DB) *keyBook {
	known, err := lru.New[[32]byte, struct{}](knownKeys)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &keyBook{db: db, known: known}
}

// A resource is a key and the namespace it lives in.
type resource struct {
	namespace sqldb.ID
	key       string
}

// ensure makes the rows that the keys of members lack. They are made in a short
// transaction of their own: inside the submit's, a rolled-back row left deadlocks to
// those who waited for it (research: dispatch).
func (b *keyBook) ensure(ctx context.Context, members []*member) error {
	wanted := map[[32]byte]resource{}
	for _, m := range members {
		key := m.Submission.Request.ConcurrencyKey
		if key == "" {
			continue
		}
		digest := task.KeyDigest(m.Namespace, key)
		if _, known := b.known.Get(digest); !known {
			wanted[digest] = resource{m.Namespace, key}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	// Most keys that the node does not know have a row. Reading them first keeps this
	// from waiting for a claim that holds one.
	lacking := maps.Clone(wanted)
	if err := b.read(ctx, wanted, lacking); err != nil {
		return err
	}
	if err := b.make(ctx, lacking); err != nil {
		return err
	}
	for digest := range wanted {
		b.known.Add(digest, struct{}{})
	}
	return nil
}

const selectRows = `
SELECT digest, namespace_id, resource_key
FROM resource
WHERE digest IN `

// read removes the keys from lacking that have a row. Beside the digest it compares the
// key itself (KEY-015).
func (b *keyBook) read(ctx context.Context, wanted, lacking map[[32]byte]resource) error {
	digests := sortedDigests(wanted)
	rows, err := b.db.Read().QueryContext(ctx, selectRows+sqldb.Placeholders(len(digests)), values(digests)...)
	if err != nil {
		return fmt.Errorf("read resource keys: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var digest []byte
		var key sql.RawBytes
		var found resource
		if err := rows.Scan(&digest, &found.namespace, &key); err != nil {
			return fmt.Errorf("read resource keys: %w", err)
		}
		found.key = string(key)
		if wanted[[32]byte(digest)] != found {
			return fmt.Errorf("resource row %x belongs to another key", digest)
		}
		delete(lacking, [32]byte(digest))
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read resource keys: %w", err)
	}
	return nil
}

const insertResources = `
INSERT INTO resource (digest, kind, namespace_id, resource_key, version, created_at)
VALUES `

func (b *keyBook) make(ctx context.Context, lacking map[[32]byte]resource) error {
	if len(lacking) == 0 {
		return nil
	}
	d := b.db.Dialect()
	query := insertResources + sqldb.Rows(len(lacking), 6) + d.OnConflict([]string{"digest"})
	digests := sortedDigests(lacking)
	insert := func(tx *sqldb.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		var args []any
		for _, digest := range digests {
			r := lacking[[32]byte(digest)]
			args = append(args, digest, int(task.ResourceKey), r.namespace, []byte(r.key), d.Uint64(0), now)
		}
		_, err = tx.ExecContext(ctx, query, args...)
		return err
	}
	err := b.db.Tx(ctx, insert)
	if errors.Is(err, sqldb.ErrUnknownCommit) {
		err = b.db.Tx(ctx, insert) // changes nothing if the first is in force
	}
	if err != nil {
		return fmt.Errorf("make resource keys: %w", err)
	}
	return nil
}

// sortedDigests is the order in which rows are locked.
func sortedDigests(resources map[[32]byte]resource) [][]byte {
	digests := make([][]byte, 0, len(resources))
	for digest := range resources {
		digests = append(digests, bytes.Clone(digest[:]))
	}
	slices.SortFunc(digests, bytes.Compare)
	return digests
}

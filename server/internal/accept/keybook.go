package accept

import (
	"context"
	"database/sql"
	"fmt"
	"maps"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/keyrow"
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

// ensure makes the rows that the keys of members lack, before the submit's transaction.
func (b *keyBook) ensure(ctx context.Context, members []*member) error {
	wanted := map[[32]byte]keyrow.Key{}
	for _, m := range members {
		key := m.Submission.Request.ConcurrencyKey
		if key == "" {
			continue
		}
		digest := task.KeyDigest(m.Namespace, key)
		if _, known := b.known.Get(digest); !known {
			wanted[digest] = keyrow.Key{Namespace: m.Namespace, Text: key}
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
	if err := b.makeRows(ctx, lacking); err != nil {
		return err
	}
	for digest := range wanted {
		b.known.Add(digest, struct{}{})
	}
	return nil
}

// makeRows makes rows that are lacking. A task refers to a key only while it has a row: where
// one does and there is none, a restore of parts of the database has lost it, and a row at
// the floor could give a token a second time, beside an attempt that still lives.
func (b *keyBook) makeRows(ctx context.Context, lacking map[[32]byte]keyrow.Key) error {
	if len(lacking) == 0 {
		return nil
	}
	lost, err := keyrow.Referred(ctx, b.db.Write(), lacking)
	if err != nil {
		return err
	}
	for digest := range lost {
		delete(lacking, digest)
	}
	if err := keyrow.Remake(ctx, b.db, lost); err != nil {
		return err
	}
	return keyrow.Make(ctx, b.db, lacking)
}

const selectRows = `
SELECT digest, namespace_id, resource_key
FROM resource
WHERE digest IN `

// read removes the keys from lacking that have a row. Beside the digest it compares the
// key itself (KEY-015).
func (b *keyBook) read(ctx context.Context, wanted, lacking map[[32]byte]keyrow.Key) error {
	digests := keyrow.SortedDigests(wanted)
	rows, err := b.db.Read().QueryContext(ctx, selectRows+sqldb.Placeholders(len(digests)), values(digests)...)
	if err != nil {
		return fmt.Errorf("read resource keys: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var digest []byte
		var key sql.RawBytes
		var found keyrow.Key
		if err := rows.Scan(&digest, &found.Namespace, &key); err != nil {
			return fmt.Errorf("read resource keys: %w", err)
		}
		found.Text = string(key)
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

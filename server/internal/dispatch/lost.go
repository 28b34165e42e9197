package dispatch

import (
	"context"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/keyrow"
)

const (
	knownMisses = 1024 // keys that a node remembers not to have got
	maxSuspects = 20   // keys that one claim looks for: its grants wait for that
)

// A miss is what is known of a key whose row a claim did not get.
type miss int

const (
	missedOnce miss = iota + 1 // somebody holds it, most likely
	missedHeld                 // it has a row: rows are never deleted
)

// missedKeys finds the keys whose row is not locked by somebody but lost: a restore of
// parts of a database does that. It is safe for concurrent use.
type missedKeys struct {
	db    *sqldb.DB
	known *lru.Cache[[32]byte, miss]
}

func newMissedKeys(db *sqldb.DB) *missedKeys {
	known, err := lru.New[[32]byte, miss](knownMisses)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &missedKeys{db: db, known: known}
}

// add notes the keys whose rows a claim did not get. Those that it had not got before
// either are looked up, once, and made again if they are not there.
func (m *missedKeys) add(ctx context.Context, missed map[[32]byte]keyrow.Key) error {
	suspects := map[[32]byte]keyrow.Key{}
	for digest, key := range missed {
		switch known, _ := m.known.Get(digest); known {
		case missedHeld:
		case missedOnce:
			if len(suspects) < maxSuspects {
				suspects[digest] = key
			}
		default:
			m.known.Add(digest, missedOnce)
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	lost, err := m.lost(ctx, suspects)
	if err != nil {
		return err
	}
	if err := keyrow.Remake(ctx, m.db, lost); err != nil {
		return err
	}
	for digest := range suspects {
		m.known.Add(digest, missedHeld)
	}
	return nil
}

const selectPresent = `
SELECT digest
FROM resource
WHERE digest IN `

// lost returns the keys that have no row.
func (m *missedKeys) lost(ctx context.Context, suspects map[[32]byte]keyrow.Key) (map[[32]byte]keyrow.Key, error) {
	lost := make(map[[32]byte]keyrow.Key, len(suspects))
	var args []any
	for _, digest := range keyrow.SortedDigests(suspects) {
		lost[[32]byte(digest)] = suspects[[32]byte(digest)]
		args = append(args, digest)
	}
	err := sqldb.EachRow(ctx, m.db.Write(), selectPresent+sqldb.Placeholders(len(args)), args, func(scan func(...any) error) error {
		var digest []byte
		err := scan(&digest)
		if err == nil {
			delete(lost, [32]byte(digest))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for resource keys: %w", err)
	}
	return lost, nil
}

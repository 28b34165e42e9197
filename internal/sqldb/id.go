package sqldb

import (
	"database/sql/driver"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// An ID is a 16-byte identity. New ones are UUIDv7, so rows inserted together lie
// together; people and the HTTP contract see 32 lower-case hexadecimal characters
// (API-018).
type ID [16]byte

// NewID returns a fresh UUIDv7. It panics if the system has no randomness.
func NewID() ID { return ID(uuid.Must(uuid.NewV7())) }

// ParseID reads 32 lower-case hexadecimal characters.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, fmt.Errorf("id has %d characters, want 32", len(s))
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ID{}, fmt.Errorf("id has a character that is not lower-case hexadecimal")
		}
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err
}

// String returns the 32 hexadecimal characters.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is unset. A NULL column scans as the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// Value implements [driver.Valuer]; the zero ID is NULL.
func (id ID) Value() (driver.Value, error) {
	if id.IsZero() {
		return nil, nil
	}
	return id[:], nil
}

// Arg returns id as a value to bind, which must not change meanwhile; the zero ID is NULL.
// For a statement with many rows it costs half of what an ID itself does.
func (id *ID) Arg() any {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// Scan implements [database/sql.Scanner].
func (id *ID) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*id = ID{}
		return nil
	case []byte:
		if len(v) != len(id) {
			return fmt.Errorf("sqldb: id column holds %d bytes, want 16", len(v))
		}
		copy(id[:], v)
		return nil
	}
	return fmt.Errorf("sqldb: cannot read an id from %T", src)
}

package sqldb

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// A Uint64Scanner reads an unsigned 64-bit column of its dialect exactly, up to
// 2^64-1. NULL is an error: such columns are NOT NULL.
type Uint64Scanner struct {
	into      *uint64
	bigEndian bool
}

// Scan implements [database/sql.Scanner].
func (s *Uint64Scanner) Scan(src any) error {
	switch v := src.(type) {
	case uint64:
		*s.into = v
		return nil
	case int64:
		if v < 0 {
			return fmt.Errorf("sqldb: negative value %d in an unsigned column", v)
		}
		*s.into = uint64(v)
		return nil
	case []byte:
		return s.scanBytes(v)
	}
	return fmt.Errorf("sqldb: cannot read an unsigned column from %T", src)
}

func (s *Uint64Scanner) scanBytes(b []byte) (err error) {
	if s.bigEndian {
		if len(b) != 8 {
			return fmt.Errorf("sqldb: unsigned column holds %d bytes, want 8", len(b))
		}
		*s.into = binary.BigEndian.Uint64(b)
		return nil
	}
	// The text protocol hands numbers over in decimal.
	*s.into, err = strconv.ParseUint(string(b), 10, 64)
	return err
}

func uint64Bytes(v uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, v)
}

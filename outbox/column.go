package outbox

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A column takes the value of a column as the driver has it, without the detours of package
// sql. Reading it never fails, lest one damaged row hold up those around it: a value that
// breaks a rule is read as none, and damage tells of the first one.
type column struct {
	name   string
	null   bool // NULL is allowed, and means none
	damage *string
}

func (c *column) breaks(rule string) {
	if *c.damage == "" {
		*c.damage = "column " + c.name + " " + rule
	}
}

func (c *column) isNull() {
	if !c.null {
		c.breaks("is NULL")
	}
}

// A number is an integer within bounds.
type number struct {
	column
	least, most int64
	instead     int64 // of one that breaks a rule
	n           int64
}

// latest is the end of the years that a time may have, in microseconds.
const latest = 253_402_300_800_000_000 - 1

func timeColumn(name string, damage *string) number { return countColumn(name, latest, damage) }

func countColumn(name string, most int64, damage *string) number {
	return number{column: column{name: name, damage: damage}, most: most}
}

func anyNumber(name string, damage *string) number {
	return number{column: column{name: name, damage: damage}, least: math.MinInt64, most: math.MaxInt64}
}

// Scan implements [database/sql.Scanner].
func (c *number) Scan(src any) error {
	c.n = c.instead
	n, is := wholeNumber(src)
	switch {
	case src == nil:
		c.isNull()
	case !is:
		c.breaks("is no number")
	case n < c.least || n > c.most:
		c.breaks("is out of range")
	default:
		c.n = n
	}
	return nil
}

// An integer is a number of which nobody wants to know the damage: what is none is read as 0.
type integer int64

// Scan implements [database/sql.Scanner].
func (c *integer) Scan(src any) error {
	n, _ := wholeNumber(src)
	*c = integer(n)
	return nil
}

// wholeNumber returns 0 and false for what is none.
func wholeNumber(src any) (int64, bool) {
	switch v := src.(type) {
	case int64:
		return v, true
	case []byte:
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			return 0, false
		}
		return n, true
	}
	return 0, false
}

// A text is a column of bytes that are read as text.
type text struct {
	column
	s string
}

// Scan implements [database/sql.Scanner].
func (c *text) Scan(src any) error {
	c.s = ""
	switch v := src.(type) {
	case nil:
		c.isNull()
	case []byte:
		c.s = string(v)
	case string:
		c.s = v
	default:
		c.breaks("is no text")
	}
	return nil
}

// A blob is a column of any bytes.
type blob struct {
	column
	b []byte
}

// Scan implements [database/sql.Scanner].
func (c *blob) Scan(src any) error {
	c.b = nil
	switch v := src.(type) {
	case nil:
		c.isNull()
	case []byte:
		c.b = slices.Clone(v)
	case string:
		c.b = []byte(v)
	default:
		c.breaks("has no bytes")
	}
	return nil
}

// A digest is a column of a SHA-256.
type digest struct {
	column
	sum [sha256.Size]byte
}

// Scan implements [database/sql.Scanner].
func (c *digest) Scan(src any) error {
	c.sum = [sha256.Size]byte{}
	c.take(src, c.sum[:])
	return nil
}

// An id is a column of an identity; zero without one.
type id struct {
	column
	empty bool // it may have no bytes
	id    sqldb.ID
}

// Scan implements [database/sql.Scanner].
func (c *id) Scan(src any) error {
	c.id = sqldb.ID{}
	if v, is := src.([]byte); is && c.empty && len(v) == 0 {
		return nil
	}
	c.take(src, c.id[:])
	return nil
}

// take copies exactly as many bytes as to has.
func (c *column) take(src any, to []byte) {
	switch v := src.(type) {
	case nil:
		c.isNull()
	case []byte:
		if len(v) != len(to) {
			c.breaks(fmt.Sprintf("has %d bytes, must have %d", len(v), len(to)))
			return
		}
		copy(to, v)
	default:
		c.breaks("has no bytes")
	}
}

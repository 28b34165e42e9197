package sqldb

import (
	"fmt"
	"strings"
)

// A Dialect holds the few points where the engines disagree. The lock suffixes are
// appended to a SELECT; they are empty on SQLite, whose write transactions hold the
// only write lock from their first statement.
type Dialect struct {
	Name       string // "mysql" (also MariaDB) or "sqlite"
	ForUpdate  string // locks the rows read, waits
	SkipLocked string // locks the rows read, passes over locked ones, never waits
	Share      string // locks the rows read against change; for a read-back after a duplicate
	Clock      string // expression: microseconds since 1970 UTC by the database's clock

	byIndex         string // form of a hint
	bigEndianUint64 bool
	onConflict      func(key []string, set []string) string
	classify        func(error) class
}

// MySQL is the dialect of MySQL 8.0.16+ and MariaDB 10.6+.
var MySQL = &Dialect{
	Name:       "mysql",
	ForUpdate:  " FOR UPDATE",
	SkipLocked: " FOR UPDATE SKIP LOCKED",
	Share:      " LOCK IN SHARE MODE", // MariaDB has no FOR SHARE
	Clock:      "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))",
	byIndex:    " FORCE INDEX (%s)",
	onConflict: mysqlOnConflict,
	classify:   classifyMySQL,
}

// SQLite is the dialect of SQLite 3.42+. Its clock has millisecond steps: break ties
// by id.
var SQLite = &Dialect{
	Name:            "sqlite",
	Clock:           "CAST(unixepoch('subsec')*1000000 AS INTEGER)",
	byIndex:         " INDEXED BY %s",
	bigEndianUint64: true,
	onConflict:      sqliteOnConflict,
	classify:        classifySQLite,
}

// String returns the dialect's name.
func (d *Dialect) String() string { return d.Name }

// OnConflict returns the clause that turns an INSERT into an upsert: on a row with
// the same key columns, each column of set takes the value that would have been
// inserted. With no set columns the existing row stays as it is, but is locked.
func (d *Dialect) OnConflict(key []string, set ...string) string {
	return d.onConflict(key, set)
}

// Uint64 returns the value to bind for an unsigned 64-bit column: BIGINT UNSIGNED on
// MySQL, eight big-endian bytes on SQLite, which has no unsigned integers (TOK-015,
// RG-009). Both sort in numerical order.
func (d *Dialect) Uint64(v uint64) any {
	if d.bigEndianUint64 {
		return uint64Bytes(v)
	}
	return v
}

// ScanUint64 returns a scanner that stores an unsigned 64-bit column in v.
func (d *Dialect) ScanUint64(v *uint64) *Uint64Scanner {
	return &Uint64Scanner{into: v, bigEndian: d.bigEndianUint64}
}

// ByIndex returns what follows the name of a table in a statement that must read it by
// this index. The optimizers choose others while a table is small or its statistics are
// of yesterday.
func (d *Dialect) ByIndex(index string) string { return fmt.Sprintf(d.byIndex, index) }

// Placeholders returns n bound values in brackets: (?,?,?).
func Placeholders(n int) string {
	if n < 1 {
		panic(fmt.Sprintf("sqldb: %d placeholders", n))
	}
	return "(" + strings.Repeat("?,", n-1) + "?)"
}

// Rows returns n bracketed rows of placeholders, for a multi-row INSERT.
func Rows(n, columns int) string {
	row := Placeholders(columns)
	return strings.Repeat(row+",", n-1) + row
}

func mysqlOnConflict(key, set []string) string {
	if len(set) == 0 {
		set = key[:1]
		return " ON DUPLICATE KEY UPDATE " + set[0] + " = " + set[0]
	}
	parts := make([]string, len(set))
	for i, c := range set {
		parts[i] = c + " = VALUES(" + c + ")" // MariaDB has no row alias
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(parts, ", ")
}

func sqliteOnConflict(key, set []string) string {
	clause := " ON CONFLICT (" + strings.Join(key, ", ") + ") DO "
	if len(set) == 0 {
		return clause + "NOTHING"
	}
	parts := make([]string, len(set))
	for i, c := range set {
		parts[i] = c + " = excluded." + c
	}
	return clause + "UPDATE SET " + strings.Join(parts, ", ")
}

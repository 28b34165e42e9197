package sqldb

import (
	"fmt"
	"strings"
)

// A Dialect holds the few points where the engines disagree. The lock suffixes are
// appended to a SELECT; they are empty on SQLite, whose write transactions hold the
// only write lock from their first statement.
type Dialect struct {
	Name       string // "mysql" (also MariaDB), "sqlite" or "postgres"
	ForUpdate  string // locks the rows read, waits
	SkipLocked string // locks the rows read, passes over locked ones, never waits
	Share      string // locks the rows read against change; for a read-back after a duplicate
	Clock      string // expression: microseconds since 1970 UTC by the database's clock

	TransactionalDDL bool // CREATE and ALTER can be rolled back
	Returning        bool // an INSERT can answer by RETURNING whether it has inserted

	byIndex         string // form of a hint
	numbered        bool   // placeholders are $1, $2, ...
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
	Name:             "sqlite",
	Clock:            "CAST(unixepoch('subsec')*1000000 AS INTEGER)",
	TransactionalDDL: true,
	Returning:        true,
	byIndex:          " INDEXED BY %s",
	bigEndianUint64:  true,
	onConflict:       standardOnConflict,
	classify:         classifySQLite,
}

// PostgreSQL is the dialect of PostgreSQL 15+, for the resource guard alone: no other SQL
// of Orbit's runs there. An INSERT that meets a row passes over it without locking it.
var PostgreSQL = &Dialect{
	Name:       "postgres",
	ForUpdate:  " FOR UPDATE",
	SkipLocked: " FOR UPDATE SKIP LOCKED",
	Share:      " FOR SHARE",
	// When the statement began: now() would be when the transaction did.
	Clock:            "CAST(EXTRACT(EPOCH FROM statement_timestamp())*1000000 AS BIGINT)",
	TransactionalDDL: true,
	Returning:        true,
	byIndex:          "%.0s", // no hints there
	numbered:         true,
	bigEndianUint64:  true,
	onConflict:       standardOnConflict,
	classify:         classifyPostgreSQL,
}

// String returns the dialect's name.
func (d *Dialect) String() string { return d.Name }

// Bind returns a query with the placeholders of the dialect: PostgreSQL numbers them. The
// query must hold no question mark that is none.
func (d *Dialect) Bind(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, more := strings.Cut(query, "?")
		b.WriteString(before)
		if !more {
			return b.String()
		}
		fmt.Fprintf(&b, "$%d", n)
		query = after
	}
}

// OnConflict returns the clause that turns an INSERT into an upsert: on a row with
// the same key columns, each column of set takes the value that would have been
// inserted. With no set columns the existing row stays as it is, but is locked (not on
// PostgreSQL).
func (d *Dialect) OnConflict(key []string, set ...string) string {
	return d.onConflict(key, set)
}

// Uint64 returns the value to bind for an unsigned 64-bit column: BIGINT UNSIGNED on
// MySQL, eight big-endian bytes on SQLite and PostgreSQL, which have no unsigned integers
// (TOK-015, RG-009). Both sort in numerical order.
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

func standardOnConflict(key, set []string) string {
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

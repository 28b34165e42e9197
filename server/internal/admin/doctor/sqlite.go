package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

func (e *examiner) sqliteChecks() []check {
	return []check{
		{name: "engine", look: e.sqliteEngine},
		{name: "isolation", look: e.sqliteIsolation},
		{name: "durability", look: e.sqliteDurability},
		{name: "writable", look: e.sqliteWritable},
		{name: "damage", deep: true, look: e.sqliteDamage},
	}
}

func (e *examiner) pragma(ctx context.Context, name string) (value string, err error) {
	err = e.db.Write().QueryRowContext(ctx, "PRAGMA "+name).Scan(&value)
	return value, err
}

// oldestSQLite is 3.42.
const oldestSQLite = 3*1000 + 42

func (e *examiner) sqliteEngine(ctx context.Context) ([]Finding, error) {
	var version string
	if err := e.db.Write().QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return nil, err
	}
	parts := strings.SplitN(version, ".", 3)
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[min(1, len(parts)-1)])
	if major*1000+minor < oldestSQLite {
		return fail("build Orbit with a newer driver", "SQLite %s is too old, want 3.42 or newer", version), nil
	}
	return ok("SQLite %s: for one node", version), nil
}

func (e *examiner) sqliteIsolation(ctx context.Context) ([]Finding, error) {
	dirty, err := e.pragma(ctx, "read_uncommitted")
	if err != nil {
		return nil, err
	}
	if dirty != "0" {
		return fail("open the file without a shared cache", "our connection reads what is not committed"), nil
	}
	return ok("transactions are serialised"), nil
}

func (e *examiner) sqliteDurability(ctx context.Context) ([]Finding, error) {
	journal, err := e.pragma(ctx, "journal_mode")
	if err != nil {
		return nil, err
	}
	synchronous, err := e.pragma(ctx, "synchronous")
	if err != nil {
		return nil, err
	}
	const full = "2"
	switch {
	case journal != "wal":
		return fail("put the file on a local file system", "journal mode is %s, want wal", journal), nil
	case synchronous != full:
		return fail("use the connection settings of this release", "synchronous is %s: a crash can lose tasks that were answered as accepted", synchronous), nil
	}
	return ok("every commit is on disk before it is answered (WAL, synchronous FULL)"), nil
}

func (e *examiner) sqliteWritable(ctx context.Context) ([]Finding, error) {
	tx, err := e.db.Write().BeginTx(ctx, nil) // takes the write lock
	if err != nil {
		return fail("check the rights on the file and its folder, the room on the disk, and who holds the file", "the file takes no writes: %v", err), nil
	}
	return ok("the file takes writes"), tx.Rollback()
}

func (e *examiner) sqliteDamage(ctx context.Context) (found []Finding, err error) {
	err = sqldb.EachRow(ctx, e.db.Read(), "PRAGMA quick_check(10)", nil, func(scan func(...any) error) error {
		var text string
		err := scan(&text)
		if text != "ok" {
			found = append(found, fail("stop the server and restore a copy", "%s", text)...)
		}
		return err
	})
	if err == nil && found == nil {
		return ok("the file is whole"), nil
	}
	if err != nil {
		return nil, fmt.Errorf("check the file: %w", err)
	}
	return found, nil
}

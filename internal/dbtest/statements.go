package dbtest

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// AwaitStatement returns when a statement that begins so runs in the test's database, on
// MySQL or MariaDB, and is in a state that contains state. It fails the test after a minute.
func (db *DB) AwaitStatement(t testing.TB, begin, state string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(db.Address, "mysql:"))
	if err != nil {
		t.Fatal("the test database's address is malformed")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		running, err := db.statements(t.Context())
		if err != nil {
			t.Fatalf("list the running statements: %v", err)
		}
		for _, s := range running {
			if s["db"] == cfg.DBName && strings.HasPrefix(strings.TrimSpace(s["Info"]), begin) && strings.Contains(s["State"], state) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no statement that begins with %q and is in state %q", begin, state)
		}
	}
}

// statements returns what all connections of the server do. It uses SHOW: MySQL's
// information_schema table of the same content gives error 3854 as soon as any connection,
// of another test too, runs a statement with binary values in it.
func (db *DB) statements(ctx context.Context) ([]map[string]string, error) {
	rows, err := db.Read().QueryContext(ctx, "SHOW FULL PROCESSLIST")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	var all []map[string]string
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := map[string]string{}
		for i, name := range columns {
			row[name] = values[i].String
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

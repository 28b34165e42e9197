package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "modernc.org/sqlite"

	"github.com/orbitkit/orbit/internal/sqldb"
)

func TestMySQLErrorsAreToldApartByCode(t *testing.T) {
	tests := []struct {
		err                           error
		duplicate, transient, refused bool
	}{
		{&mysql.MySQLError{Number: 1062}, true, false, true},
		{&mysql.MySQLError{Number: 1213}, false, true, true},
		{&mysql.MySQLError{Number: 1205}, false, true, true},
		{&mysql.MySQLError{Number: 1020}, false, true, true},
		{&mysql.MySQLError{Number: 1146}, false, false, true},
		{fmt.Errorf("insert task: %w", &mysql.MySQLError{Number: 1062}), true, false, true},
		{errors.Join(io.EOF, &mysql.MySQLError{Number: 1213}), false, true, true},
		{mysql.ErrInvalidConn, false, false, false},
		{driver.ErrBadConn, false, false, false},
		{errors.New("Error 1062 (23000): Duplicate entry"), false, false, false}, // text proves nothing
		{nil, false, false, false},
	}
	for _, tt := range tests {
		d := sqldb.MySQL
		if d.Duplicate(tt.err) != tt.duplicate || d.Transient(tt.err) != tt.transient || d.Refused(tt.err) != tt.refused {
			t.Errorf("%v: duplicate %v transient %v refused %v, want %v %v %v", tt.err,
				d.Duplicate(tt.err), d.Transient(tt.err), d.Refused(tt.err), tt.duplicate, tt.transient, tt.refused)
		}
	}
}

// A stateError has the method of the errors of pgx and lib/pq.
type stateError string

func (e stateError) Error() string    { return "ERROR: refused" }
func (e stateError) SQLState() string { return string(e) }

func TestPostgreSQLErrorsAreToldApartByState(t *testing.T) {
	tests := []struct {
		err                           error
		duplicate, transient, refused bool
	}{
		{stateError("23505"), true, false, true},
		{&pgconn.PgError{Code: "23505"}, true, false, true},
		{stateError("40001"), false, true, true},
		{stateError("40P01"), false, true, true},
		{stateError("55P03"), false, true, true},
		{stateError("25P02"), false, false, true}, // the error that ended the transaction came before
		{stateError("42P01"), false, false, true},
		{fmt.Errorf("apply: %w", stateError("40001")), false, true, true},
		{stateError("40003"), false, false, false},
		{stateError("08006"), false, false, false},
		{stateError("57P01"), false, false, false}, // the server goes down; its COMMIT may have been done
		{driver.ErrBadConn, false, false, false},
		{errors.New("ERROR: (SQLSTATE 40001)"), false, false, false}, // text proves nothing
		{nil, false, false, false},
	}
	for _, tt := range tests {
		d := sqldb.PostgreSQL
		if d.Duplicate(tt.err) != tt.duplicate || d.Transient(tt.err) != tt.transient || d.Refused(tt.err) != tt.refused {
			t.Errorf("%v: duplicate %v transient %v refused %v, want %v %v %v", tt.err,
				d.Duplicate(tt.err), d.Transient(tt.err), d.Refused(tt.err), tt.duplicate, tt.transient, tt.refused)
		}
	}
}

// A codedError is a business error with a code of its own.
type codedError struct{}

func (codedError) Error() string { return "sold out" }
func (codedError) Code() int     { return 5 }

func TestACodeThatIsNotTheEnginesProvesNothing(t *testing.T) {
	for _, err := range []error{codedError{}, &codedError{}, fmt.Errorf("write: %w", codedError{})} {
		if sqldb.SQLite.Transient(err) || sqldb.SQLite.Refused(err) {
			t.Errorf("%T is taken for an answer of SQLite", err)
		}
	}
}

func TestSQLiteErrorsAreToldApartByCode(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/a.db?_pragma=busy_timeout(0)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	mustExec(t, db, "CREATE TABLE a (id INTEGER PRIMARY KEY, b BLOB UNIQUE, c INTEGER NOT NULL DEFAULT 0)")
	mustExec(t, db, "INSERT INTO a (id, b) VALUES (1, x'01')")

	for _, q := range []string{"INSERT INTO a (id, b) VALUES (1, x'02')", "INSERT INTO a (id, b) VALUES (2, x'01')"} {
		if _, err := db.ExecContext(ctx, q); !sqldb.SQLite.Duplicate(err) {
			t.Errorf("%s: %v is not a duplicate", q, err)
		}
	}
	if _, err := db.ExecContext(ctx, "UPDATE a SET c = NULL"); sqldb.SQLite.Duplicate(err) || !sqldb.SQLite.Refused(err) {
		t.Errorf("NOT NULL violation: duplicate %v refused %v", sqldb.SQLite.Duplicate(err), sqldb.SQLite.Refused(err))
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := db.BeginTx(ctx, nil); !sqldb.SQLite.Transient(err) {
		t.Errorf("second writer: %v is not transient", err)
	}
}

func mustExec(t *testing.T, db sqldb.Querier, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

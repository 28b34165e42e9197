package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit/migrations"
)

// A script recreates a migrated database: applying every step again would take seconds
// per test.
type script struct {
	create []string // one statement a table
	rows   []string // one INSERT a table that has rows
}

// mysqlTemplates holds the scripts per list of sets and server.
var mysqlTemplates templates[script]

// newMySQL creates a fresh migrated database on the engine's server and returns its
// address.
func newMySQL(t testing.TB, engine string, sets []migrations.Set) string {
	t.Helper()
	dsn := NeedServer(t, engine)
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal("the test server's DSN is malformed")
	}
	s, err := mysqlTemplates.get(sets, func(sets []migrations.Set) (script, error) { return makeScript(cfg, engine, sets) }, dsn)
	if err != nil {
		t.Fatalf("prepare template on %s: %v", cfg.Addr, err)
	}
	name := databaseName()
	if err := create(cfg, name); err != nil {
		t.Fatalf("create test database: %v", err)
	}
	t.Cleanup(func() {
		if err := drop(cfg, name); err != nil {
			t.Errorf("drop test database: %v", err)
		}
	})
	if err := s.replay(t.Context(), cfg, name); err != nil {
		t.Fatalf("fill test database: %v", err)
	}
	return address(cfg, name)
}

func databaseName() string { return "orbit_test_" + strings.ToLower(rand.Text()[:16]) }

func address(cfg *mysql.Config, name string) string {
	own := cfg.Clone()
	own.DBName = name
	return "mysql:" + own.FormatDSN()
}

// connect opens one connection to the server, for several statements at once.
func connect(ctx context.Context, cfg *mysql.Config, name string) (*sql.Conn, func(), error) {
	own := cfg.Clone()
	own.DBName = name
	own.MultiStatements = true
	own.Timeout = 5 * time.Second
	inner, err := mysql.NewConnector(own)
	if err != nil {
		return nil, nil, err
	}
	pool := sql.OpenDB(inner)
	conn, err := pool.Conn(ctx)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); pool.Close() }, nil
}

func execute(cfg *mysql.Config, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, closeAll, err := connect(ctx, cfg, "")
	if err != nil {
		return err
	}
	defer closeAll()
	_, err = conn.ExecContext(ctx, statement)
	return err
}

func create(cfg *mysql.Config, name string) error {
	return execute(cfg, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
}

func drop(cfg *mysql.Config, name string) error {
	return execute(cfg, "DROP DATABASE IF EXISTS "+name)
}

// checkEngine makes sure that a variable names a server of its engine: MariaDB's server
// is called mysqld on some systems.
func checkEngine(ctx context.Context, cfg *mysql.Config, engine string) error {
	conn, closeAll, err := connect(ctx, cfg, "")
	if err != nil {
		return err
	}
	defer closeAll()
	var version string
	if err := conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	if isMariaDB := strings.Contains(version, "MariaDB"); isMariaDB != (engine == MariaDB) {
		return fmt.Errorf("the server for %s is of version %s", engine, version)
	}
	return nil
}

// makeScript migrates a database and writes down what came of it.
func makeScript(cfg *mysql.Config, engine string, sets []migrations.Set) (s script, err error) {
	ctx := context.Background()
	if err := checkEngine(ctx, cfg, engine); err != nil {
		return script{}, err
	}
	if len(sets) == 0 {
		return script{}, nil
	}
	name := databaseName()
	if err := create(cfg, name); err != nil {
		return script{}, err
	}
	defer drop(cfg, name)
	if err := migrate(address(cfg, name), sets); err != nil {
		return script{}, err
	}
	conn, closeAll, err := connect(ctx, cfg, name)
	if err != nil {
		return script{}, err
	}
	defer closeAll()
	return dump(ctx, conn, name)
}

func dump(ctx context.Context, conn *sql.Conn, name string) (s script, err error) {
	tables, err := pairs(ctx, conn, `
SELECT table_name, table_type FROM information_schema.tables
WHERE table_schema = DATABASE()
ORDER BY table_type, table_name`) // base tables before the views on them
	if err != nil {
		return script{}, err
	}
	for _, table := range tables {
		if table[1] == "VIEW" {
			s.create, err = dumpView(ctx, conn, s.create, name, table[0])
		} else {
			err = s.dumpTable(ctx, conn, table[0])
		}
		if err != nil {
			return script{}, fmt.Errorf("%s: %w", table[0], err)
		}
	}
	return s, nil
}

var counter = regexp.MustCompile(` AUTO_INCREMENT=[0-9]+`)

func (s *script) dumpTable(ctx context.Context, conn *sql.Conn, table string) error {
	var name, text string
	if err := conn.QueryRowContext(ctx, "SHOW CREATE TABLE `"+table+"`").Scan(&name, &text); err != nil {
		return err
	}
	s.create = append(s.create, counter.ReplaceAllString(text, ""))
	rows, err := conn.QueryContext(ctx, "SELECT * FROM `"+table+"`")
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var tuples []string
	for rows.Next() {
		tuple, err := literals(rows, len(columns))
		if err != nil {
			return err
		}
		tuples = append(tuples, tuple)
	}
	if len(tuples) > 0 {
		s.rows = append(s.rows, "INSERT INTO `"+table+"` VALUES "+strings.Join(tuples, ","))
	}
	return rows.Err()
}

// literals returns the row at hand as a bracketed list of SQL literals.
func literals(rows *sql.Rows, n int) (string, error) {
	values := make([]sql.RawBytes, n)
	into := make([]any, n)
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return "", err
	}
	texts := make([]string, n)
	for i, v := range values {
		switch {
		case v == nil:
			texts[i] = "NULL"
		case len(v) > 0 && strings.Trim(string(v), "-0123456789") == "":
			texts[i] = "'" + string(v) + "'" // a number, or bytes that read as one: the column decides
		default:
			texts[i] = fmt.Sprintf("x'%x'", []byte(v))
		}
	}
	return "(" + strings.Join(texts, ",") + ")", nil
}

var definer = regexp.MustCompile("DEFINER=`[^`]*`@`[^`]*` ")

func dumpView(ctx context.Context, conn *sql.Conn, create []string, database, view string) ([]string, error) {
	var name, text, charset, collation string
	if err := conn.QueryRowContext(ctx, "SHOW CREATE VIEW `"+view+"`").Scan(&name, &text, &charset, &collation); err != nil {
		return nil, err
	}
	text = strings.ReplaceAll(definer.ReplaceAllString(text, ""), "`"+database+"`.", "")
	return append(create, text), nil
}

func pairs(ctx context.Context, conn *sql.Conn, query string) ([][2]string, error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found [][2]string
	for rows.Next() {
		var p [2]string
		if err := rows.Scan(&p[0], &p[1]); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, rows.Err()
}

// replay recreates the template's content in an empty database, in one round trip.
func (s script) replay(ctx context.Context, cfg *mysql.Config, name string) error {
	statements := append(append([]string(nil), s.create...), s.rows...)
	if len(statements) == 0 {
		return nil
	}
	conn, closeAll, err := connect(ctx, cfg, name)
	if err != nil {
		return err
	}
	defer closeAll()
	_, err = conn.ExecContext(ctx, strings.Join(statements, ";\n"))
	return err
}

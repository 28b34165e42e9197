package resourceguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// A setting is one way in which an owner may open and use a database.
type setting struct {
	name      string
	flags     map[string]string // of the DSN
	isolation sql.IsolationLevel
}

// settings are those under which the verdicts must be the same (RG-006). The first is the
// most usual one.
func settings(engine string) []setting {
	switch engine {
	case dbtest.SQLite:
		return []setting{{name: "immediate"}, {name: "deferred", flags: map[string]string{"_txlock": "deferred"}}}
	case dbtest.Postgres:
		return postgresSettings()
	}
	return mysqlSettings()
}

// mysqlSettings are each isolation level with each value of both flags, and a session
// that has everything else otherwise than usual.
func mysqlSettings() []setting {
	var all []setting
	for i, isolation := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, found := range []bool{false, true} {
			interpolate := found == (i%2 == 1)
			all = append(all, setting{
				name:      fmt.Sprintf("%s, clientFoundRows=%t, interpolateParams=%t", isolation, found, interpolate),
				flags:     map[string]string{"clientFoundRows": strconv.FormatBool(found), "interpolateParams": strconv.FormatBool(interpolate)},
				isolation: isolation,
			})
		}
	}
	return append(all, setting{
		name: "Read Uncommitted, unusual session",
		flags: map[string]string{
			"interpolateParams": "true", "parseTime": "true", "loc": "Asia/Shanghai", "time_zone": "'+08:00'",
			"columnsWithAlias": "true", "multiStatements": "true", "rejectReadOnly": "true", "collation": "utf8mb4_general_ci",
			"sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,PAD_CHAR_TO_FULL_LENGTH'",
		},
		isolation: sql.LevelReadUncommitted,
	})
}

// postgresSettings are each isolation level with one of the ways in which the driver may
// send a statement; the simple protocol writes the values into its text.
func postgresSettings() []setting {
	var all []setting
	for _, s := range []struct {
		isolation sql.IsolationLevel
		mode      string
	}{
		{sql.LevelReadCommitted, "cache_statement"}, {sql.LevelRepeatableRead, "simple_protocol"}, {sql.LevelSerializable, "exec"},
	} {
		all = append(all, setting{
			name:      fmt.Sprintf("%s, %s", s.isolation, s.mode),
			flags:     map[string]string{"default_query_exec_mode": s.mode, "timezone": "Asia/Shanghai", "datestyle": "SQL, DMY", "extra_float_digits": "-15"},
			isolation: s.isolation,
		})
	}
	return all
}

// A store is a log in a database of the owner's, written through a guard.
type store struct {
	address string
	engine  string
	setting setting
	db      *sql.DB
	guard   *resourceguard.Guard
	keeps   bool
	retries *atomic.Int64 // writes that the database could not judge
	dead    *atomic.Int64 // those of them that ended a deadlock
}

// openLog gives the test a database with the guard's tables and the owner's log.
func openLog(t *testing.T, db *dbtest.DB) {
	t.Helper()
	create := map[string]string{
		"mysql": `CREATE TABLE log (seq BIGINT AUTO_INCREMENT PRIMARY KEY, namespace VARBINARY(1000) NOT NULL,
			resource_key VARBINARY(1000) NOT NULL, token BIGINT UNSIGNED NOT NULL, operation VARBINARY(1000) NOT NULL)`,
		"sqlite": `CREATE TABLE log (seq INTEGER PRIMARY KEY AUTOINCREMENT, namespace BLOB NOT NULL,
			resource_key BLOB NOT NULL, token BLOB NOT NULL, operation BLOB NOT NULL)`,
		"postgres": `CREATE TABLE log (seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace BYTEA NOT NULL,
			resource_key BYTEA NOT NULL, token BYTEA NOT NULL, operation BYTEA NOT NULL)`,
	}[db.Dialect().Name]
	if _, err := db.Write().ExecContext(t.Context(), create); err != nil {
		t.Fatalf("create the owner's log: %v", err)
	}
}

// openStore opens the database as an owner would, who knows nothing of Orbit's pools.
func openStore(t testing.TB, db *dbtest.DB, s setting, cfg resourceguard.Config) *store {
	t.Helper()
	guard, err := resourceguard.New(db.Dialect(), guardtest.Authorise, cfg)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := openPool(db.Address, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return &store{address: db.Address, engine: db.Engine, setting: s, db: pool, guard: guard, keeps: cfg.KeepRaise, retries: new(atomic.Int64), dead: new(atomic.Int64)}
}

func openPool(address string, s setting) (*sql.DB, error) {
	kind, rest, _ := strings.Cut(address, ":")
	if kind == "sqlite" {
		query := url.Values{"_pragma": {"busy_timeout(20000)", "journal_mode(WAL)"}, "_txlock": {"immediate"}}
		if mode := s.flags["_txlock"]; mode != "" {
			query.Set("_txlock", mode)
		}
		return sql.Open("sqlite", "file:"+rest+"?"+query.Encode())
	}
	if kind == "postgres" {
		return openPostgres(address, s)
	}
	cfg, err := mysql.ParseDSN(rest)
	if err != nil {
		return nil, err
	}
	cfg, err = mysql.ParseDSN(withFlags(cfg.FormatDSN(), s.flags))
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{} // a test kills connections
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxIdleConns(8)
	return pool, nil
}

func openPostgres(address string, s setting) (*sql.DB, error) {
	pool, err := sql.Open("pgx", withFlags(address, s.flags))
	if err == nil {
		pool.SetMaxIdleConns(16) // a connection is a process of the server
	}
	return pool, err
}

// withFlags adds parameters to a DSN.
func withFlags(dsn string, flags map[string]string) string {
	var query []string
	for name, value := range flags {
		query = append(query, name+"="+strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
	}
	mark := "?"
	if strings.Contains(dsn, mark) {
		mark = "&"
	}
	return dsn + mark + strings.Join(query, "&")
}

func (s *store) begin(ctx context.Context) (*sql.Tx, error) {
	return s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.setting.isolation})
}

// Apply is what an owner's write looks like.
func (s *store) Apply(ctx context.Context, w resourceguard.Write, receipt []byte, end guardtest.End) (resourceguard.Result, error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return resourceguard.Result{}, s.counted(err)
	}
	defer tx.Rollback()
	res, err := s.guard.Apply(ctx, tx, w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		if err := s.append(ctx, tx, w); err != nil {
			return nil, err
		}
		if end == guardtest.Refuse {
			return nil, guardtest.ErrBusiness
		}
		return receipt, nil
	})
	switch {
	case isVerdict(err) && end != guardtest.RollBack:
		return s.commit(tx, res, err)
	case err != nil || end == guardtest.RollBack:
		return res, s.counted(err)
	}
	return s.commit(tx, res, nil)
}

// commit keeps the verdict, unless the COMMIT is refused.
func (s *store) commit(tx *sql.Tx, res resourceguard.Result, verdict error) (resourceguard.Result, error) {
	if err := tx.Commit(); err != nil {
		return resourceguard.Result{}, s.counted(err)
	}
	return res, verdict
}

// counted says in the guard's words what the engine told the owner's own statements.
func (s *store) counted(err error) error {
	if !s.guard.Retryable(err) {
		return err
	}
	s.retries.Add(1)
	if isDeadlock(err) {
		s.dead.Add(1)
	}
	if errors.Is(err, resourceguard.ErrRetryable) {
		return err
	}
	return fmt.Errorf("%w: %w", resourceguard.ErrRetryable, err)
}

func isDeadlock(err error) bool {
	var mysqlErr *mysql.MySQLError
	var pgErr *pgconn.PgError
	return errors.As(err, &mysqlErr) && mysqlErr.Number == 1213 || errors.As(err, &pgErr) && pgErr.Code == "40P01"
}

func (s *store) append(ctx context.Context, tx resourceguard.Tx, w resourceguard.Write) error {
	_, err := tx.ExecContext(ctx, s.dialect().Bind("INSERT INTO log (namespace, resource_key, token, operation) VALUES (?, ?, ?, ?)"),
		[]byte(w.Namespace), []byte(w.Key), s.dialect().Uint64(w.Token), []byte(w.Operation))
	return err
}

func (s *store) dialect() *resourceguard.Dialect {
	switch s.engine {
	case dbtest.SQLite:
		return resourceguard.SQLite
	case dbtest.Postgres:
		return resourceguard.PostgreSQL
	}
	return resourceguard.MySQL
}

// Log reads in the order of seq, which is that of the commits: seq is drawn while the
// key's row is locked.
func (s *store) Log(ctx context.Context, namespace, key string) ([]guardtest.Entry, error) {
	query := s.dialect().Bind("SELECT token, operation FROM log WHERE namespace = ? AND resource_key = ? ORDER BY seq")
	rows, err := s.db.QueryContext(ctx, query, []byte(namespace), []byte(key))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var log []guardtest.Entry
	for rows.Next() {
		var e guardtest.Entry
		if err := rows.Scan(s.dialect().ScanUint64(&e.Token), &e.Operation); err != nil {
			return nil, err
		}
		log = append(log, e)
	}
	return log, rows.Err()
}

func (s *store) Raise(ctx context.Context, f resourceguard.Fence) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return s.counted(err)
	}
	defer tx.Rollback()
	err = s.guard.Raise(ctx, tx, f)
	if err == nil || isVerdict(err) {
		_, err = s.commit(tx, resourceguard.Result{}, err)
		return err
	}
	return s.counted(err)
}

// isVerdict reports whether a refusal leaves something that may be committed.
func isVerdict(err error) bool {
	return errors.Is(err, resourceguard.ErrStale) || errors.Is(err, resourceguard.ErrTokenCollision) ||
		errors.Is(err, resourceguard.ErrOperationConflict) || errors.Is(err, resourceguard.ErrRefused)
}

func (s *store) Lookup(ctx context.Context, namespace, key, operation string) (resourceguard.Record, bool, error) {
	return s.guard.Lookup(ctx, s.db, namespace, key, operation)
}

func (s *store) KeepsRaise() bool { return s.keeps }

func (s *store) Reopen(context.Context) (guardtest.Store, error) {
	pool, err := openPool(s.address, s.setting)
	if err != nil {
		return nil, err
	}
	other := *s
	other.db = pool
	return closing{&other}, nil
}

// A closing store closes its pool with it.
type closing struct{ *store }

func (c closing) Close() error { return c.db.Close() }

// emptied is s without the rows of the clause before.
func (s *store) emptied(ctx context.Context) (guardtest.Store, error) {
	for _, table := range []string{"orbit_guard_key", "orbit_guard_operation", "log"} {
		if _, err := s.db.ExecContext(ctx, "DELETE FROM "+table); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// onEngines runs f on each engine with a database that holds the guard's tables and
// the owner's log.
func onEngines(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	dbtest.RunOn(t, dbtest.GuardEngines(), func(t *testing.T, db *dbtest.DB) {
		openLog(t, db)
		f(t, db)
	}, migrations.Guard)
}

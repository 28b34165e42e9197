package migrations

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// The books are kept in three tables, created on the first run. They are shared by the
// sets, which are told apart by set_name.
var (
	mysqlBooks = []string{`
CREATE TABLE IF NOT EXISTS orbit_migration (
    set_name     VARBINARY(16)  NOT NULL COMMENT '迁移集名称',
    version      INT            NOT NULL COMMENT '步骤编号，从 1 起',
    name         VARBINARY(128) NOT NULL COMMENT '步骤名称',
    checksum     BINARY(32)     NOT NULL COMMENT '步骤文件的 SHA-256 摘要',
    additive     TINYINT        NOT NULL DEFAULT 0 COMMENT '上一版程序能否继续运行：0 否，1 是',
    started_at   BIGINT         NOT NULL COMMENT '开始时间，UTC 微秒',
    completed_at BIGINT         NULL COMMENT '完成时间，UTC 微秒，空为未完成',
    PRIMARY KEY (set_name, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='迁移步骤'`, `
CREATE TABLE IF NOT EXISTS orbit_migration_statement (
    set_name VARBINARY(16) NOT NULL COMMENT '迁移集名称',
    version  INT           NOT NULL COMMENT '步骤编号',
    ordinal  INT           NOT NULL COMMENT '语句在步骤中的序号，从 1 起',
    begun_at BIGINT        NOT NULL COMMENT '执行前记录的时间，UTC 微秒',
    done_at  BIGINT        NULL COMMENT '执行后记录的时间，UTC 微秒，空为未确认',
    PRIMARY KEY (set_name, version, ordinal)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='迁移语句日志'`, `
CREATE TABLE IF NOT EXISTS orbit_migration_lock (
    set_name    VARBINARY(16)  NOT NULL COMMENT '迁移集名称',
    holder      VARBINARY(255) NOT NULL COMMENT '持有者，空为空闲',
    epoch       BIGINT         NOT NULL COMMENT '持有纪元，每次易主加一',
    lease_until BIGINT         NOT NULL COMMENT '租约到期时间，UTC 微秒',
    PRIMARY KEY (set_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='迁移锁'`}

	sqliteBooks = []string{`
CREATE TABLE IF NOT EXISTS orbit_migration (
    set_name     BLOB    NOT NULL, -- 迁移集名称
    version      INTEGER NOT NULL, -- 步骤编号，从 1 起
    name         BLOB    NOT NULL, -- 步骤名称
    checksum     BLOB    NOT NULL, -- 步骤文件的 SHA-256 摘要
    additive     INTEGER NOT NULL DEFAULT 0, -- 上一版程序能否继续运行：0 否，1 是
    started_at   INTEGER NOT NULL, -- 开始时间，UTC 微秒
    completed_at INTEGER NULL, -- 完成时间，UTC 微秒，空为未完成
    PRIMARY KEY (set_name, version)
) STRICT, WITHOUT ROWID`, `
CREATE TABLE IF NOT EXISTS orbit_migration_statement (
    set_name BLOB    NOT NULL, -- 迁移集名称
    version  INTEGER NOT NULL, -- 步骤编号
    ordinal  INTEGER NOT NULL, -- 语句在步骤中的序号，从 1 起
    begun_at INTEGER NOT NULL, -- 执行前记录的时间，UTC 微秒
    done_at  INTEGER NULL, -- 执行后记录的时间，UTC 微秒，空为未确认
    PRIMARY KEY (set_name, version, ordinal)
) STRICT, WITHOUT ROWID`, `
CREATE TABLE IF NOT EXISTS orbit_migration_lock (
    set_name    BLOB    NOT NULL, -- 迁移集名称
    holder      BLOB    NOT NULL, -- 持有者，空为空闲
    epoch       INTEGER NOT NULL, -- 持有纪元，每次易主加一
    lease_until INTEGER NOT NULL, -- 租约到期时间，UTC 微秒
    PRIMARY KEY (set_name)
) STRICT, WITHOUT ROWID`}

	// Two runners that both make a table that is not there would fail there: the lock lets
	// them do it one after the other.
	postgresBooks = []string{`
DO $books$
BEGIN
PERFORM pg_advisory_xact_lock(hashtext('orbit_migration'));
CREATE TABLE IF NOT EXISTS orbit_migration (
    set_name     BYTEA    NOT NULL,
    version      INTEGER  NOT NULL,
    name         BYTEA    NOT NULL,
    checksum     BYTEA    NOT NULL,
    additive     BOOLEAN  NOT NULL DEFAULT FALSE,
    started_at   BIGINT   NOT NULL,
    completed_at BIGINT   NULL,
    PRIMARY KEY (set_name, version)
);
COMMENT ON TABLE orbit_migration IS '迁移步骤';
COMMENT ON COLUMN orbit_migration.set_name IS '迁移集名称';
COMMENT ON COLUMN orbit_migration.version IS '步骤编号，从 1 起';
COMMENT ON COLUMN orbit_migration.name IS '步骤名称';
COMMENT ON COLUMN orbit_migration.checksum IS '步骤文件的 SHA-256 摘要';
COMMENT ON COLUMN orbit_migration.additive IS '上一版程序能否继续运行';
COMMENT ON COLUMN orbit_migration.started_at IS '开始时间，UTC 微秒';
COMMENT ON COLUMN orbit_migration.completed_at IS '完成时间，UTC 微秒，空为未完成';
CREATE TABLE IF NOT EXISTS orbit_migration_statement (
    set_name BYTEA   NOT NULL,
    version  INTEGER NOT NULL,
    ordinal  INTEGER NOT NULL,
    begun_at BIGINT  NOT NULL,
    done_at  BIGINT  NULL,
    PRIMARY KEY (set_name, version, ordinal)
);
COMMENT ON TABLE orbit_migration_statement IS '迁移语句日志';
COMMENT ON COLUMN orbit_migration_statement.set_name IS '迁移集名称';
COMMENT ON COLUMN orbit_migration_statement.version IS '步骤编号';
COMMENT ON COLUMN orbit_migration_statement.ordinal IS '语句在步骤中的序号，从 1 起';
COMMENT ON COLUMN orbit_migration_statement.begun_at IS '执行前记录的时间，UTC 微秒';
COMMENT ON COLUMN orbit_migration_statement.done_at IS '执行后记录的时间，UTC 微秒，空为未确认';
CREATE TABLE IF NOT EXISTS orbit_migration_lock (
    set_name    BYTEA  NOT NULL,
    holder      BYTEA  NOT NULL,
    epoch       BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    PRIMARY KEY (set_name)
);
COMMENT ON TABLE orbit_migration_lock IS '迁移锁';
COMMENT ON COLUMN orbit_migration_lock.set_name IS '迁移集名称';
COMMENT ON COLUMN orbit_migration_lock.holder IS '持有者，空为空闲';
COMMENT ON COLUMN orbit_migration_lock.epoch IS '持有纪元，每次易主加一';
COMMENT ON COLUMN orbit_migration_lock.lease_until IS '租约到期时间，UTC 微秒';
END
$books$`}
)

// openBooks creates the bookkeeping tables if they are missing.
func openBooks(ctx context.Context, db *sqldb.DB) error {
	books := mysqlBooks
	switch db.Dialect() {
	case sqldb.SQLite:
		books = sqliteBooks
	case sqldb.PostgreSQL:
		books = postgresBooks
	}
	for _, create := range books {
		if _, err := db.Write().ExecContext(ctx, create); err != nil {
			return fmt.Errorf("create migration books: %w", err)
		}
	}
	return nil
}

// A record is what the books say of one step.
type record struct {
	number    int
	name      string
	checksum  []byte
	additive  bool
	completed time.Time // zero while the step is half applied
}

func (r record) String() string { return fmt.Sprintf("%06d_%s", r.number, r.name) }

const selectRecords = `
SELECT version, name, checksum, additive, COALESCE(completed_at, 0)
FROM orbit_migration
WHERE set_name = ?
ORDER BY version`

// records returns the recorded steps of set in order; none if there are no books yet.
func records(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect, set Set) ([]record, error) {
	there, err := exists(ctx, q, d, effect{kind: tableObject, name: "orbit_migration"})
	if err != nil || !there {
		return nil, err
	}
	rows, err := q.QueryContext(ctx, d.Bind(selectRecords), []byte(set))
	if err != nil {
		return nil, fmt.Errorf("read migration books: %w", err)
	}
	defer rows.Close()
	var recorded []record
	for rows.Next() {
		var r record
		var completed int64
		if err := rows.Scan(&r.number, &r.name, &r.checksum, &r.additive, &completed); err != nil {
			return nil, fmt.Errorf("read migration books: %w", err)
		}
		if completed != 0 {
			r.completed = sqldb.Time(completed)
		}
		recorded = append(recorded, r)
	}
	return recorded, rows.Err()
}

// A mark is what the journal says of one statement.
type mark int

const (
	unmarked mark = iota
	begun
	done
)

const selectMarks = `
SELECT ordinal, done_at IS NOT NULL
FROM orbit_migration_statement
WHERE set_name = ? AND version = ?`

// marks returns the journal of a step, by statement ordinal.
func marks(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect, set Set, number int) (map[int]mark, error) {
	rows, err := q.QueryContext(ctx, d.Bind(selectMarks), []byte(set), number)
	if err != nil {
		return nil, fmt.Errorf("read statement journal: %w", err)
	}
	defer rows.Close()
	journal := map[int]mark{}
	for rows.Next() {
		var ordinal int
		var isDone bool
		if err := rows.Scan(&ordinal, &isDone); err != nil {
			return nil, fmt.Errorf("read statement journal: %w", err)
		}
		journal[ordinal] = begun
		if isDone {
			journal[ordinal] = done
		}
	}
	return journal, rows.Err()
}

const insertStep = `
INSERT INTO orbit_migration (set_name, version, name, checksum, additive, started_at)
VALUES (?, ?, ?, ?, ?, ?)`

func beginStep(ctx context.Context, tx *sqldb.Tx, set Set, s step) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	d := tx.Dialect()
	_, err = tx.ExecContext(ctx, d.Bind(insertStep)+d.OnConflict([]string{"set_name", "version"}),
		[]byte(set), s.number, []byte(s.name), s.checksum[:], s.additive, now)
	return err
}

const completeStep = `
UPDATE orbit_migration SET completed_at = ?
WHERE set_name = ? AND version = ?`

func endStep(ctx context.Context, tx *sqldb.Tx, set Set, number int) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, tx.Dialect().Bind(completeStep), now, []byte(set), number)
	return err
}

const insertMark = `
INSERT INTO orbit_migration_statement (set_name, version, ordinal, begun_at, done_at)
VALUES (?, ?, ?, ?, ?)`

// writeMark records that a statement is about to run (begun) or has run (done).
func writeMark(ctx context.Context, tx *sqldb.Tx, set Set, number, ordinal int, m mark) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	var doneAt any
	if m == done {
		doneAt = now
	}
	d := tx.Dialect()
	_, err = tx.ExecContext(ctx, d.Bind(insertMark)+d.OnConflict([]string{"set_name", "version", "ordinal"}, "done_at"),
		[]byte(set), number, ordinal, now, doneAt)
	return err
}

const deleteMark = `
DELETE FROM orbit_migration_statement
WHERE set_name = ? AND version = ? AND ordinal = ?`

func eraseMark(ctx context.Context, tx *sqldb.Tx, set Set, number, ordinal int) error {
	_, err := tx.ExecContext(ctx, tx.Dialect().Bind(deleteMark), []byte(set), number, ordinal)
	return err
}

package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
)

// OUT-017: each hot statement finds its rows through the index made for it and sorts nothing,
// on an empty table, on a young one, and on one whose rows are mostly done.
func TestHotStatementsUseTheirIndex(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, size := range []int{0, 12, 20_000} {
			t.Run(fmt.Sprintf("%d rows", size), func(t *testing.T) {
				if testing.Short() && size > 1000 {
					t.Skip("skipped with -short")
				}
				fill(t, db, size)
				for _, statement := range hotStatements(t, db) {
					statement.check(t, db)
				}
			})
		}
	}, migrations.Outbox)
}

// A hotStatement is one that a relay or Enqueue runs all the time.
type hotStatement struct {
	name  string
	query string
	args  []any
	key   string // index of orbit_outbox
}

const (
	dueIndex      = "orbit_outbox_due"
	identityIndex = "orbit_outbox_identity"
	primary       = "PRIMARY"
)

func hotStatements(t *testing.T, db *dbtest.DB) []hotStatement {
	o, err := New(db.Dialect(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(db.Dialect(), db.Write(), db.Read())
	if err != nil {
		t.Fatal(err)
	}
	clock := s.dialect.Clock
	seqs := []int64{3, 4, 5, 6, 7, 8, 9, 10}
	in := sqldb.Placeholders(len(seqs))
	answer, err := (&Answer{Outcome: OutcomeUnknown}).args([]any{0, 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	fence := []any{0, 0, 1}
	deliver := func() hotStatement {
		var rows []Delivery
		for _, seq := range seqs {
			rows = append(rows, Delivery{Seq: seq, TaskID: strings.Repeat("1", 32), RequestID: strings.Repeat("2", 32)})
		}
		b, err := newDeliveries(rows)
		if err != nil {
			t.Fatal(err)
		}
		set, args := b.set(s.dialect, "= 1")
		return hotStatement{"Deliver", s.update + set + s.epochIs, append(args, fence...), primary}
	}
	const at = int64(1_790_000_000_010_000)
	return []hotStatement{
		{"Shards", nextShard, []any{0, MaxShards}, dueIndex},
		{"Lanes", nextLane + clock + nextLaneFrom, []any{0, 0}, dueIndex},
		{"ReadDue", readDue + clock + readDueAfter, []any{0, 1, 0, 0, 0, 0, 100}, dueIndex},
		{"ReadDue after", readDue + clock + readDueAfter, []any{0, 1, at, at, at, 10_000, 100}, dueIndex},
		{"ReadDue and rows", fmt.Sprintf(readReady, clock) + readyAfter, []any{8192, 0, 1, at, at, at, 10_000, 100}, dueIndex},
		{"ReadDue, first of lanes", fmt.Sprintf(readReady, clock) + fmt.Sprintf(readyFirst, in), append([]any{8192, 0}, append(seqArgs(nil, seqs), 100)...), dueIndex},
		{"Fetch", s.fetchQuery(len(seqs)), seqArgs(nil, seqs), primary},
		{"Postpone", s.update + fmt.Sprintf(postponeRows, clock, in) + s.epochIs, append(seqArgs(answer, seqs), fence...), primary},
		{"Doubt", s.update + fmt.Sprintf(doubtRows, clock, in) + s.epochIs, append(seqArgs(answer[2:], seqs), fence...), primary},
		deliver(),
		{"count delivered", fmt.Sprintf(readDelivered, s.byPrimary) + in, seqArgs(nil, seqs), primary},
		{"Purge", s.remove + fmt.Sprintf(deleteDelivered, in), seqArgs(nil, append(seqs, at)), primary},
		{"read back", o.find, []any{make([]byte, 32)}, identityIndex},
	}
}

func (h hotStatement) check(t *testing.T, db *dbtest.DB) {
	t.Helper()
	plan := explain(t, db, h)
	if h.key == primary && db.Engine == dbtest.SQLite {
		h.key = "INTEGER PRIMARY KEY"
	}
	for _, bad := range []string{"filesort", "temporary", "TEMP B-TREE", "SCAN orbit_outbox", "SCAN d", "SCAN r", " r ALL", " r index"} {
		if strings.Contains(plan, bad) {
			t.Errorf("%s: plan has %q:\n%s", h.name, bad, plan)
		}
	}
	// An engine that knows without reading that nothing matches has no plan.
	known := strings.Contains(plan, "no matching row in const table") || strings.Contains(plan, "after reading const tables")
	if !strings.Contains(plan, h.key) && !known {
		t.Errorf("%s: plan does not use %s:\n%s", h.name, h.key, plan)
	}
	covered := strings.Contains(plan, "Using index\n") || strings.Contains(plan, "Using index;") || strings.Contains(plan, "; Using index") || strings.Contains(plan, "COVERING INDEX")
	if (strings.HasPrefix(h.name, "ReadDue") || h.name == "read back") && !covered && strings.Contains(plan, h.key) {
		t.Errorf("%s: plan reads rows, not the index alone:\n%s", h.name, plan)
	}
}

// explain returns the plan, a line for each table.
func explain(t *testing.T, db *dbtest.DB, h hotStatement) string {
	t.Helper()
	prefix := "EXPLAIN QUERY PLAN "
	switch db.Engine {
	case dbtest.MySQL:
		prefix = "EXPLAIN FORMAT=TRADITIONAL "
	case dbtest.MariaDB:
		prefix = "EXPLAIN "
	}
	rows, err := db.Write().QueryContext(t.Context(), prefix+strings.TrimSpace(h.query), h.args...)
	if err != nil {
		t.Fatalf("%s: %v", h.name, err)
	}
	lines, err := readPlan(rows)
	if err != nil {
		t.Fatalf("%s: %v", h.name, err)
	}
	return lines
}

// readPlan leaves out the column that lists indexes which were not chosen.
func readPlan(rows *sql.Rows) (string, error) {
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var plan strings.Builder
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
		for i, v := range values {
			if columns[i] != "possible_keys" {
				plan.WriteString(v.String + " ")
			}
		}
		plan.WriteString("\n")
	}
	return strings.ReplaceAll(plan.String(), " \n", "\n"), rows.Err()
}

// fill makes the table hold rows 1 to n: nine of ten delivered, the others pending in
// four lanes. It takes no statistics, as after a sudden load.
func fill(t *testing.T, db *dbtest.DB, n int) {
	t.Helper()
	const insert = `
INSERT INTO orbit_outbox
  (seq, identity, operation, operation_task_id, shard, lane, size, target, idempotency_key,
   queue_id, handler, request, request_sha256, content_algorithm, content_digest, traceparent,
   created_at, state, due_at, window_from)
VALUES `
	mustExec(t, db, "DELETE FROM orbit_outbox")
	const batch = 500
	filler := make([]byte, 32)
	for from := 1; from <= n; from += batch {
		var args []any
		count := min(batch, n-from+1)
		for seq := from; seq < from+count; seq++ {
			state, due := 2, 0
			if seq > n*9/10 {
				state, due = 1, 1_790_000_000_000_000+seq
			}
			identity := identityOf("main", OperationSubmit, nil, fmt.Sprint(seq))
			args = append(args, seq, identity[:], 1, empty, 0, seq%4, 100, []byte("main"), fmt.Append(nil, seq),
				filler[:16], []byte("h"), make([]byte, 100), filler, algorithm, filler, empty,
				1_790_000_000_000_000+seq, state, due, 1_790_000_000_000_000+seq)
		}
		mustExec(t, db, insert+sqldb.Rows(count, 20), args...)
	}
}

func mustExec(t *testing.T, db *dbtest.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Write().ExecContext(context.Background(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// Reading on after a place costs what is read, however many rows are due at the same
// moment before it.
func TestReadDueAfterAPlaceReadsNoRowBeforeIt(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine, migrations.Outbox)
			fill(t, db, 2000)
			mustExec(t, db, "UPDATE orbit_outbox SET state = 1, lane = 1, due_at = 1790000000000000")
			conn, err := db.Write().Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.ExecContext(t.Context(), "FLUSH STATUS"); err != nil {
				t.Fatal(err)
			}
			const at = int64(1_790_000_000_000_000)
			due, err := readAll(t.Context(), conn, func(rows *sql.Rows) (d Due, err error) {
				return d, rows.Scan(&d.Seq, &d.Size, &d.dueAt)
			}, readDue+MySQL.Clock+readDueAfter, 0, 1, at, at, at, 1500, 100)
			if err != nil || len(due) != 100 || due[0].Seq != 1501 {
				t.Fatalf("read %d rows, %v", len(due), err)
			}
			var name string
			var reads int
			if err := conn.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read_next'").Scan(&name, &reads); err != nil {
				t.Fatal(err)
			}
			if reads > 110 {
				t.Fatalf("%d index entries read for 100 rows", reads)
			}
		})
	}
}

// Our own transactions are READ COMMITTED whatever the pool is set to.
func TestOwnTransactionsAreReadCommitted(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine, migrations.Outbox)
			s, err := Open(db.Dialect(), db.Write(), db.Read())
			if err != nil {
				t.Fatal(err)
			}
			db.Write().SetMaxOpenConns(1)
			mustExec(t, db, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
			other := db.Reopen(t)
			const holds = "SELECT COUNT(*) FROM orbit_outbox_hold"
			var before, after int
			err = s.tx(t.Context(), func(tx *sql.Tx) error {
				if err := s.checkLease(t.Context(), tx, Lease{}, ""); err != nil && !errors.Is(err, ErrLeaseLost) {
					return err
				}
				if err := tx.QueryRowContext(t.Context(), holds).Scan(&before); err != nil {
					return err
				}
				mustExec(t, other, "INSERT INTO orbit_outbox_hold (target, queue_id, operator, reason, created_at) VALUES ('a', '', '', '', 0)")
				return tx.QueryRowContext(t.Context(), holds).Scan(&after)
			})
			if err != nil || before != 0 || after != 1 {
				t.Fatalf("%d holds, then %d after another's commit, %v; want 0 and 1: every statement sees what is committed", before, after, err)
			}
		})
	}
}

// REL-015: the server ends a transaction of ours that has fallen silent, and frees its
// locks; the connection is as it was afterwards.
func TestASilentTransactionIsEndedByTheServer(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Open(t, engine, migrations.Outbox)
			s, err := Open(db.Dialect(), db.Write(), db.Read())
			if err != nil {
				t.Fatal(err)
			}
			db.Write().SetMaxOpenConns(1)
			const insert = "INSERT INTO orbit_outbox_hold (target, queue_id, operator, reason, created_at) VALUES ('a', '', '', '', 0)"
			wait := func() (seconds int) {
				if err := db.Write().QueryRowContext(t.Context(), "SELECT @@SESSION.wait_timeout").Scan(&seconds); err != nil {
					t.Fatal(err)
				}
				return seconds
			}
			mustExec(t, db, "SET SESSION wait_timeout = 1000")
			if err := s.tx(t.Context(), func(tx *sql.Tx) error { return nil }); err != nil || wait() != 1000 {
				t.Fatalf("after a transaction the connection waits %ds, %v; want 1000s, as before", wait(), err)
			}
			other := db.Reopen(t)
			err = s.tx(t.Context(), func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(t.Context(), insert); err != nil {
					return err
				}
				mustExec(t, other, insert) // waits for the lock until the server frees it
				return nil
			})
			if err == nil {
				t.Error("a transaction that was ended has committed")
			}
			if err := s.tx(t.Context(), func(tx *sql.Tx) error { return nil }); err != nil {
				t.Errorf("the next transaction: %v", err)
			}
		})
	}
}

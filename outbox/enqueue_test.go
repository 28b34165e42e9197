package outbox_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/outbox/outboxtest"
)

// forbidden is a transaction on which nothing may be done.
type forbidden struct{ t *testing.T }

func (f forbidden) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	f.t.Error("statement before the message was checked")
	return nil, errors.New("forbidden")
}

func (f forbidden) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	f.t.Error("query before the message was checked")
	return nil, errors.New("forbidden")
}

func message(key string) outbox.Message {
	return outbox.Message{
		Key: key, Target: "main",
		Request: orbit.SubmitTaskRequest{
			QueueID: someQueue, Handler: "h", HandlerVersion: "1", PayloadVersion: "1", Payload: json.RawMessage(`{}`),
		},
	}
}

// OUT-006, OUT-015, IDEM-001: what can never be accepted is refused by field and rule
// before anything is written.
func TestEnqueueRefusesBadMessagesBeforeAnyStatement(t *testing.T) {
	now := time.Date(2026, 9, 17, 0, 0, 0, 0, time.UTC)
	year1 := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name  string
		spoil func(*outbox.Message)
		field string
		words string
	}{
		{"no key", func(m *outbox.Message) { m.Key = "" }, "idempotency_key", "1 to 128"},
		{"long key", func(m *outbox.Message) { m.Key = strings.Repeat("k", 129) }, "idempotency_key", "1 to 128"},
		{"blank in the key", func(m *outbox.Message) { m.Key = "a b" }, "idempotency_key", "blanks"},
		{"blank around the key", func(m *outbox.Message) { m.Key = " a" }, "idempotency_key", "blanks"},
		{"key outside ASCII", func(m *outbox.Message) { m.Key = "é" }, "idempotency_key", "ASCII"},
		{"control character in the key", func(m *outbox.Message) { m.Key = "a\x00" }, "idempotency_key", "printable"},
		{"no target", func(m *outbox.Message) { m.Target = "" }, "target", "1 to 64"},
		{"long target", func(m *outbox.Message) { m.Target = strings.Repeat("t", 65) }, "target", "1 to 64"},
		{"URL as target", func(m *outbox.Message) { m.Target = "https://host/" }, "target", "letters, digits"},
		{"target begins with a dot", func(m *outbox.Message) { m.Target = ".a" }, "target", "begin"},
		{"traceparent", func(m *outbox.Message) { m.Traceparent = "00-00-00-00" }, "traceparent", "W3C"},
		{"available_at", func(m *outbox.Message) { m.Request.AvailableAt = &now }, "available_at", "Message.NotBefore"},
		{"start_deadline_at", func(m *outbox.Message) { m.Request.StartDeadlineAt = &now }, "start_deadline_at", "AllowAbsoluteTimes"},
		{"not before the year 2000", func(m *outbox.Message) { m.NotBefore = year1 }, "not_before", "2000"},
		{"not after the year 1999", func(m *outbox.Message) { m.NotAfter = year1 }, "not_after", "2000"},
		{"never", func(m *outbox.Message) { m.NotBefore, m.NotAfter = now, now }, "not_after", "later than not_before"},
		{"in the past", func(m *outbox.Message) { m.NotAfter = time.Now().Add(-time.Hour) }, "not_after", "passed"},
		{"queue", func(m *outbox.Message) { m.Request.QueueID = "Q" }, "queue_id", "hexadecimal"},
		{"handler", func(m *outbox.Message) { m.Request.Handler = "" }, "handler", "1 to 128"},
		{"no payload", func(m *outbox.Message) { m.Request.Payload = nil }, "payload", "required"},
		{"null payload", func(m *outbox.Message) { m.Request.Payload = json.RawMessage(" null ") }, "payload", "null"},
		{"member twice", func(m *outbox.Message) { m.Request.Payload = json.RawMessage(`{"a":1,"a":2}`) }, "payload", ""},
		{"large payload", func(m *outbox.Message) {
			m.Request.Payload = json.RawMessage(`"` + strings.Repeat("x", orbit.MaxPayloadBytes) + `"`)
		}, "payload", "262144"},
		{"concurrency key", func(m *outbox.Message) { m.Request.ConcurrencyKey = " a" }, "concurrency_key", "white space"}, // KEY-019
		{"retry", func(m *outbox.Message) { m.Request.Retry.MaxAttempts = 101 }, "retry.max_attempts", "100"},
	}
	o := newOutbox(t, outbox.MySQL, outbox.Config{})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := message("a")
			test.spoil(&m)
			_, err := o.Enqueue(t.Context(), forbidden{t}, m)
			var invalid *orbit.InvalidArgumentError
			if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, test.field) || !strings.Contains(invalid.Rule, test.words) {
				t.Fatalf("Enqueue = %v, want a refusal of %s for %q", err, test.field, test.words)
			}
		})
	}
}

func TestAbsoluteTimesAreFrozenIfAllowed(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	m := message("a")
	at := time.Date(2030, 9, 17, 0, 0, 0, 0, time.UTC)
	m.Request.AvailableAt, m.Request.StartDeadlineAt, m.AllowAbsoluteTimes = &at, &at, true
	r := enqueue(t, db, outbox.Config{}, m)
	s, err := orbit.ParseSubmission(r.Request)
	if err != nil || !s.Request.AvailableAt.Equal(at) || !s.Request.StartDeadlineAt.Equal(at) {
		t.Fatalf("frozen request is %s, %v", r.Request, err)
	}
}

func newOutbox(t testing.TB, d *outbox.Dialect, cfg outbox.Config) *outbox.Outbox {
	o, err := outbox.New(d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// enqueue runs a transaction on the write pool and returns the row.
func enqueue(t *testing.T, db *dbtest.DB, cfg outbox.Config, m outbox.Message) outbox.Row {
	t.Helper()
	tx, err := db.Write().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	receipt, err := newOutbox(t, db.Dialect(), cfg).Enqueue(t.Context(), tx, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r, err := openStore(t, db.Dialect(), db.Write(), db.Read()).Get(t.Context(), receipt.Seq)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rows of one key land in one shard, whoever enqueues them, and shards fill evenly.
func TestRowsAreSpreadOverShards(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	counts := map[int]int{}
	for i := range 200 {
		counts[enqueue(t, db, outbox.Config{Shards: 4}, message(strings.Repeat("k", 1+i/26)+string(rune('a'+i%26)))).Shard]++
	}
	for shard := range 4 {
		if counts[shard] < 25 {
			t.Fatalf("rows per shard: %v, want about 50 each", counts)
		}
	}
	if len(counts) != 4 {
		t.Fatalf("rows per shard: %v, want 4 shards", counts)
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	for _, shards := range []int{-1, outbox.MaxShards + 1} {
		if _, err := outbox.New(outbox.MySQL, outbox.Config{Shards: shards}); err == nil {
			t.Errorf("New took %d shards", shards)
		}
	}
	if _, err := outbox.New(nil, outbox.Config{}); err == nil {
		t.Error("New took no dialect")
	}
	if _, err := outbox.Open(outbox.MySQL, nil, nil); err == nil {
		t.Error("Open took no database")
	}
}

// The transactions of ORMs come in these shapes.
type (
	embeddedTx   struct{ *sql.Tx }         // sqlx
	ownBeginTx   struct{ *sql.Tx }         // bun
	rowsOnlyTx   struct{ tx *sql.Tx }      // ent
	rowOnlyTx    struct{ tx *sql.Tx }      //
	execOnlyTx   struct{ tx *sql.Tx }      // can read nothing back
	embeddedPool struct{ *sql.DB }         // sqlx
	ownPool      struct{ *sql.DB }         // bun
	gormPool     struct{ pool embeddedTx } // GORM's ConnPool around a transaction
	gormDB       struct{ gormPool }        // GORM's pool of prepared statements
)

func (o ownBeginTx) BeginTx(context.Context, *sql.TxOptions) (ownBeginTx, error) { return o, nil }
func (o ownPool) BeginTx(context.Context, *sql.TxOptions) (ownBeginTx, error) {
	return ownBeginTx{}, nil
}

func (g gormDB) BeginTx(context.Context, *sql.TxOptions) (gormPool, error) { return g.gormPool, nil }

func (r rowsOnlyTx) ExecContext(ctx context.Context, q string, a ...any) (sql.Result, error) {
	return r.tx.ExecContext(ctx, q, a...)
}

func (r rowsOnlyTx) QueryContext(ctx context.Context, q string, a ...any) (*sql.Rows, error) {
	return r.tx.QueryContext(ctx, q, a...)
}

func (r rowOnlyTx) ExecContext(ctx context.Context, q string, a ...any) (sql.Result, error) {
	return r.tx.ExecContext(ctx, q, a...)
}

func (r rowOnlyTx) QueryRowContext(ctx context.Context, q string, a ...any) *sql.Row {
	return r.tx.QueryRowContext(ctx, q, a...)
}

func (e execOnlyTx) ExecContext(ctx context.Context, q string, a ...any) (sql.Result, error) {
	return e.tx.ExecContext(ctx, q, a...)
}

func (g gormPool) PrepareContext(ctx context.Context, q string) (*sql.Stmt, error) {
	return g.pool.PrepareContext(ctx, q)
}

func (g gormPool) ExecContext(ctx context.Context, q string, a ...any) (sql.Result, error) {
	return g.pool.ExecContext(ctx, q, a...)
}

func (g gormPool) QueryContext(ctx context.Context, q string, a ...any) (*sql.Rows, error) {
	return g.pool.QueryContext(ctx, q, a...)
}

func (g gormPool) QueryRowContext(ctx context.Context, q string, a ...any) *sql.Row {
	return g.pool.QueryRowContext(ctx, q, a...)
}

func TestTransactionsOfORMsFit(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		o := newOutbox(t, db.Dialect(), outbox.Config{})
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		fitting := map[string]outbox.Tx{
			"sqlx": embeddedTx{tx}, "bun": ownBeginTx{tx}, "rows only": rowsOnlyTx{tx}, "row only": rowOnlyTx{tx},
			"gorm": gormPool{embeddedTx{tx}}, "pointer": &embeddedTx{tx},
		}
		for name, fit := range fitting {
			for range 2 { // the second reads back
				if _, err := o.Enqueue(t.Context(), fit, message(strings.ReplaceAll(name, " ", "-"))); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		conn := sql.Conn{}
		refused := map[string]outbox.Tx{
			"sqlx pool": embeddedPool{db.Write()}, "bun pool": ownPool{db.Write()}, "gorm pool": gormDB{gormPool{embeddedTx{tx}}}, "no query": execOnlyTx{tx},
			"connection": &conn, "nil connection": outbox.InTransaction(nil),
			"pool by hand": outbox.InTransaction(db.Write()), "sqlx pool by hand": outbox.InTransaction(embeddedPool{db.Write()}),
			"nil *sql.Conn": outbox.InTransaction((*sql.Conn)(nil)), "nil wrapper": (*embeddedTx)(nil), "zero *sql.Tx": &sql.Tx{}, "nil FakeTx": (*outboxtest.FakeTx)(nil),
		}
		for name, bad := range refused {
			if _, err := o.Enqueue(t.Context(), bad, message("refused")); !errors.Is(err, outbox.ErrNoTransaction) {
				t.Errorf("%s: %v, want ErrNoTransaction", name, err)
			}
		}
		for name, unmade := range map[string]*outbox.Outbox{"nil": nil, "zero": {}} {
			if _, err := unmade.Enqueue(t.Context(), tx, message("refused")); err == nil || !strings.Contains(err.Error(), "New") {
				t.Errorf("a %s Outbox: %v, want an error that names New", name, err)
			}
		}
	}, migrations.Outbox)
}

// A SQLite transaction that began as a reader and has been overtaken cannot write any
// more. That is nobody's fault: it is to be run again.
func TestOvertakenSQLiteTransactionIsToldToRunAgain(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	path := strings.TrimPrefix(db.Address, "sqlite:")
	pool, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(1)") // transactions begin DEFERRED
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	o := newOutbox(t, outbox.SQLite, outbox.Config{})

	reader, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback()
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orbit_outbox").Scan(&n); err != nil {
		t.Fatal(err)
	}
	enqueue(t, db, outbox.Config{}, message("a"))
	if _, err := o.Enqueue(t.Context(), reader, message("b")); !errors.Is(err, outbox.ErrRetry) {
		t.Fatalf("Enqueue of an overtaken reader = %v, want ErrRetry", err)
	}

	writer, err := db.Write().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback()
	other, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := o.Enqueue(t.Context(), other, message("c")); !errors.Is(err, outbox.ErrRetry) {
		t.Fatalf("Enqueue beside another writer = %v, want ErrRetry", err)
	}
}

func TestMissingTablesAreNamed(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = newOutbox(t, db.Dialect(), outbox.Config{}).Enqueue(t.Context(), tx, message("a"))
		tx.Rollback()
		for _, err := range []error{err, openStore(t, db.Dialect(), db.Write(), db.Read()).Ping(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), "orbit_outbox") || errors.Is(err, outbox.ErrRetry) {
				t.Errorf("without tables: %v, want the missing table's name", err)
			}
		}
	})
}

// OUT-021: nothing that the relay authenticates with reaches a row or an error.
func TestConflictErrorHoldsNoContent(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	enqueue(t, db, outbox.Config{}, message("a"))
	tx, err := db.Write().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	m := message("a")
	m.Request.Payload = json.RawMessage(`{"secret":"hunter2"}`)
	_, err = newOutbox(t, outbox.SQLite, outbox.Config{}).Enqueue(t.Context(), tx, m)
	if !errors.Is(err, outbox.ErrConflict) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "orbit-json-v1:") {
		t.Fatalf("conflict = %v, want both digests and no payload", err)
	}
}

// What is stored must be found again by every later release.
func TestIdentityAndLaneAreForEver(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	enqueue(t, db, outbox.Config{}, message("order:1"))
	var identity []byte
	var lane int64
	err := db.Read().QueryRowContext(t.Context(), "SELECT identity, lane FROM orbit_outbox").Scan(&identity, &lane)
	if err != nil {
		t.Fatal(err)
	}
	const wantIdentity, wantLane = "bd305d5f2b3d24f750cddb5c993d256a8aaffea460f0739d609403d05e543599", int64(-4522589380307926653)
	if got := hex.EncodeToString(identity); got != wantIdentity || lane != wantLane {
		t.Fatalf("identity is %s and lane %d, want %s and %d", got, lane, wantIdentity, wantLane)
	}
}

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

// A counted is a transaction that notes what it is asked.
type counted struct {
	*sql.Tx
	asked []string
}

func (c *counted) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.asked = append(c.asked, strings.Fields(query)[0])
	return c.Tx.ExecContext(ctx, query, args...)
}

func (c *counted) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	c.asked = append(c.asked, strings.Fields(query)[0])
	return c.Tx.QueryContext(ctx, query, args...)
}

// A batch costs two round trips, however many messages it has.
func TestABatchIsOneInsert(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		c := &counted{Tx: tx}
		messages := []outbox.Message{message("a"), message("b"), message("c"), message("a")}
		if _, err := newOutbox(t, db.Dialect(), outbox.Config{}).EnqueueBatch(t.Context(), c, messages); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.asked, " "); got != "INSERT SELECT" {
			t.Errorf("statements were %s, want INSERT SELECT", got)
		}
		// A transaction that reads single rows only is served one by one.
		if _, err := newOutbox(t, db.Dialect(), outbox.Config{}).EnqueueBatch(t.Context(), rowOnlyTx{tx}, append(messages, message("d"))); err != nil {
			t.Fatal(err)
		}
	}, migrations.Outbox)
}

func TestAConflictInsideABatchNamesNoRow(t *testing.T) { // OUT-005
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	tx, err := db.Write().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	other := message("a")
	other.Request.Handler = "another"
	_, err = newOutbox(t, db.Dialect(), outbox.Config{}).EnqueueBatch(t.Context(), tx, []outbox.Message{message("a"), other})
	if !errors.Is(err, outbox.ErrConflict) || strings.Contains(err.Error(), "row 0") {
		t.Errorf("%v, want a conflict with another message of the batch", err)
	}
}

func TestALimitOutOfRangeIsAnInvalidArgument(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		store := openStore(t, db.Dialect(), db.Write(), db.Read())
		for _, limit := range []int{-1, 0, outbox.MaxRows + 1} {
			_, journal := store.Journal(t.Context(), 1, 0, limit)
			_, due := store.ReadDue(t.Context(), 0, 0, outbox.Cursor{}, limit)
			_, ready := store.ReadReady(t.Context(), 0, 0, outbox.Cursor{}, limit, 0)
			_, first := store.ReadFirst(t.Context(), 0, []int64{1}, limit, 0)
			for _, err := range []error{journal, due, ready, first} {
				var invalid *orbit.InvalidArgumentError
				if !errors.As(err, &invalid) || invalid.Field != "limit" {
					t.Errorf("limit %d: %v, want a mistake in limit", limit, err)
				}
			}
		}
		for _, lanes := range [][]int64{nil, make([]int64, outbox.MaxLanes+1)} {
			var invalid *orbit.InvalidArgumentError
			if _, err := store.ReadFirst(t.Context(), 0, lanes, 1, 0); !errors.As(err, &invalid) || invalid.Field != "lanes" {
				t.Errorf("%d lanes: %v, want a mistake in lanes", len(lanes), err)
			}
		}
	}, migrations.Outbox)
}

func TestTheZeroShareIsEverything(t *testing.T) {
	if n := (outbox.Share{}).Of(7); n != 7 {
		t.Errorf("it is %d of 7 shards", n)
	}
}

type traceKey struct{}

// The trace of the business transaction is frozen with its message, whatever becomes of it.
func TestTheTraceOfTheContextIsCaptured(t *testing.T) {
	const own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const ofContext = "00-11111111111111111111111111111111-2222222222222222-01"
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	o := newOutbox(t, db.Dialect(), outbox.Config{Traceparent: func(ctx context.Context) string {
		trace, _ := ctx.Value(traceKey{}).(string)
		return trace
	}})
	store := openStore(t, db.Dialect(), db.Write(), db.Read())
	for key, want := range map[string]string{"of-context": ofContext, "own": own, "none": "", "broken": ""} {
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		m := message(key)
		m.Traceparent = map[string]string{"own": own}[key]
		ctx := context.WithValue(t.Context(), traceKey{}, map[string]string{"of-context": ofContext, "own": ofContext, "broken": "no trace"}[key])
		single, err := o.Enqueue(ctx, tx, m)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		m.Key += "-in-a-batch"
		batch, err := o.EnqueueBatch(ctx, tx, []outbox.Message{m})
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for _, seq := range []int64{single.Seq, batch[0].Seq} {
			if r, err := store.Get(t.Context(), seq); err != nil || r.Traceparent != want {
				t.Errorf("%s: row has trace context %q, %v; want %q", key, r.Traceparent, err, want)
			}
		}
	}
}

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/outbox/outboxtest"
)

// A brokenSubject is an outbox with one fault, and the cases that must find it.
type brokenSubject struct {
	engine  string
	breakIt func(d *outboxtest.Database)
	foundBy []string
}

var brokenSubjects = map[string]brokenSubject{
	"forgets duplicates": {
		breakIt: func(d *outboxtest.Database) { d.Outbox = forgetful{d.Outbox} },
		foundBy: []string{"SameContentIsNotInsertedTwice", "OneKeyFromManyTransactionsIsOneRow"},
	},
	"swallows conflicts": {
		breakIt: func(d *outboxtest.Database) { d.Outbox = indifferent{d.Outbox} },
		foundBy: []string{"OtherContentIsAConflict"},
	},
	"writes outside the transaction": {
		engine:  dbtest.MariaDB,
		breakIt: func(d *outboxtest.Database) { d.Outbox = autocommitting{d.Outbox, d.Business} },
		foundBy: []string{"RollbackLeavesNoRow"},
	},
	"reads back from the snapshot": {
		engine:  dbtest.MariaDB,
		breakIt: func(d *outboxtest.Database) { d.Outbox = snapshotReading{d.Outbox} },
		foundBy: []string{"OldSnapshotSeesTheFirstRow"},
	},
	"locks the row when it reads back": {
		engine:  dbtest.MariaDB,
		breakIt: func(d *outboxtest.Database) { d.Outbox = lockingRow{d.Outbox} },
		foundBy: []string{"RepeatInAnOpenTransactionHoldsUpNoSettle"},
	},
	"takes a lease that is held": {
		breakIt: func(d *outboxtest.Database) {
			d.Store, d.Other = usurper{d.Store, d.Business}, usurper{d.Other, d.Business}
		},
		foundBy: []string{"LeadIsExclusive", "OneOfManyLeads", "SameNameIsNoSameLeader"},
	},
	"settles without a lease": {
		breakIt: func(d *outboxtest.Database) { d.Store = lawless{d.Store, d.Business} },
		foundBy: []string{"DeposedLeaderSettlesNothing", "ReleasedLeaderSettlesNothing", "LeaseOfAnotherShardSettlesNothing"},
	},
	"remembers how far it has read": {
		breakIt: func(d *outboxtest.Database) { d.Store = &watermarked{Store: d.Store} },
		foundBy: []string{"FirstReadFindsWhatBecameDueBehind"},
	},
	"takes a refusal for the truth": {
		breakIt: func(d *outboxtest.Database) { d.Store = rash{d.Store} },
		foundBy: []string{"RefusalOfAMarkedRowBlocks"},
	},
	"discards what may be a task": {
		breakIt: func(d *outboxtest.Database) { d.Store = careless{d.Store, d.Business} },
		foundBy: []string{"WhatIsUnknownIsNeverDiscarded"},
	},
	"acts in a dry run": {
		breakIt: func(d *outboxtest.Database) { d.Store = wet{d.Store} },
		foundBy: []string{"ADryRunChangesNothing", "PurgeAllIsAudited"},
	},
	"purges whatever is old": {
		breakIt: func(d *outboxtest.Database) { d.Store = sweeper{d.Store, d.Business} },
		foundBy: []string{"PurgeTakesOldDeliveredRowsOnly"},
	},
}

const brokenVariable = "ORBIT_TEST_BROKEN_OUTBOX"

// The suite can fail: each fault is found by the cases that are there for it. A suite
// that fails takes its test along, so it runs in a process of its own.
func TestSuiteFindsBrokenOutboxes(t *testing.T) {
	for name, subject := range brokenSubjects {
		t.Run(name, func(t *testing.T) {
			if subject.engine == dbtest.MariaDB {
				dbtest.NeedServer(t, dbtest.MariaDB)
			}
			run := "^TestBrokenOutbox$/^(" + strings.Join(subject.foundBy, "|") + ")$"
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+run, "-test.v")
			cmd.Env = append(os.Environ(), brokenVariable+"="+name)
			output, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("the suite did not fail: %v\n%s", err, output)
			}
			for _, c := range subject.foundBy {
				if !strings.Contains(string(output), "--- FAIL: TestBrokenOutbox/"+c+" ") {
					t.Errorf("case %s did not fail:\n%s", c, output)
				}
			}
		})
	}
}

// TestBrokenOutbox is the other process.
func TestBrokenOutbox(t *testing.T) {
	subject, is := brokenSubjects[os.Getenv(brokenVariable)]
	if !is {
		t.Skip("is run by TestSuiteFindsBrokenOutboxes")
	}
	outboxtest.TestOutbox(t, func(t testing.TB) outboxtest.Database {
		var d outboxtest.Database
		if subject.engine == dbtest.MariaDB {
			db := dbtest.Borrow(t, subject.engine, migrations.Outbox)
			impatient := flavour{isolation: sql.LevelRepeatableRead, interpolate: true, parseTime: true, zone: "SYSTEM"}
			d = database(t, db, openMySQL(t, db, impatient), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			pool := openMySQL(t, db, impatient)
			pool.SetMaxOpenConns(1)
			if _, err := pool.ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
				t.Fatal(err)
			}
			d.Store = openStore(t, outbox.MySQL, pool, pool)
		} else {
			db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
			d = database(t, db, openSQLite(t, db), nil)
		}
		subject.breakIt(&d)
		return d
	})
}

type forgetful struct{ outboxtest.Outbox }

func (f forgetful) Enqueue(ctx context.Context, tx outbox.Tx, m outbox.Message) (outbox.Receipt, error) {
	r, err := f.Outbox.Enqueue(ctx, tx, m)
	if err == nil && r.Existing {
		m.Key += "'"
		return f.Enqueue(ctx, tx, m)
	}
	return r, err
}

type indifferent struct{ outboxtest.Outbox }

func (i indifferent) Enqueue(ctx context.Context, tx outbox.Tx, m outbox.Message) (outbox.Receipt, error) {
	r, err := i.Outbox.Enqueue(ctx, tx, m)
	if errors.Is(err, outbox.ErrConflict) {
		return r, nil
	}
	return r, err
}

type autocommitting struct {
	outboxtest.Outbox
	pool *sql.DB
}

func (a autocommitting) Enqueue(ctx context.Context, _ outbox.Tx, m outbox.Message) (outbox.Receipt, error) {
	conn, err := a.pool.Conn(ctx)
	if err != nil {
		return outbox.Receipt{}, err
	}
	defer conn.Close()
	return a.Outbox.Enqueue(ctx, outbox.InTransaction(conn), m)
}

// rewriting is a transaction that changes the text of each statement.
type rewriting struct {
	tx interface {
		outbox.Tx
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}
	rewrite func(string) string
}

func (r rewriting) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return r.tx.ExecContext(ctx, r.rewrite(query), args...)
}

func (r rewriting) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return r.tx.QueryContext(ctx, r.rewrite(query), args...)
}

type snapshotReading struct{ outboxtest.Outbox }

func (s snapshotReading) Enqueue(ctx context.Context, tx outbox.Tx, m outbox.Message) (outbox.Receipt, error) {
	if t, is := tx.(*sql.Tx); is && t != nil {
		tx = rewriting{t, func(query string) string { return strings.ReplaceAll(query, " LOCK IN SHARE MODE", "") }}
	}
	return s.Outbox.Enqueue(ctx, tx, m)
}

type lockingRow struct{ outboxtest.Outbox }

func (l lockingRow) Enqueue(ctx context.Context, tx outbox.Tx, m outbox.Message) (outbox.Receipt, error) {
	if t, is := tx.(*sql.Tx); is && t != nil {
		tx = rewriting{t, func(query string) string {
			return strings.Replace(query, "WHERE seq = ?", "WHERE seq = ? LOCK IN SHARE MODE", 1)
		}}
	}
	return l.Outbox.Enqueue(ctx, tx, m)
}

type usurper struct {
	outboxtest.Store
	pool *sql.DB
}

func (u usurper) Lead(ctx context.Context, shard int, leader string, length time.Duration) (outbox.Lease, error) {
	l, err := u.Store.Lead(ctx, shard, leader, length)
	if errors.Is(err, outbox.ErrLeaseHeld) {
		if _, err := u.pool.ExecContext(ctx, "UPDATE orbit_outbox_lease SET expires_at = 0"); err != nil {
			return l, err
		}
		return u.Store.Lead(ctx, shard, leader, length)
	}
	return l, err
}

type lawless struct {
	outboxtest.Store
	pool *sql.DB
}

func (l lawless) Deliver(ctx context.Context, _ outbox.Lease, rows []outbox.Delivery) (int, error) {
	for _, r := range rows {
		if _, err := l.pool.ExecContext(ctx, "UPDATE orbit_outbox SET state = 2, due_at = 0 WHERE seq = ?", r.Seq); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

type watermarked struct {
	outboxtest.Store
	highest int64
}

func (w *watermarked) ReadDue(ctx context.Context, shard int, lane int64, after outbox.Cursor, limit int) (kept []outbox.Due, err error) {
	due, err := w.Store.ReadDue(ctx, shard, lane, after, limit)
	for _, d := range due {
		if d.Seq > w.highest {
			kept = append(kept, d)
		}
	}
	for _, d := range kept {
		w.highest = max(w.highest, d.Seq)
	}
	return kept, err
}

type rash struct{ outboxtest.Store }

func (r rash) Reject(ctx context.Context, l outbox.Lease, seqs []int64, a outbox.Answer) (int, error) {
	a.Outcome = outbox.OutcomeConflict
	return r.Store.Reject(ctx, l, seqs, a)
}

type sweeper struct {
	outboxtest.Store
	pool *sql.DB
}

func (s sweeper) Purge(ctx context.Context, age time.Duration, after int64, limit int) (outbox.Purged, error) {
	p, err := s.Store.Purge(ctx, age, after, limit)
	if err == nil {
		_, err = s.pool.ExecContext(ctx, "DELETE FROM orbit_outbox WHERE state <> 1 AND created_at < ?", time.Now().Add(-age).UnixMicro())
	}
	return p, err
}

type careless struct {
	outboxtest.Store
	pool *sql.DB
}

func (c careless) Discard(ctx context.Context, seq int64, act outbox.Act) error {
	err := c.Store.Discard(ctx, seq, act)
	if errors.Is(err, outbox.ErrUnknownOutcome) {
		_, err = c.pool.ExecContext(ctx, "UPDATE orbit_outbox SET state = 5 WHERE seq = ?", seq)
	}
	return err
}

type wet struct{ outboxtest.Store }

func (w wet) Requeue(ctx context.Context, seq int64, act outbox.Act, risks outbox.Risk) error {
	act.DryRun = false
	return w.Store.Requeue(ctx, seq, act, risks)
}

func (w wet) PurgeAll(ctx context.Context, age time.Duration, act outbox.Act) (int64, error) {
	act.DryRun = false
	return w.Store.PurgeAll(ctx, age, act)
}

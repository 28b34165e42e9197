package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// deliveries is a batch of accepted answers in the form of its statement.
type deliveries struct {
	rows    []Delivery
	seqs    []int64
	tasks   []sqldb.ID
	request []sqldb.ID
}

func newDeliveries(rows []Delivery) (*deliveries, error) {
	b := &deliveries{
		rows:    rows,
		seqs:    make([]int64, len(rows)),
		tasks:   make([]sqldb.ID, len(rows)),
		request: make([]sqldb.ID, len(rows)),
	}
	for i, r := range rows {
		var err error
		b.seqs[i] = r.Seq
		if b.tasks[i], err = sqldb.ParseID(r.TaskID); err != nil {
			return nil, fmt.Errorf("outbox: deliver row %d: task id: %w", r.Seq, err)
		}
		if b.request[i], err = sqldb.ParseID(r.RequestID); err != nil {
			return nil, fmt.Errorf("outbox: deliver row %d: request id: %w", r.Seq, err)
		}
	}
	return b, nil
}

// query returns the statement for rows whose state compares so.
func (b *deliveries) query(d *sqldb.Dialect, state string) string {
	each := "CASE seq" + strings.Repeat(" WHEN ? THEN ?", len(b.rows)) + " END"
	return fmt.Sprintf(deliverRows, d.Clock, each, each, each, each, each, sqldb.Placeholders(len(b.rows)), state)
}

func (b *deliveries) args() []any {
	args := make([]any, 0, 6+11*len(b.rows))
	args = append(args, []byte(OutcomeAccepted), empty, empty, empty)
	for _, column := range []func(i int) any{
		func(i int) any { return b.rows[i].Status },
		func(i int) any { return b.request[i][:] },
		func(i int) any { return b.tasks[i][:] },
		func(i int) any { return flag(b.rows[i].Deduplicated) },
		func(i int) any { return nullMicros(b.rows[i].AcceptedAt) },
	} {
		for i, seq := range b.seqs {
			args = append(args, seq, column(i))
		}
	}
	return seqArgs(args, b.seqs)
}

// countHeld returns how many rows are delivered as the task that the batch names.
func (b *deliveries) countHeld(ctx context.Context, q rowsQuerier) (int, error) {
	want := make(map[int64]sqldb.ID, len(b.seqs))
	for i, seq := range b.seqs {
		want[seq] = b.tasks[i]
	}
	held, err := readAll(ctx, q, func(rows *sql.Rows) (bool, error) {
		var seq int64
		var task sqldb.ID
		err := rows.Scan(&seq, &task)
		return want[seq] == task, err
	}, readDelivered+sqldb.Placeholders(len(b.seqs)), seqArgs(nil, b.seqs)...)
	n := 0
	for _, same := range held {
		if same {
			n++
		}
	}
	return n, err
}

package outbox

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// deliveries is a batch of accepted answers in ascending order of seq, in the form of
// its statement.
type deliveries struct {
	rows []delivery
	seqs []int64
}

type delivery struct {
	Delivery
	task, request sqldb.ID
}

func newDeliveries(rows []Delivery) (*deliveries, error) {
	b := &deliveries{rows: make([]delivery, len(rows)), seqs: make([]int64, len(rows))}
	for i, r := range rows {
		var err error
		b.rows[i].Delivery = r
		if b.rows[i].task, err = sqldb.ParseID(r.TaskID); err != nil {
			return nil, fmt.Errorf("outbox: deliver row %d: task id: %w", r.Seq, err)
		}
		if b.rows[i].request, err = sqldb.ParseID(r.RequestID); err != nil {
			return nil, fmt.Errorf("outbox: deliver row %d: request id: %w", r.Seq, err)
		}
	}
	slices.SortFunc(b.rows, func(x, y delivery) int { return cmp.Compare(x.Seq, y.Seq) })
	for i, r := range b.rows {
		b.seqs[i] = r.Seq
	}
	return b, nil
}

// set returns the rest of the UPDATE for rows whose state compares so, and its
// arguments.
//
// Each row has a task of its own; the rest of its answer it shares with the rows of
// its HTTP batch.
func (b *deliveries) set(d *sqldb.Dialect, state string) (string, []any) {
	w := choice{args: make([]any, 0, 16+5*len(b.rows))}
	w.args = append(w.args, int64(OutcomeAccepted), empty, empty, empty)
	status := shared(&w, b.rows, func(r *delivery) int { return r.Status }, func(v int) any { return v })
	request := shared(&w, b.rows, func(r *delivery) sqldb.ID { return r.request }, func(v sqldb.ID) any { return v[:] })
	task := w.perRow(b.rows, func(r *delivery) any { return r.task[:] })
	deduplicated := shared(&w, b.rows, func(r *delivery) bool { return r.Deduplicated }, func(v bool) any { return flag(v) })
	accepted := shared(&w, b.rows, func(r *delivery) int64 { return zeroMicros(r.AcceptedAt) }, func(v int64) any { return v })
	return fmt.Sprintf(deliverRows, d.Clock, status, request, task, deduplicated, accepted, sqldb.Placeholders(len(b.seqs)), state),
		seqArgs(w.args, b.seqs)
}

// A choice builds expressions that depend on seq.
type choice struct{ args []any }

// shared returns an expression for a column in which many rows have the same value:
// one list of rows for each value but the most frequent.
func shared[V comparable](w *choice, rows []delivery, value func(*delivery) V, bind func(V) any) string {
	seqs := map[V][]int64{}
	var most V
	for i := range rows {
		v := value(&rows[i])
		seqs[v] = append(seqs[v], rows[i].Seq)
		if len(seqs[v]) > len(seqs[most]) {
			most = v
		}
	}
	if len(seqs) == 1 {
		w.args = append(w.args, bind(most))
		return "?"
	}
	if len(seqs) > manyValues {
		return w.perRow(rows, func(r *delivery) any { return bind(value(r)) })
	}
	var text strings.Builder
	text.WriteString("CASE")
	for v, list := range seqs {
		if v == most {
			continue
		}
		text.WriteString(" WHEN seq IN " + sqldb.Placeholders(len(list)) + " THEN ?")
		w.args = append(seqArgs(w.args, list), bind(v))
	}
	w.args = append(w.args, bind(most))
	return text.String() + " ELSE ? END"
}

// manyValues is how many lists of rows an engine may search one after the other.
const manyValues = 16

// perRow returns the expression for a column in which each row has a value of its own.
// An engine tries the arms of a CASE in turn, so two levels of about the square root
// keep a batch of 1000 from comparing half a million times.
func (w *choice) perRow(rows []delivery, bind func(*delivery) any) string {
	arms := max(1, int(math.Sqrt(float64(len(rows)))))
	var text strings.Builder
	text.WriteString("CASE")
	for chunk := range slices.Chunk(rows, arms) {
		text.WriteString(" WHEN seq <= ? THEN CASE seq")
		w.args = append(w.args, chunk[len(chunk)-1].Seq)
		for i := range chunk {
			text.WriteString(" WHEN ? THEN ?")
			w.args = append(w.args, chunk[i].Seq, bind(&chunk[i]))
		}
		text.WriteString(" END")
	}
	return text.String() + " END"
}

// countHeld returns how many rows are delivered as the task that the batch names.
func (b *deliveries) countHeld(ctx context.Context, q rowsQuerier, query string) (int, error) {
	want := make(map[int64]sqldb.ID, len(b.rows))
	for _, r := range b.rows {
		want[r.Seq] = r.task
	}
	held, err := readAll(ctx, q, func(rows *sql.Rows) (bool, error) {
		var seq int64
		var task []byte
		err := rows.Scan(&seq, &task)
		id := want[seq]
		return bytes.Equal(task, id[:]), err
	}, query+sqldb.Placeholders(len(b.seqs)), seqArgs(nil, b.seqs)...)
	n := 0
	for _, same := range held {
		if same {
			n++
		}
	}
	return n, err
}

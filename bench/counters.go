package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Counters are what a MySQL server has done since it began, all databases together.
type counters map[string]int64

var counted = []string{
	"Questions", "Com_commit", "Handler_commit", "Innodb_os_log_fsyncs", "Innodb_os_log_written",
	"Innodb_rows_inserted", "Innodb_rows_updated", "Innodb_rows_read", "Bytes_received", "Bytes_sent",
}

func (w *workshop) counters(ctx context.Context) (counters, error) {
	rows, err := w.QueryContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name IN ('"+strings.Join(counted, "','")+"')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	c := make(counters)
	for rows.Next() {
		var (
			name string
			n    int64
		)
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		c[name] = n
	}
	return c, rows.Err()
}

// A cost is what the database did for each task.
type cost map[string]float64

func (c counters) since(before counters, tasks int) cost {
	each := make(cost)
	for name := range c {
		each[name] = float64(c[name]-before[name]) / float64(tasks)
	}
	return each
}

// printCosts shows the medians of runs.
func printCosts(name string, runs []cost) {
	if len(runs) == 0 {
		return
	}
	m := func(counter string) float64 {
		var values []float64
		for _, c := range runs {
			values = append(values, c[counter])
		}
		return quantile(values, 0.5)
	}
	fmt.Printf("%-28s per task: %.3f commits, %.3f log flushes, %.3f statements, rows %.1f inserted %.1f updated %.1f read, bytes %.0f to and %.0f from the server, %.0f into the redo log\n",
		name, m("Com_commit"), m("Innodb_os_log_fsyncs"), m("Questions"), m("Innodb_rows_inserted"), m("Innodb_rows_updated"), m("Innodb_rows_read"),
		m("Bytes_received"), m("Bytes_sent"), m("Innodb_os_log_written"))
}

// settle waits until the server has purged what earlier runs left behind, so that a run
// does not pay for the one before it.
func (w *workshop) settle(ctx context.Context) {
	for range 50 {
		var length int64
		err := w.QueryRowContext(ctx, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'").Scan(&length)
		if err != nil || length < 500 {
			return // MariaDB may not tell
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A statementLog tells on what statements the time of a database went.
type statementLog struct{ w *workshop }

// open forgets what was before.
func (s statementLog) open(ctx context.Context) error {
	_, err := s.w.ExecContext(ctx, "TRUNCATE TABLE performance_schema.events_statements_summary_by_digest")
	return err
}

// print shows the statements that took longest together.
func (s statementLog) print(ctx context.Context, name string, tasks int) error {
	rows, err := s.w.QueryContext(ctx, `
SELECT COALESCE(DIGEST_TEXT, ''), COUNT_STAR, SUM_TIMER_WAIT / 1000000, SUM_LOCK_TIME / 1000000, SUM_ROWS_AFFECTED, SUM_ROWS_EXAMINED
FROM performance_schema.events_statements_summary_by_digest
WHERE SCHEMA_NAME = DATABASE()
ORDER BY SUM_TIMER_WAIT DESC
LIMIT 24`)
	if err != nil {
		return err
	}
	defer rows.Close()
	fmt.Printf("%s: statements by time in the database server, for each of %d tasks\n", name, tasks)
	n := float64(tasks)
	for rows.Next() {
		var (
			text                      string
			count, affected, examined int64
			micros, lock              float64
		)
		if err := rows.Scan(&text, &count, &micros, &lock, &affected, &examined); err != nil {
			return err
		}
		text = strings.ReplaceAll(text, "`", "")
		fmt.Printf("  %7.1f µs  %6.1f ms each  %.4f statements  %.2f rows changed  %.2f read  %.110s\n",
			micros/n, micros/1000/float64(count), float64(count)/n, float64(affected)/n, float64(examined)/n, text)
	}
	return rows.Err()
}

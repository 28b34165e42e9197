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
	"Questions", "Com_commit", "Com_update", "Handler_commit", "Innodb_os_log_fsyncs", "Innodb_os_log_written",
	"Innodb_rows_inserted", "Innodb_rows_updated", "Innodb_rows_read", "Bytes_received", "Bytes_sent",
}

func (w *workshop) counters(ctx context.Context) (counters, error) {
	rows, err := w.QueryContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name IN ('"+strings.Join(counted, "','")+"')")
	if err != nil {
		return nil, err
	}
	c := make(counters)
	for rows.Next() {
		var (
			name string
			n    int64
		)
		if err := rows.Scan(&name, &n); err != nil {
			rows.Close()
			return nil, err
		}
		c[name] = n
	}
	w.addCPU(ctx, c)
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
	fmt.Printf("%-28s processor time per task: %.0f µs in this process, %.0f µs in worker processes, %.0f µs in the database\n", "", m(cpuSelf), m(cpuChildren), m(cpuDatabase))
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

// open forgets what was before. Since MySQL 8.0.28 processor time can be counted.
func (s statementLog) open(ctx context.Context) error {
	for _, q := range []string{
		"UPDATE performance_schema.setup_consumers SET enabled = 'YES' WHERE name = 'events_statements_cpu'",
		"TRUNCATE TABLE performance_schema.events_statements_summary_by_digest",
	} {
		if _, err := s.w.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// print shows the statements that took most processor time together. Long lists of values
// are cut off in the server's texts: those that begin alike are shown as one.
func (s statementLog) print(ctx context.Context, name string, tasks int) error {
	rows, err := s.w.QueryContext(ctx, `
SELECT LEFT(COALESCE(digest_text, ''), 400) AS text, SUM(count_star), SUM(sum_timer_wait) / 1000000, SUM(sum_cpu_time) / 1000000,
       SUM(sum_rows_affected), SUM(sum_rows_examined)
FROM performance_schema.events_statements_summary_by_digest
WHERE schema_name = DATABASE()
GROUP BY text
ORDER BY 4 DESC
LIMIT 24`)
	if err != nil {
		return err
	}
	defer rows.Close()
	fmt.Printf("%s: statements by processor time, for each of %d tasks\n", name, tasks)
	n := float64(tasks)
	for rows.Next() {
		var (
			text                               string
			count, affected, examined, at, cpu float64
		)
		if err := rows.Scan(&text, &count, &at, &cpu, &affected, &examined); err != nil {
			return err
		}
		fmt.Printf("  %6.1f µs (in all %6.1f µs)  %.4f statements  %.2f rows changed  %.2f read  %s\n",
			cpu/n, at/n, count/n, affected/n, examined/n, shortText(text))
	}
	return rows.Err()
}

// shortText is how a statement begins.
func shortText(text string) string {
	const most = 130
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "\x60", "")), " ")
	return text[:min(len(text), most)]
}

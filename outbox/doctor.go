package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Grade says how well a check went.
type Grade string

// Grades of a check.
const (
	Fine    Grade = "ok"
	Warning Grade = "warn" // works, but not as well or as safely as it could
	Bad     Grade = "fail" // a promise of the outbox does not hold, or the relay cannot work
)

// A Check is one thing that Doctor looked at.
type Check struct {
	Name   string
	Grade  Grade
	Detail string
}

// A doctor gathers checks.
type doctor struct {
	*Store
	ctx    context.Context
	checks []Check
}

func (d *doctor) note(name string, g Grade, format string, args ...any) {
	d.checks = append(d.checks, Check{Name: name, Grade: g, Detail: fmt.Sprintf(format, args...)})
}

// Doctor looks at what the promises of an outbox rest on: engine and version, durability,
// isolation, packet size, clock, indexes, rights, the plan of the due query, and the age
// of the oldest due row. It changes nothing. The error is that of a database that cannot
// be asked.
func (s *Store) Doctor(ctx context.Context) ([]Check, error) {
	d := &doctor{Store: s, ctx: ctx}
	steps := []func() error{d.settingsMySQL, d.clock, d.indexes, d.rights, d.plan, d.age}
	if s.dialect.Name != MySQL.Name {
		steps[0] = d.settingsSQLite
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, failed(s.dialect, "examine the database", err)
		}
	}
	return d.checks, nil
}

var versionNumber = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`)

// checkVersion holds a version against the lowest one that is supported.
func (d *doctor) checkVersion(engine, version string, least [3]int) {
	m := versionNumber.FindStringSubmatch(version)
	if m == nil {
		d.note("version", Warning, "%s %s: cannot be compared with %d.%d.%d", engine, version, least[0], least[1], least[2])
		return
	}
	grade := Fine
	for i, want := range least {
		n, _ := strconv.Atoi(m[i+1]) // digits
		if n != want {
			if n < want {
				grade = Bad
			}
			break
		}
	}
	d.note("version", grade, "%s %s, at least %d.%d.%d is needed", engine, m[0], least[0], least[1], least[2])
}

const mysqlVariables = `SHOW VARIABLES WHERE Variable_name IN
  ('version', 'transaction_isolation', 'tx_isolation', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin',
   'innodb_doublewrite', 'max_allowed_packet', 'read_only', 'super_read_only', 'innodb_read_only')`

func (d *doctor) settingsMySQL() error {
	vars := map[string]string{}
	_, err := readAll(d.ctx, d.db.Write(), func(rows *sql.Rows) (none struct{}, err error) {
		var name, value string
		err = rows.Scan(&name, &value)
		vars[strings.ToLower(name)] = value
		return none, err
	}, mysqlVariables)
	if err != nil {
		return err
	}
	if version := vars["version"]; strings.Contains(version, "MariaDB") {
		d.checkVersion("MariaDB", strings.TrimPrefix(version, "5.5.5-"), [3]int{10, 6, 0})
	} else {
		d.checkVersion("MySQL", version, [3]int{8, 0, 16})
	}
	d.isolation(vars["transaction_isolation"] + vars["tx_isolation"])
	d.durability(vars)
	d.packet(vars["max_allowed_packet"])
	if vars["super_read_only"] == "ON" || vars["innodb_read_only"] == "ON" || vars["read_only"] == "ON" {
		d.note("writable", Bad, "the server is read-only: the relay can neither lead nor settle")
	} else {
		d.note("writable", Fine, "the server takes writes")
	}
	return nil
}

func (d *doctor) isolation(level string) {
	if strings.HasPrefix(level, "SERIALIZABLE") {
		d.note("isolation", Warning, "SERIALIZABLE: a repeated enqueue locks the first row until its transaction ends")
		return
	}
	d.note("isolation", Fine, "%s, any level is right", level)
}

func (d *doctor) durability(vars map[string]string) {
	switch {
	case vars["innodb_flush_log_at_trx_commit"] != "1":
		d.note("durability", Bad, "innodb_flush_log_at_trx_commit is %s, must be 1: a crash of the machine can lose committed rows", vars["innodb_flush_log_at_trx_commit"])
	case vars["innodb_doublewrite"] == "OFF" || vars["innodb_doublewrite"] == "0":
		d.note("durability", Warning, "innodb_doublewrite is OFF: a crash of the machine can leave torn pages")
	case vars["log_bin"] == "ON" && vars["sync_binlog"] != "1":
		d.note("durability", Warning, "sync_binlog is %s: after a crash a replica may lack committed rows", vars["sync_binlog"])
	default:
		d.note("durability", Fine, "a commit is on disk before it is answered")
	}
}

func (d *doctor) packet(text string) {
	const comfortable = 4 << 20
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		d.note("packet size", Warning, "max_allowed_packet %q is no number", text)
	case n < orbit.MaxBodyBytes+64<<10:
		d.note("packet size", Bad, "max_allowed_packet is %d: a request may have %d bytes", n, orbit.MaxBodyBytes)
	case n < comfortable:
		d.note("packet size", Warning, "max_allowed_packet is %d: a DSN with interpolateParams may need %d", n, comfortable)
	default:
		d.note("packet size", Fine, "max_allowed_packet is %d", n)
	}
}

func (d *doctor) settingsSQLite() error {
	var version, journal string
	var synchronous int
	for query, into := range map[string]any{
		"SELECT sqlite_version()": &version, "PRAGMA journal_mode": &journal, "PRAGMA synchronous": &synchronous,
	} {
		if err := d.db.Write().QueryRowContext(d.ctx, query).Scan(into); err != nil {
			return err
		}
	}
	d.checkVersion("SQLite", version, [3]int{3, 42, 0})
	if synchronous < 2 {
		d.note("durability", Bad, "synchronous is %d, must be FULL (2): a crash of the machine can lose committed rows", synchronous)
	} else {
		d.note("durability", Fine, "a commit is on disk before it is answered")
	}
	if journal != "wal" {
		d.note("journal", Warning, "journal_mode is %s: readers and the writer wait for each other", journal)
	} else {
		d.note("journal", Fine, "journal_mode is wal")
	}
	return nil
}

// clock holds the clock of the database against the one of this machine, give or take
// the time it took to ask.
func (d *doctor) clock() error {
	before := time.Now()
	now, err := d.db.Now(d.ctx)
	if err != nil {
		return err
	}
	after := time.Now()
	difference := max(before.Sub(sqldb.Time(now)), sqldb.Time(now).Sub(after), 0).Round(time.Millisecond)
	switch {
	case difference >= clockTolerance:
		d.note("clock", Bad, "differs by %v from this machine's: latest times to send and ages are wrong", difference)
	case difference >= 5*time.Second:
		d.note("clock", Warning, "differs by %v from this machine's", difference)
	default:
		d.note("clock", Fine, "differs by %v from this machine's", difference)
	}
	return nil
}

const (
	mysqlIndexes = `
SELECT index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index)
FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = 'orbit_outbox'
GROUP BY index_name`

	sqliteIndexes = `
SELECT l.name, GROUP_CONCAT(i.name)
FROM pragma_index_list('orbit_outbox') l, pragma_index_info(l.name) i
GROUP BY l.name`
)

func (d *doctor) indexes() error {
	query := mysqlIndexes
	if d.dialect.Name != MySQL.Name {
		query = sqliteIndexes
	}
	found := map[string]string{}
	_, err := readAll(d.ctx, d.db.Read(), func(rows *sql.Rows) (none struct{}, err error) {
		var name, columns string
		err = rows.Scan(&name, &columns)
		found[name] = columns
		return none, err
	}, query)
	if err != nil {
		return err
	}
	want := map[string]string{"orbit_outbox_due": "state,shard,lane,due_at,seq,size", "orbit_outbox_identity": "identity"}
	for name, columns := range want {
		if found[name] != columns {
			d.note("indexes", Bad, "%s is on (%s), must be on (%s)", name, found[name], columns)
			return nil
		}
	}
	d.note("indexes", Fine, "due rows and identities have theirs")
	return nil
}

// rights runs statements of each kind that the relay needs, on rows that do not exist,
// and rolls them back.
func (d *doctor) rights() error {
	statements := []string{
		"UPDATE orbit_outbox SET attempts = attempts WHERE seq = -1",
		"DELETE FROM orbit_outbox WHERE seq = -1",
		"UPDATE orbit_outbox_lease SET epoch = epoch WHERE shard = -1",
		"INSERT INTO orbit_outbox_lease (shard, leader, holder, epoch, since_at, expires_at) SELECT 0, '', '', 1, 0, 0 FROM orbit_outbox WHERE seq = -1",
		"DELETE FROM orbit_outbox_hold WHERE target = '-'",
		"INSERT INTO orbit_outbox_hold (target, queue_id, operator, reason, created_at) SELECT '', '', '', '', 0 FROM orbit_outbox WHERE seq = -1",
		"INSERT INTO orbit_outbox_journal (row_seq, action, operator, reason, state_before, state_after, created_at) SELECT seq, '', '', '', 0, 0, 0 FROM orbit_outbox WHERE seq = -1",
		"DELETE FROM orbit_outbox_answer WHERE row_seq = -1",
		"UPDATE orbit_outbox_target SET accepted = accepted WHERE shard = -1",
		"UPDATE orbit_outbox_relay SET expires_at = expires_at WHERE expires_at < 0",
		"DELETE FROM orbit_outbox_relay WHERE expires_at < 0",
		"INSERT INTO orbit_outbox_relay (holder, name, expires_at) SELECT '', '', 0 FROM orbit_outbox WHERE seq = -1",
	}
	for _, statement := range statements {
		err := d.tx(d.ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(d.ctx, statement); err != nil {
				return err
			}
			return errDryRun
		})
		if !errors.Is(err, errDryRun) {
			if d.ctx.Err() != nil {
				return err
			}
			d.note("rights", Bad, "a statement that the relay or its operators need is refused: %v", err)
			return nil
		}
	}
	d.note("rights", Fine, "every statement is allowed")
	return nil
}

// plan asks the engine how it would read due rows.
func (d *doctor) plan() error {
	prefix := "EXPLAIN "
	if d.dialect.Name != MySQL.Name {
		prefix = "EXPLAIN QUERY PLAN "
	}
	rows, err := d.db.Read().QueryContext(d.ctx, prefix+strings.TrimSpace(readDue+d.dialect.Clock+readDueAfter), 0, 1, 0, 0, 0, 0, 100)
	if err != nil {
		return err
	}
	defer rows.Close()
	text, err := planText(rows)
	if err != nil {
		return err
	}
	// An engine that knows without reading that nothing matches has no plan.
	if strings.Contains(text, "no matching row") || strings.Contains(text, "orbit_outbox_due") && !strings.Contains(text, "filesort") && !strings.Contains(text, "TEMP B-TREE") && !strings.Contains(text, "Sort:") {
		d.note("plan", Fine, "due rows are read in the order of their index")
		return nil
	}
	d.note("plan", Bad, "due rows are not read by orbit_outbox_due: run ANALYZE TABLE orbit_outbox (plan: %s)", text)
	return nil
}

// planText returns what a plan says, but for the list of indexes that were not chosen.
func planText(rows *sql.Rows) (string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var words []string
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
			if v.Valid && columns[i] != "possible_keys" {
				words = append(words, v.String)
			}
		}
	}
	return strings.Join(words, " "), rows.Err()
}

func (d *doctor) age() error {
	st, err := d.status(d.ctx)
	if err != nil {
		return err
	}
	if len(st.Findings) > 0 {
		grade := Warning
		if st.Findings[0].Trouble != Held && st.Findings[0].Trouble != Poison {
			grade = Bad
		}
		for _, f := range st.Findings {
			d.note("delivery", grade, "%v", f)
		}
		return nil
	}
	age := time.Duration(0)
	if !st.OldestDue.IsZero() {
		age = st.At.Sub(st.OldestDue).Round(time.Millisecond)
	}
	d.note("delivery", Fine, "the oldest due row waits for %v", age)
	return nil
}

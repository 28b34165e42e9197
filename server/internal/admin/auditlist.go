package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// An AuditFilter says which rows of the audit are wanted. Target and Place are looked up by
// an index each, and Place with its bounds of time; everything else is compared row by row.
type AuditFilter struct {
	Place   Place    // a namespace; zero means all, and what belongs to none
	Target  sqldb.ID // what was acted on; zero means anything
	Request sqldb.ID // request id of the HTTP interface; zero means any
	Action  string   // such as "queue.update"; empty means any
	Actor   string   // who, as the audit has it; empty means anybody
	From    *int64   // microseconds UTC, inclusive
	Before  *int64   // exclusive
	After   int64    // number of the last row of the page before; 0 means from the newest on
}

// An AuditEntry is one row of the audit.
type AuditEntry struct {
	Seq          int64     `json:"seq,string"`
	At           time.Time `json:"at"`
	Action       string    `json:"action"`
	Actor        string    `json:"actor,omitempty"`         // absent: the credential itself
	CredentialID string    `json:"credential_id,omitempty"` // that asked for it
	NamespaceID  string    `json:"namespace_id,omitempty"`
	TargetID     string    `json:"target_id,omitempty"`
	QueueID      string    `json:"queue_id,omitempty"`
	Handler      string    `json:"handler,omitempty"` // with its version
	RequestID    string    `json:"request_id,omitempty"`
	Note         string    `json:"note,omitempty"`
}

// auditWindow is how many rows a page looks at for those that fit.
const auditWindow = 10_000

const (
	selectAudit = `
SELECT seq, created_at, action, actor, credential_id, namespace_id, target_id, queue_id, handler, handler_version, request_id, note
FROM audit%s
WHERE `
	auditBySeq = `seq < ?
ORDER BY seq DESC
LIMIT ?`
	auditByTarget = `target_id = ?
  AND seq < ?
ORDER BY seq DESC
LIMIT ?`
	auditByNamespace = `namespace_id = ?
  AND created_at >= ?
  AND %s
ORDER BY created_at DESC, seq DESC
LIMIT ?`
)

// Audit lists at most limit rows of the audit, the newest first; next is the number after
// which more may lie, or 0. One page looks at 10,000 rows at most, so it may be short, even
// empty, and still have a next one.
func (o *Operator) Audit(ctx context.Context, f AuditFilter, limit int) (entries []AuditEntry, next int64, err error) {
	if err := f.validate(); err != nil {
		return nil, 0, err
	}
	p := auditPage{filter: f, limit: limit, entries: []AuditEntry{}}
	if f.Place != (Place{}) {
		found, err := o.namespace(ctx, f.Place)
		if err != nil {
			return nil, 0, err
		}
		p.namespace = found.namespace
	}
	query, args, err := o.auditQuery(ctx, f, p.namespace)
	if err != nil {
		return nil, 0, err
	}
	rows, err := o.db.Read().QueryContext(ctx, query, append(args, auditWindow+1)...)
	if err == nil {
		err = p.read(rows)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list audit: %w", err)
	}
	return p.entries, p.next, nil
}

func (f *AuditFilter) validate() error {
	if f.From != nil && f.Before != nil && *f.From >= *f.Before {
		return &InvalidError{"from", "must be earlier than before"}
	}
	return nil
}

// auditQuery chooses the way to the rows: the target is the narrowest.
func (o *Operator) auditQuery(ctx context.Context, f AuditFilter, namespace sqldb.ID) (query string, args []any, err error) {
	d := o.db.Dialect()
	below := int64(math.MaxInt64)
	if f.After > 0 {
		below = f.After
	}
	switch {
	case !f.Target.IsZero():
		return fmt.Sprintf(selectAudit, d.ByIndex("audit_target")) + auditByTarget, []any{f.Target, below}, nil
	case namespace.IsZero():
		return fmt.Sprintf(selectAudit, "") + auditBySeq, []any{below}, nil
	}
	at, err := o.auditStart(ctx, f)
	if err != nil {
		return "", nil, err
	}
	query, args = auditOfNamespace(d, namespace, or(f.From, math.MinInt64), at, below)
	return query, args, nil
}

// auditStart is the time from which a page of a namespace goes on.
func (o *Operator) auditStart(ctx context.Context, f AuditFilter) (at int64, err error) {
	if f.After == 0 {
		return or(f.Before, math.MaxInt64) - 1, nil // with every number
	}
	err = o.db.Read().QueryRowContext(ctx, "SELECT created_at FROM audit WHERE seq = ?", f.After).Scan(&at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("row %d of the audit %w", f.After, ErrMissing)
	case err != nil:
		return 0, fmt.Errorf("look up audit row: %w", err)
	}
	return at, nil
}

// auditOfNamespace reads one range of audit_namespace: SQLite and MySQL want the place after
// which it begins in different words.
func auditOfNamespace(d *sqldb.Dialect, namespace sqldb.ID, from, at, below int64) (query string, args []any) {
	after, args := "(created_at < ? OR (created_at = ? AND seq < ?))", []any{namespace, from, at, at, below}
	if d == sqldb.SQLite {
		after, args = "(created_at, seq) < (?, ?)", []any{namespace, from, at, below}
	}
	return fmt.Sprintf(selectAudit, d.ByIndex("audit_namespace")) + fmt.Sprintf(auditByNamespace, after), args
}

func or(at *int64, otherwise int64) int64 {
	if at == nil {
		return otherwise
	}
	return *at
}

// An auditPage is a page while it is read.
type auditPage struct {
	filter    AuditFilter
	namespace sqldb.ID // that the filter names
	limit     int
	entries   []AuditEntry
	looked    int
	last      int64 // number of the last row looked at
	next      int64
	finished  bool
}

func (p *auditPage) read(rows *sql.Rows) error {
	defer rows.Close()
	for !p.finished && rows.Next() {
		if err := p.take(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// maxTransaction is longer than any transaction takes. A row has the time at which its
// transaction began, so that later rows may be older by that much, and no more.
const maxTransaction = int64(time.Hour / time.Microsecond)

// take looks at the next row. One row more than a page has tells that there is a next page.
func (p *auditPage) take(scan func(...any) error) error {
	e, r, err := scanAudit(scan)
	if err != nil {
		return err
	}
	if p.filter.From != nil && r.at < *p.filter.From-maxTransaction {
		p.finished = true
		return nil
	}
	fits := p.fits(&e, r)
	if p.looked == auditWindow || fits && len(p.entries) == p.limit {
		p.next, p.finished = p.last, true
		return nil
	}
	p.looked++
	p.last = e.Seq
	if fits {
		p.entries = append(p.entries, e)
	}
	return nil
}

// An auditRow is what a filter compares in its stored form.
type auditRow struct {
	at                 int64
	namespace, request sqldb.ID
}

func scanAudit(scan func(...any) error) (e AuditEntry, r auditRow, err error) {
	var credential, target, queue sqldb.ID
	var version string
	err = scan(&e.Seq, &r.at, &e.Action, &e.Actor, &credential, &r.namespace, &target, &queue, &e.Handler, &version, &r.request, &e.Note)
	if version != "" {
		e.Handler += " " + version
	}
	e.At, e.CredentialID, e.NamespaceID = sqldb.Time(r.at), hexOf(credential), hexOf(r.namespace)
	e.TargetID, e.QueueID, e.RequestID = hexOf(target), hexOf(queue), hexOf(r.request)
	return e, r, err
}

func (p *auditPage) fits(e *AuditEntry, r auditRow) bool {
	f := &p.filter
	switch {
	case f.Action != "" && e.Action != f.Action,
		f.Actor != "" && e.Actor != f.Actor,
		!p.namespace.IsZero() && r.namespace != p.namespace,
		!f.Request.IsZero() && r.request != f.Request:
		return false
	}
	return (f.From == nil || r.at >= *f.From) && (f.Before == nil || r.at < *f.Before)
}

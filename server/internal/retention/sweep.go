package retention

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// A sweep is one run.
type sweep struct {
	*Retention
	preview bool
	limits  limits // at its begin
	report  Report
	audit   auditLine
	errs    []error // of what the database refused to delete
}

// Sweep deletes everything that may go, and returns what went; with an error, what went
// before it.
func (r *Retention) Sweep(ctx context.Context) (Report, error) {
	s, err := r.begin(ctx, false)
	if err != nil {
		return Report{}, err
	}
	err = errors.Join(s.walk(ctx), errors.Join(s.errs...))
	if c := s.report.Counts; c.rows() > 0 {
		r.cfg.Log.InfoContext(ctx, "retention deleted what is old", "tasks", c.Tasks, "attempts", c.Attempts,
			"evidence", c.Evidence, "reviews", c.Reviews, "events", c.Events, "records", c.Records, "cutoff", s.report.Cutoff)
	}
	if err == nil {
		r.cfg.Ran(s.report)
	}
	return s.report, err
}

// Preview counts what Sweep would delete, and changes nothing.
func (r *Retention) Preview(ctx context.Context) (Report, error) {
	s, err := r.begin(ctx, true)
	if err != nil {
		return Report{}, err
	}
	return s.report, s.walk(ctx)
}

func (r *Retention) begin(ctx context.Context, preview bool) (*sweep, error) {
	now, err := r.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	l := limitsAt(now, r.cfg.Age)
	report := Report{At: sqldb.Time(now), Cutoff: sqldb.Time(l.cutoff)}
	return &sweep{Retention: r, preview: preview, limits: l, report: report, audit: auditLine{actor: r.cfg.Actor, cutoff: report.Cutoff}}, nil
}

// walk goes once over all records whose deadline has passed. What it passes over is looked
// at again by the next run.
func (s *sweep) walk(ctx context.Context) error {
	from := place{}
	for {
		began := time.Now()
		page, err := readPage(ctx, s.db, from, s.limits.until())
		if err != nil || len(page) == 0 {
			return err
		}
		if !breathe(ctx, began) {
			return ctx.Err()
		}
		if err := s.handle(ctx, page); err != nil {
			return err
		}
		if len(page) < pageSize {
			return nil
		}
		from = page[len(page)-1].place
	}
}

// breathe rests as long as was worked since began: a run takes half of one connection at
// most, and leaves SQLite's only writer to others.
func breathe(ctx context.Context, began time.Time) bool {
	const least, most = time.Millisecond, time.Second
	return rest(ctx, min(max(time.Since(began), least), most))
}

// handle deals with what may go of one page.
func (s *sweep) handle(ctx context.Context, page []record) error {
	var ripe []sqldb.ID
	var loose []idempotency.Identity
	for _, r := range page {
		switch {
		case r.loose():
			loose = append(loose, r.digest)
			s.report.due(s.limits.looseDue(r.retainUntil))
		case r.last && s.limits.ripe(r.end, r.retainUntil):
			ripe = append(ripe, r.task)
			s.report.due(s.limits.due(r.end.completed.Int64, r.retainUntil))
		}
	}
	if err := s.takeLoose(ctx, loose); err != nil {
		return err
	}
	return s.takeTasks(ctx, ripe)
}

func (s *sweep) takeLoose(ctx context.Context, loose []idempotency.Identity) error {
	if s.preview {
		s.report.Counts.Records += int64(len(loose))
		return nil
	}
	for chunk := range slices.Chunk(loose, s.bound.loose) {
		began := time.Now()
		if err := s.purgeLoose(ctx, chunk); err != nil {
			return err
		}
		if !breathe(ctx, began) {
			return ctx.Err()
		}
	}
	return nil
}

func (s *sweep) takeTasks(ctx context.Context, ripe []sqldb.ID) error {
	weights, err := weigh(ctx, s.db.Read(), ripe)
	if err != nil {
		return err
	}
	if s.preview {
		for _, w := range weights {
			s.report.Counts.add(w.counts)
		}
		return nil
	}
	for _, batch := range s.bound.batches(weights) {
		began := time.Now()
		if err := s.apart(ctx, batch); err != nil {
			return err
		}
		if !breathe(ctx, began) {
			return ctx.Err()
		}
	}
	return nil
}

// apart deletes a batch and, if the engine refuses it, its tasks one by one: one that
// cannot be deleted must not keep the others.
func (s *sweep) apart(ctx context.Context, batch []sqldb.ID) error {
	err := s.purgeTasks(ctx, batch)
	if err == nil || !s.refused(err) {
		return err
	}
	if len(batch) == 1 {
		s.errs = append(s.errs, err)
		return nil
	}
	for _, id := range batch {
		if err := s.apart(ctx, []sqldb.ID{id}); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweep) refused(err error) bool {
	d := s.db.Dialect()
	return d.Refused(err) && !d.Transient(err)
}

package outbox

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Status tells how an outbox stands.
type Status struct {
	At            time.Time // the database's time
	Count         map[State]int64
	OldestPending time.Time       // when the first of the pending rows was enqueued; zero without one
	OldestDue     time.Time       // since when the first due row waits to be sent; zero without one
	Leaders       []LeaderOfShard // of every shard that was ever led
	Targets       []TargetReport  // by those who lead now
	Holds         []Hold
	// Findings are what is wrong, the worst first; none means that all is well.
	Findings []Finding
}

// A LeaderOfShard tells who leads a shard.
type LeaderOfShard struct {
	Shard  int
	Leader string
	Epoch  int64
	Left   time.Duration // of the lease; not positive if nobody leads
}

const (
	countStates = `
SELECT state, COUNT(*), MIN(seq)
FROM orbit_outbox
GROUP BY state`

	readOldest = `
SELECT created_at, attempts, outcome_unknown
FROM orbit_outbox
WHERE seq = ?`

	readLeaders = `
SELECT shard, leader, epoch, expires_at - `

	readLeadersFrom = `
FROM orbit_outbox_lease
ORDER BY shard`
)

// Status reads counts, ages and leaders. It reads an index entry for each row of the
// table, so it suits a command and a slow metric, not a loop.
func (s *Store) Status(ctx context.Context) (Status, error) {
	st, err := s.status(ctx)
	if err != nil {
		return Status{}, failed(s.dialect, "read status", err)
	}
	return st, nil
}

const countOpen = `
SELECT state, COUNT(*)
FROM orbit_outbox
WHERE state IN (1, 3, 4, 5)
GROUP BY state`

// Depth reads what a metric of the outbox shows: how many rows are in each state but
// Delivered, which holds are in force, and since when the oldest due row waits that none of
// them keeps back, zero without one. It reads an index entry for each of those rows, and one
// for each lane.
func (s *Store) Depth(ctx context.Context) (st Status, err error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return st, failed(s.dialect, "read depth", err)
	}
	st.At, st.Count = sqldb.Time(now), map[State]int64{Pending: 0, Rejected: 0, Blocked: 0, Discarded: 0}
	_, err = readAll(ctx, s.db.Read(), func(rows *sql.Rows) (none struct{}, err error) {
		var state State
		var n int64
		err = rows.Scan(&state, &n)
		st.Count[state] = n
		return none, err
	}, countOpen)
	if err == nil {
		st.Holds, err = s.Holds(ctx)
	}
	if err == nil {
		d := newDiagnosis(&st, oldestRow{})
		err = s.eachLane(ctx, func(shard int, l Lane) {
			if !d.held(l) {
				d.lane(shard, l)
			}
		})
	}
	if err != nil {
		return st, failed(s.dialect, "read depth", err)
	}
	return st, nil
}

func (s *Store) status(ctx context.Context) (st Status, err error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return st, err
	}
	st.At = sqldb.Time(now)
	oldest, err := s.countStates(ctx, &st)
	if err != nil {
		return st, err
	}
	st.Leaders, err = readAll(ctx, s.db.Read(), func(rows *sql.Rows) (l LeaderOfShard, err error) {
		var name []byte
		var left int64
		err = rows.Scan(&l.Shard, &name, &l.Epoch, &left)
		l.Leader, l.Left = string(name), micros(left)
		return l, err
	}, readLeaders+s.dialect.Clock+readLeadersFrom)
	if err != nil {
		return st, err
	}
	if st.Targets, err = s.targets(ctx, st.Leaders); err != nil {
		return st, err
	}
	if st.Holds, err = s.Holds(ctx); err != nil {
		return st, err
	}
	d := newDiagnosis(&st, oldest)
	err = s.eachLane(ctx, d.lane)
	st.Findings = d.findings()
	return st, err
}

// countStates counts, and returns what is to be known of the oldest pending row.
func (s *Store) countStates(ctx context.Context, st *Status) (oldest oldestRow, err error) {
	type count struct{ state, n, first integer }
	counts, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (c count, err error) {
		return c, rows.Scan(&c.state, &c.n, &c.first)
	}, countStates)
	if err != nil {
		return oldest, err
	}
	st.Count = make(map[State]int64, len(counts))
	for _, c := range counts {
		state := stateOf(c.state)
		st.Count[state] += int64(c.n)
		if state != Pending {
			continue
		}
		var created, attempts, unknown integer
		err := s.db.Read().QueryRowContext(ctx, readOldest, int64(c.first)).Scan(&created, &attempts, &unknown)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return oldest, err
		}
		if err == nil {
			oldest = oldestRow{seq: int64(c.first), attempts: int(attempts), unknown: unknown != 0}
			st.OldestPending = sqldb.Time(int64(created))
		}
	}
	return oldest, nil
}

// eachLane looks at the first row of each lane only.
func (s *Store) eachLane(ctx context.Context, look func(shard int, l Lane)) error {
	shards, err := s.Shards(ctx)
	if err != nil {
		return err
	}
	for _, shard := range shards {
		lanes, err := s.Lanes(ctx, shard)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			look(shard, l)
		}
	}
	return nil
}

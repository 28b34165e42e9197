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

	readCreated = `
SELECT created_at
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

func (s *Store) status(ctx context.Context) (st Status, err error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return st, err
	}
	st.At = sqldb.Time(now)
	if err := s.countStates(ctx, &st); err != nil {
		return st, err
	}
	if st.OldestDue, err = s.oldestDue(ctx, now); err != nil {
		return st, err
	}
	st.Leaders, err = readAll(ctx, s.db.Read(), func(rows *sql.Rows) (l LeaderOfShard, err error) {
		var name []byte
		var left int64
		err = rows.Scan(&l.Shard, &name, &l.Epoch, &left)
		l.Leader, l.Left = string(name), micros(left)
		return l, err
	}, readLeaders+s.dialect.Clock+readLeadersFrom)
	return st, err
}

func (s *Store) countStates(ctx context.Context, st *Status) error {
	type count struct {
		state    State
		n, first int64
	}
	counts, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (c count, err error) {
		return c, rows.Scan(&c.state, &c.n, &c.first)
	}, countStates)
	if err != nil {
		return err
	}
	st.Count = make(map[State]int64, len(counts))
	for _, c := range counts {
		st.Count[c.state] = c.n
		if c.state != Pending {
			continue
		}
		var created int64
		err := s.db.Read().QueryRowContext(ctx, readCreated, c.first).Scan(&created)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err == nil {
			st.OldestPending = sqldb.Time(created)
		}
	}
	return nil
}

// oldestDue looks at the first row of each lane only.
func (s *Store) oldestDue(ctx context.Context, now int64) (oldest time.Time, err error) {
	shards, err := s.Shards(ctx)
	if err != nil {
		return oldest, err
	}
	var wait time.Duration
	for _, shard := range shards {
		lanes, err := s.Lanes(ctx, shard)
		if err != nil {
			return oldest, err
		}
		for _, l := range lanes {
			wait = min(wait, l.Wait)
		}
	}
	if wait < 0 {
		oldest = sqldb.Time(now).Add(wait)
	}
	return oldest, nil
}

package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// An Attendance is the presence of one relay at an outbox, while it runs. It gives no right:
// leases do. It tells the relays how many they are, so that they share the shards.
type Attendance struct {
	name   string
	holder sqldb.ID
}

// NewAttendance returns an attendance of its own for a relay, whose name is for people.
func NewAttendance(name string) Attendance {
	return Attendance{name: name, holder: sqldb.NewID()}
}

// A Share is what one relay may lead of the shards. The shares of all relays that attend add
// up to all shards.
type Share struct {
	Relays int // that attend, the caller included
	Rank   int // of the caller among them, from 0: the oldest first
}

// Of returns how many of so many shards the relay is to lead. The zero Share, that of a relay
// which does not know of others, is all of them.
func (s Share) Of(shards int) int {
	if s.Relays < 1 {
		return shards
	}
	n := shards / s.Relays
	if s.Rank < shards%s.Relays {
		n++
	}
	return n
}

const (
	insertAttendance = `
INSERT INTO orbit_outbox_relay (holder, name, expires_at)
VALUES (?, ?, %s + ?)`

	readAttendances = `
SELECT holder, expires_at - `

	readAttendancesFrom = `
FROM orbit_outbox_relay
ORDER BY holder
LIMIT 10000`

	deleteAttendance = `
DELETE FROM orbit_outbox_relay
WHERE holder IN `
)

// Attend makes a relay present for length, by the database's clock, and returns its share.
// Relays whose time is long over are forgotten.
func (s *Store) Attend(ctx context.Context, a Attendance, length time.Duration) (Share, error) {
	const act = "attend"
	upsert := fmt.Sprintf(insertAttendance, s.dialect.Clock) + s.dialect.OnConflict([]string{"holder"}, "name", "expires_at")
	if _, err := s.db.Write().ExecContext(ctx, upsert, a.holder[:], cut(a.name, MaxLeader), length.Microseconds()); err != nil {
		return Share{}, failed(s.dialect, act, err)
	}
	type attending struct {
		holder sqldb.ID
		left   time.Duration
	}
	all, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (r attending, err error) {
		var left int64
		err = rows.Scan(&r.holder, &left)
		r.left = micros(left)
		return r, err
	}, readAttendances+s.dialect.Clock+readAttendancesFrom)
	if err != nil {
		return Share{}, failed(s.dialect, act, err)
	}
	var share Share
	var gone []any
	for _, r := range all {
		switch {
		case r.holder == a.holder || r.left > 0:
			share.Relays++
			if bytes.Compare(r.holder[:], a.holder[:]) < 0 {
				share.Rank++
			}
		case r.left < -forgetAfter:
			gone = append(gone, slices.Clone(r.holder[:]))
		}
	}
	if share.Relays == 0 {
		return Share{}, fmt.Errorf("outbox: %s: the relay itself is not there", act)
	}
	return share, s.forget(ctx, gone)
}

// forgetAfter is how long a relay that died is remembered.
const forgetAfter = time.Minute

// Leave ends an attendance at once, so that the others need not wait for its end.
func (s *Store) Leave(ctx context.Context, a Attendance) error {
	return s.forget(ctx, []any{a.holder[:]})
}

func (s *Store) forget(ctx context.Context, holders []any) error {
	if len(holders) == 0 {
		return nil
	}
	holders = holders[:min(len(holders), MaxRows)]
	if _, err := s.db.Write().ExecContext(ctx, deleteAttendance+sqldb.Placeholders(len(holders)), holders...); err != nil {
		return failed(s.dialect, "forget relays", err)
	}
	return nil
}

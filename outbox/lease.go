package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// MaxLeader is the longest name of a leader, in bytes.
const MaxLeader = 128

// A Lease is the right to send and settle the rows of a shard. The database's clock
// judges when it ends.
type Lease struct {
	Shard  int
	Leader string
	Epoch  int64 // grows with every change of leader
	// Since is when this lead began, by the database's clock.
	Since time.Time
	// TookOver says that the leader before did not release the shard: rows that were
	// due before Since may have been sent already, whatever they show.
	TookOver bool
	// Deadline is when the lease ends at the latest, by this process's monotonic
	// clock, counted from before the database was asked. A leader sends nothing that
	// may take longer than that.
	Deadline time.Time

	holder sqldb.ID // of this lead alone: a name may be used again by a new process
}

// leaseRow is a lease as the database has it.
type leaseRow struct {
	leader  []byte
	holder  sqldb.ID
	epoch   int64
	since   int64
	expires int64
	now     int64
}

const (
	readLease = `
SELECT leader, holder, epoch, since_at, expires_at, `

	readLeaseFrom = `
FROM orbit_outbox_lease
WHERE shard = ?`

	insertLease = `
INSERT INTO orbit_outbox_lease (shard, leader, holder, epoch, since_at, expires_at)
VALUES (?, ?, ?, 1, %[1]s, %[1]s + ?)`

	takeLease = `
UPDATE orbit_outbox_lease
SET leader = ?, holder = ?, epoch = epoch + 1, since_at = %[1]s, expires_at = %[1]s + ?
WHERE shard = ? AND epoch = ? AND expires_at <= %[1]s`

	renewLease = `
UPDATE orbit_outbox_lease
SET expires_at = %[1]s + ?
WHERE shard = ? AND epoch = ? AND holder = ?`

	// releaseLease ends the epoch too: a settle that is still under way finds nothing.
	releaseLease = `
UPDATE orbit_outbox_lease
SET holder = ?, epoch = epoch + 1, expires_at = 0
WHERE shard = ? AND epoch = ? AND holder = ?`
)

// released is the holder of a lease that was given back.
var released = make([]byte, 16)

// Lead takes the lease of a shard for length. The leader's name is for people: 1-128
// bytes, such as host and process id. If another relay leads, it returns ErrLeaseHeld;
// that costs one read. After any other error the lease may have been taken all the
// same; it then ends by itself.
func (s *Store) Lead(ctx context.Context, shard int, leader string, length time.Duration) (Lease, error) {
	if shard < 0 || shard >= MaxShards {
		return Lease{}, fmt.Errorf("outbox: shard %d, must be 0 to %d", shard, MaxShards-1)
	}
	if len(leader) < 1 || len(leader) > MaxLeader {
		return Lease{}, fmt.Errorf("outbox: leader's name has %d bytes, must have 1 to %d", len(leader), MaxLeader)
	}
	if length < time.Millisecond {
		return Lease{}, fmt.Errorf("outbox: lease of %v, must be at least 1ms", length)
	}
	l, err := s.lead(ctx, shard, leader, length)
	if err != nil && !errors.Is(err, ErrLeaseHeld) {
		return Lease{}, failed(s.dialect, fmt.Sprintf("lead shard %d", shard), err)
	}
	return l, err
}

func (s *Store) lead(ctx context.Context, shard int, leader string, length time.Duration) (Lease, error) {
	before, err := s.readLease(ctx, s.db.Read(), shard)
	missing := errors.Is(err, sql.ErrNoRows)
	if err != nil && !missing {
		return Lease{}, err
	}
	if !missing && before.expires > before.now {
		return Lease{}, before.heldError(shard)
	}
	holder := sqldb.NewID()
	start := time.Now()
	if missing {
		err = s.makeLease(ctx, shard, leader, holder, length)
	} else {
		_, err = s.db.Write().ExecContext(ctx, fmt.Sprintf(takeLease, s.dialect.Clock),
			[]byte(leader), holder[:], length.Microseconds(), shard, before.epoch)
	}
	if err != nil {
		return Lease{}, err
	}
	now, err := s.readLease(ctx, s.db.Write(), shard)
	if err != nil {
		return Lease{}, err
	}
	if now.holder != holder {
		return Lease{}, now.heldError(shard)
	}
	return Lease{
		Shard: shard, Leader: leader, Epoch: now.epoch, Since: sqldb.Time(now.since),
		TookOver: !missing && !before.holder.IsZero(),
		Deadline: start.Add(length), holder: holder,
	}, nil
}

// makeLease makes the row of a shard that was never led. That somebody else was faster
// is seen by reading it.
func (s *Store) makeLease(ctx context.Context, shard int, leader string, holder sqldb.ID, length time.Duration) error {
	_, err := s.db.Write().ExecContext(ctx, fmt.Sprintf(insertLease, s.dialect.Clock),
		shard, []byte(leader), holder[:], length.Microseconds())
	if s.dialect.Duplicate(err) {
		return nil
	}
	return err
}

func (s *Store) readLease(ctx context.Context, q rowQuerier, shard int) (l leaseRow, err error) {
	err = q.QueryRowContext(ctx, readLease+s.dialect.Clock+readLeaseFrom, shard).
		Scan(&l.leader, &l.holder, &l.epoch, &l.since, &l.expires, &l.now)
	return l, err
}

func (l leaseRow) heldError(shard int) error {
	return &LeaseHeldError{Shard: shard, Leader: string(l.leader), Left: micros(l.expires - l.now)}
}

// Renew makes the lease end length from now, also if it had run out and nobody has
// taken it. It returns ErrLeaseLost if another relay leads or the lease was released.
// After any other error the old deadline holds.
func (s *Store) Renew(ctx context.Context, l Lease, length time.Duration) (Lease, error) {
	act := fmt.Sprintf("renew the lease of shard %d", l.Shard)
	start := time.Now()
	_, err := s.db.Write().ExecContext(ctx, fmt.Sprintf(renewLease, s.dialect.Clock),
		length.Microseconds(), l.Shard, l.Epoch, l.holder[:])
	if err != nil {
		return l, failed(s.dialect, act, err)
	}
	// The epoch only grows: if it is still ours, it was when we renewed.
	if err := s.checkLease(ctx, s.db.Write(), l, ""); err != nil {
		return l, err
	}
	l.Deadline = start.Add(length)
	return l, nil
}

// Release gives the shard back at once, so that a standby need not wait. Call it when
// everything that was sent is settled; else let the lease run out, so that the next
// leader knows that it took over (see Lease.TookOver). A lease that is lost already is
// no error.
func (s *Store) Release(ctx context.Context, l Lease) error {
	_, err := s.db.Write().ExecContext(ctx, releaseLease, released, l.Shard, l.Epoch, l.holder[:])
	if err != nil {
		return failed(s.dialect, fmt.Sprintf("release shard %d", l.Shard), err)
	}
	return nil
}

const readEpoch = `
SELECT epoch, holder
FROM orbit_outbox_lease
WHERE shard = ?`

// checkLease returns ErrLeaseLost unless l is in force.
func (s *Store) checkLease(ctx context.Context, q rowQuerier, l Lease, lock string) error {
	var epoch int64
	var holder sqldb.ID
	err := q.QueryRowContext(ctx, readEpoch+lock, l.Shard).Scan(&epoch, &holder)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return failed(s.dialect, "read the lease", err)
	}
	if err != nil || epoch != l.Epoch || holder != l.holder {
		return fmt.Errorf("%w: shard %d, epoch %d", ErrLeaseLost, l.Shard, l.Epoch)
	}
	return nil
}

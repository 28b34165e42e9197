package migrations

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// ErrLockLost reports that the runner's lease ended and another runner may have taken
// over. What the runner did until then is in the books; run it again.
var ErrLockLost = errors.New("migrations: lock lost to another runner")

// A lock is the right to migrate one set, held under a lease.
type lock struct {
	db     *sqldb.DB
	set    Set
	lease  time.Duration
	holder string
	epoch  int64
}

// newHolder names this runner so that people can find it, and no other has its name.
func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%.200s process %d (%s)", host, os.Getpid(), rand.Text()[:8])
}

// maxPoll bounds how long a waiting runner sleeps: the holder may finish early.
const maxPoll = 500 * time.Millisecond

// acquire waits for the lock until ctx ends. It calls waiting once for each holder that
// it waits for.
func acquire(ctx context.Context, db *sqldb.DB, set Set, lease time.Duration, waiting func(holder string)) (*lock, error) {
	l := &lock{db: db, set: set, lease: lease, holder: newHolder()}
	told := ""
	for {
		other, left, err := l.try(ctx)
		switch {
		case db.Dialect().Transient(err): // SQLite: a statement of another runner fills the file
			other, left = "another process", maxPoll
		case err != nil:
			return nil, fmt.Errorf("take migration lock: %w", err)
		case other == "":
			return l, nil
		}
		if other != told {
			waiting(other)
			told = other
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s, which migrates set %s: %w", other, set, context.Cause(ctx))
		case <-time.After(min(left, maxPoll)):
		}
	}
}

const insertLock = `
INSERT INTO orbit_migration_lock (set_name, holder, epoch, lease_until)
VALUES (?, ?, 0, 0)`

const selectLock = `
SELECT holder, epoch, lease_until
FROM orbit_migration_lock
WHERE set_name = ?`

const takeLock = `
UPDATE orbit_migration_lock SET holder = ?, epoch = ?, lease_until = ?
WHERE set_name = ?`

// try takes the lock if it is free or its lease has ended; else it returns the holder
// and what is left of the lease.
func (l *lock) try(ctx context.Context) (other string, left time.Duration, err error) {
	err = l.db.Tx(ctx, func(tx *sqldb.Tx) error {
		other, left = "", 0
		d := tx.Dialect()
		if _, err := tx.ExecContext(ctx, d.Bind(insertLock)+d.OnConflict([]string{"set_name"}), []byte(l.set), []byte{}); err != nil {
			return err
		}
		var holder string
		var epoch, until int64
		if err := tx.QueryRowContext(ctx, d.Bind(selectLock)+d.ForUpdate, []byte(l.set)).Scan(&holder, &epoch, &until); err != nil {
			return err
		}
		now, err := tx.Now(ctx) // after the row is locked: the wait for it counts
		if err != nil {
			return err
		}
		if holder != "" && until > now {
			other, left = holder, time.Duration(until-now)*time.Microsecond
			return nil
		}
		l.epoch = epoch + 1
		_, err = tx.ExecContext(ctx, d.Bind(takeLock), []byte(l.holder), l.epoch, now+l.lease.Microseconds(), []byte(l.set))
		return err
	})
	return other, left, err
}

const renewLock = `
UPDATE orbit_migration_lock SET lease_until = %s + ?
WHERE set_name = ? AND holder = ? AND epoch = ?`

const holdsLock = `
SELECT COUNT(*) FROM orbit_migration_lock
WHERE set_name = ? AND holder = ? AND epoch = ?`

// hold renews the lease through q, or returns ErrLockLost. In a transaction it keeps
// others from taking over until the commit, so that nothing is recorded by a runner that
// no longer holds the lock.
func (l *lock) hold(ctx context.Context, q sqldb.Querier) error {
	d := l.db.Dialect()
	renew := d.Bind(fmt.Sprintf(renewLock, d.Clock))
	if _, err := q.ExecContext(ctx, renew, l.lease.Microseconds(), []byte(l.set), []byte(l.holder), l.epoch); err != nil {
		return fmt.Errorf("renew migration lock: %w", err)
	}
	// The rows affected do not tell: they depend on clientFoundRows.
	var n int
	if err := q.QueryRowContext(ctx, d.Bind(holdsLock), []byte(l.set), []byte(l.holder), l.epoch).Scan(&n); err != nil {
		return fmt.Errorf("renew migration lock: %w", err)
	}
	if n == 0 {
		return ErrLockLost
	}
	return nil
}

// keep renews the lease until ctx ends, and calls lost if another runner has taken over.
// A renewal that fails is tried again: what the runner does next would fail too.
func (l *lock) keep(ctx context.Context, lost func(error)) {
	tick := time.NewTicker(l.lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.hold(ctx, l.db.Write()); errors.Is(err, ErrLockLost) {
			lost(err)
			return
		}
	}
}

const freeLock = `
UPDATE orbit_migration_lock SET holder = ?, lease_until = 0
WHERE set_name = ? AND holder = ? AND epoch = ?`

// release frees the lock at once. If that fails, the lease frees it.
func (l *lock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = l.db.Write().ExecContext(ctx, l.db.Dialect().Bind(freeLock), []byte{}, []byte(l.set), []byte(l.holder), l.epoch)
}

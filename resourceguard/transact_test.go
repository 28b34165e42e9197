package resourceguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// A refusal that keeps the raise is committed; every other error of the function is not.
func TestTransactCommitsWhatTheGuardSaysOnly(t *testing.T) { // RG-005, RG-018
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		for _, keep := range []bool{false, true} {
			guard, err := resourceguard.New(db.Dialect(), guardtest.Authorise, resourceguard.Config{KeepRaise: keep})
			if err != nil {
				t.Fatal(err)
			}
			key, refusal := fmt.Sprint("key-", keep), errors.New("sold out")
			at := func(token uint64, refusal error) error {
				return guard.Transact(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
					w := resourceguard.Write{Namespace: "ns", Key: key, Token: token, Attempt: fmt.Sprint(token), Operation: "op", Content: []byte("x")}
					_, err := guard.Apply(ctx, tx, w, func(context.Context, resourceguard.Tx) ([]byte, error) { return nil, refusal })
					return err
				})
			}
			if err := at(9, refusal); !errors.Is(err, refusal) || errors.Is(err, resourceguard.ErrRefused) != keep {
				t.Errorf("KeepRaise %t: Transact = %v, want the refusal", keep, err)
			}
			if err := at(7, nil); errors.Is(err, resourceguard.ErrStale) != keep || !keep && err != nil {
				t.Errorf("KeepRaise %t: an older write = %v", keep, err)
			}
		}
	}, migrations.Guard)
}

// What else a refused function has done goes with the rollback; the raise alone is kept.
func TestARefusalKeepsNothingButItsRaise(t *testing.T) { // RG-005, RG-018
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{KeepRaise: true})
		debit, credit := write(9, "debit"), write(9, "credit")
		credit.Key = "object/43"
		err := s.guard.Transact(t.Context(), s.db, func(ctx context.Context, tx *sql.Tx) error {
			if err := s.append(ctx, tx, write(1, "not guarded")); err != nil {
				return err
			}
			_, err := s.guard.Apply(ctx, tx, debit, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				return nil, s.append(ctx, tx, debit)
			})
			if err != nil {
				return err
			}
			_, err = s.guard.Apply(ctx, tx, credit, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				return nil, errors.Join(errBusiness, s.append(ctx, tx, credit))
			})
			return err
		})
		if !errors.Is(err, resourceguard.ErrRefused) || !errors.Is(err, errBusiness) {
			t.Errorf("Transact = %v, want the refusal that keeps the raise", err)
		}
		mustHold(t, s, 0)
		older := write(8, "late")
		older.Key = credit.Key
		if _, err := s.Apply(t.Context(), older, nil, guardtest.Commit); !errors.Is(err, resourceguard.ErrStale) {
			t.Errorf("an older write where the refusal was = %v, want ErrStale", err)
		}
	})
}

// A transaction that f or the business write ended may be in force in part: that is neither
// success nor failure, and to run it again might do it twice.
func TestATransactionEndedFromWithinIsUnknown(t *testing.T) { // RG-005
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		runs := 0
		for name, c := range map[string]struct {
			fn  resourceguard.WriteFunc
			end func(*sql.Tx) error
		}{
			"f commits": {nothing, (*sql.Tx).Commit},
			// As after a deadlock on MySQL that the business write kept to itself.
			"the business write goes on after a rollback": {func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				_, err := tx.ExecContext(ctx, "ROLLBACK")
				return []byte("receipt"), err
			}, func(*sql.Tx) error { return nil }},
		} {
			runs = 0
			err := s.guard.Transact(t.Context(), s.db, func(ctx context.Context, tx *sql.Tx) error {
				runs++
				if _, err := s.guard.Apply(ctx, tx, write(9, name), c.fn); err != nil {
					return err
				}
				return c.end(tx)
			})
			if !errors.Is(err, resourceguard.ErrUnknownCommit) || runs != 1 {
				t.Errorf("%s: Transact = %v after %d runs, want ErrUnknownCommit after one", name, err, runs)
			}
		}
	})
}

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

package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// One credential holds at most its share of the room for bodies; others find room beside it,
// until the whole is taken.
func TestACredentialHoldsNoMoreThanItsShareOfTheRoom(t *testing.T) {
	h := &Handler{bodies: semaphore.NewWeighted(bodyBudget), shares: newBodyBook(), drained: context.Background()}
	arrive := func(credential sqldb.ID, ctx context.Context) *arrival {
		r := httptest.NewRequest(http.MethodPost, "/v1/tasks", nil).WithContext(ctx)
		return &arrival{call: &call{Handler: h, w: httptest.NewRecorder(), r: r}, share: h.shares.of(credential)}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // who has to wait gives up at once

	var held []*arrival
	for range bodyBudget / bodyShare {
		credential := sqldb.NewID()
		a := arrive(credential, t.Context())
		for range bodyShare / arrivalStep {
			if err := a.step(); err != nil {
				t.Fatalf("within its share: %v", err)
			}
		}
		if err := arrive(credential, gone).step(); err != errBusy {
			t.Errorf("beyond its share: %v, want errBusy", err)
		}
		held = append(held, a)
	}
	late := arrive(sqldb.NewID(), gone)
	if err := late.step(); err != errBusy {
		t.Errorf("beyond the room for all: %v, want errBusy", err)
	}
	held[0].release()
	held[0].release() // twice does no harm
	again := arrive(sqldb.NewID(), t.Context())
	if err := again.step(); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

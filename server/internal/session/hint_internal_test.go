package session

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

// What is said of an attempt that was given away here goes to the dispatcher with what the
// grant says of it, and after a start with what that says, also after a renewal. Without
// that each batch reads the rows once more.
func TestWordsAboutAnAttemptCarryTheHintOfItsGrant(t *testing.T) {
	s := newTaker(t, 1)
	a := assigned(time.Now())
	a.grant.Hint = dispatch.Hint{Task: sqldb.NewID(), Queue: sqldb.NewID(), Key: [32]byte{7}, Keyed: true}
	if !s.hub.board.give(s, a, time.Now().Add(time.Hour)) {
		t.Fatal("the assignment was not given")
	}
	data, err := json.Marshal(wire.Attempt{AttemptID: a.grant.Attempt.String(), Epoch: uint64(a.grant.Epoch)})
	if err != nil {
		t.Fatal(err)
	}
	want, started := a.grant.Hint, a.grant.Hint
	started.Rows = &settle.Rows{}
	for _, step := range []struct {
		after string
		next  dispatch.Hint // what the next answer brings
	}{{"assignment", started}, {"start", dispatch.Hint{}}, {"renewal", dispatch.Hint{}}} {
		ref, err := s.readAttempt(wire.Envelope{ID: "1", Type: wire.TypeStart, Data: data})
		if err != nil || ref.Hint != want {
			t.Fatalf("after the %s: %+v, %v, want the hint %+v", step.after, ref, err, want)
		}
		s.track(ref, nil, time.Minute, step.next)
		want = started
	}
	s.drop(s.ref(a.grant.Attempt, a.grant.Epoch))
	if ref, err := s.readAttempt(wire.Envelope{ID: "1", Type: wire.TypeStart, Data: data}); err != nil || ref.Hint != (dispatch.Hint{}) {
		t.Errorf("of an attempt that is not held any more: %+v, %v, want no hint", ref, err)
	}
}

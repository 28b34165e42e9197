package command_test

import (
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
)

// Who waits for a paused queue, a stopped application or a limit is told of the change, and
// of none that was refused.
func TestChangesOfQueueAndApplicationAreTold(t *testing.T) { // LIC-017, REF-QUOTA-002
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		type told struct{ application, queue sqldb.ID }
		var all []told
		c := command.New(db.DB, command.Config{Reopened: func(application, queue sqldb.ID) {
			if w.Int("SELECT SUM(revision) FROM queue")+w.Int("SELECT revision FROM application") < 3 {
				t.Error("told before the commit")
			}
			all = append(all, told{application, queue})
		}})
		caller := command.Caller{Namespace: w.Namespace, Application: w.Application, Actor: "alice"}
		queue := w.NewQueue("q")
		for _, revision := range []uint64{7, 1} {
			c.UpdateQueue(t.Context(), caller, queue, orbit.UpdateQueueRequest{ExpectedRevision: revision, Paused: new(false)}, orbit.Digest{})
			c.UpdateApplication(t.Context(), caller, orbit.UpdateApplicationRequest{ExpectedRevision: revision, DispatchStopped: new(false)}, orbit.Digest{})
		}
		if len(all) != 2 || all[0] != (told{w.Application, queue}) || all[1] != (told{w.Application, sqldb.ID{}}) {
			t.Errorf("told of %v, want the queue and then the application", all)
		}
	}, migrations.Server)
}

package session_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/recovery"
)

// cancel cancels a task as the HTTP interface of the node does.
func (s scene) cancel(id sqldb.ID, reason string) {
	s.Helper()
	commands := command.New(s.w.DB, command.Config{Wake: s.n.hub.Wake, Cancelled: s.n.hub.Cancel})
	revision := s.w.Int("SELECT revision FROM task WHERE id = ?", id)
	_, err := commands.Cancel(s.Context(), command.Caller{Namespace: s.w.Namespace, Application: s.w.Application, Actor: "test"}, id,
		orbit.CancelTaskRequest{ExpectedRevision: uint64(revision), Reason: reason}, orbit.Digest{})
	if err != nil {
		s.Fatalf("cancel: %v", err)
	}
}

// The server says in every state of an attempt what the contract says; the server for tests
// is held to the same.
func TestTheServerKeepsToTheContract(t *testing.T) { // WRK-010, WRK-015, REF-WRK-001, REF-WRK-003, REF-WRK-006, TEST-015
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		id := func(text string) sqldb.ID {
			id, err := sqldb.ParseID(text)
			if err != nil {
				s.Fatal(err)
			}
			return id
		}
		wiretest.Converse(s.T, wiretest.Node{
			URL: "wss" + strings.TrimPrefix(s.n.srv.URL, "https") + wire.Path, TLS: s.n.srv.Client().Transport.(*http.Transport).TLSClientConfig,
			Token: s.worker(), Queue: q.String(),
			Submit: func(payload, key string) string {
				return s.submit(spec{Queue: q, Payload: payload, Key: key}, s.n).String()
			},
			Cancel: func(task, reason string) { s.cancel(id(task), reason) },
			Expire: func(_, attempt string) {
				s.w.Exec("UPDATE attempt SET lease_until = 1 WHERE id = ?", id(attempt))
				if n, err := recovery.New(s.w.DB, recovery.Config{}).ExpireLeases(s.Context()); n != 1 || err != nil {
					s.Errorf("ExpireLeases = %d, %v", n, err)
				}
			},
		})
	})
}

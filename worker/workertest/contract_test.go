package workertest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
	"github.com/orbitkit/orbit/worker/workertest"
)

// The server for tests says in every state of an attempt what a task server says: both are
// held to one contract.
func TestServerKeepsToTheContractOfATaskServer(t *testing.T) { // WRK-010, REF-WRK-003, REF-WRK-006, TEST-015
	s := workertest.NewServer(t, workertest.ServerConfig{})
	wiretest.Converse(t, wiretest.Node{
		URL: "wss" + strings.TrimPrefix(s.URL(), "https") + wire.Path, TLS: s.Network().TLS, Token: s.Token, Queue: s.QueueID,
		Submit: func(payload, key string) string {
			return s.Submit(orbit.SubmitTaskRequest{Handler: "h", Payload: json.RawMessage(payload), PayloadVersion: "p1", ConcurrencyKey: key})
		},
		Cancel: s.Cancel,
		Expire: func(task, _ string) { s.Expire(task) },
	})
}

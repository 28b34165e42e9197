package workertest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
)

// What the fake assigns is an assignment by the protocol's schema.
func TestAssignmentsKeepToTheSchema(t *testing.T) {
	for name, key := range map[string]string{"Keyless": "", "Keyed": "object/42"} {
		t.Run(name, func(t *testing.T) {
			one := &task{id: newID(), deadline: time.Now().Add(time.Hour), uncertain: true, request: orbit.SubmitTaskRequest{
				QueueID: newID(), Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1", Payload: json.RawMessage(`{ "n":1 }`),
				BusinessKey: "order 17", ConcurrencyKey: key, Priority: 9, RecoverySafety: orbit.RecoveryIdempotent,
			}}
			a := &attempt{id: newID(), epoch: 2, task: one, until: time.Now().Add(time.Minute), Attempt: Attempt{Number: 2}}
			if key != "" {
				a.ConcurrencyToken = 1<<64 - 2
			}
			cancelled := frame(wire.TypeCancel, "", fmt.Sprintf(`{"attempt_id":%q,"epoch":1}`, newID()))
			if err := wiretest.Check(wiretest.Server, []byte(cancelled)); err != nil {
				t.Errorf("%s: %v", cancelled, err)
			}
			if err := wiretest.Check(wiretest.Server, []byte(a.assignment())); err != nil {
				t.Errorf("%s: %v", a.assignment(), err)
			}
		})
	}
}

package worker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/wire"
)

func BenchmarkReadAssign(b *testing.B) {
	id := strings.Repeat("0", 31) + "5"
	data, err := json.Marshal(wire.Assign{
		AttemptID: id, Epoch: 1, LeaseMS: 15_000, OperationRoot: id, ConcurrencyToken: "9007199254740993",
		Task: wire.Task{
			ID: id, NamespaceID: id, QueueID: id, Handler: "h", HandlerVersion: "1", PayloadVersion: "1", ConcurrencyKey: "object/42",
			Payload: json.RawMessage(`{"text":"` + strings.Repeat("x", 1000) + `"}`), RecoverySafety: "IDEMPOTENT", DeadlineMS: 1000, AttemptNumber: 1,
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	frame := encodeFrame(wire.TypeAssign, "1", data)
	c := &Conn{registration: Registration{Handlers: []Handler{{Name: "h", Version: "1"}}, Queues: []string{id}, ConcurrencyKeys: true}}
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		envelope, err := decodeFrame(frame)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.readAssign(envelope.Data); err != nil {
			b.Fatal(err)
		}
	}
}

package session

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// The envelope lies around what a client sends; its level does not count (AMB-011).
const levelsOfEnvelope = 1

// decode reads the data of a message strictly. No data is an empty object.
func decode(data []byte, v any) error {
	if len(data) == 0 {
		data = []byte("{}")
	}
	return strictjson.Decode(data, v)
}

// encode makes a frame of a message without business data.
func encode(kind, ref string, data any) []byte {
	body, err := json.Marshal(data)
	if err != nil {
		panic(err) // messages are plain structs
	}
	frame, err := json.Marshal(wire.Envelope{Type: kind, Ref: ref, Data: body})
	if err != nil {
		panic(err)
	}
	return frame
}

// The payload's place in an encoded assignment. No JSON string can hold this text, since
// a quote in it is escaped.
var payloadMark = []byte(`"payload":0`)

// encodeAssign makes the frame of an assignment, with the payload byte for byte as it was
// accepted. Lease and deadline are what is left now.
func encodeAssign(g *dispatch.Grant, elapsed time.Duration) []byte {
	m := wire.Assign{
		AttemptID: g.Attempt.String(), Epoch: uint64(g.Epoch), LeaseMS: millis(g.Lease - elapsed),
		OperationRoot: g.OperationRoot.String(), Traceparent: g.Traceparent,
		Task: wire.Task{
			ID: g.Task.String(), NamespaceID: g.Namespace.String(), QueueID: g.Queue.String(),
			Handler: g.Handler, HandlerVersion: g.HandlerVersion, PayloadVersion: g.PayloadVersion, Payload: json.RawMessage("0"),
			BusinessKey: g.BusinessKey, ConcurrencyKey: g.ConcurrencyKey, Priority: g.Priority,
			RecoverySafety: orbit.RecoveryReconcileOnly, DeadlineMS: millis(g.Deadline - elapsed),
			AttemptNumber: uint64(g.Number), EffectUncertain: g.EffectUncertain,
		},
	}
	if g.Idempotent {
		m.Task.RecoverySafety = orbit.RecoveryIdempotent
	}
	if !g.RetryOf.IsZero() {
		m.Task.RetryOf = g.RetryOf.String()
	}
	if g.Token != 0 {
		m.ConcurrencyToken = strconv.FormatUint(g.Token, 10)
	}
	return splicePayload(encode(wire.TypeAssign, "", m), g.Payload)
}

func splicePayload(frame, payload []byte) []byte {
	at := bytes.Index(frame, payloadMark) + len(payloadMark) - 1
	whole := make([]byte, 0, len(frame)+len(payload))
	whole = append(append(whole, frame[:at]...), payload...)
	return append(whole, frame[at+1:]...)
}

// millis is a duration on the wire: whole milliseconds, rounded down, never negative.
func millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }

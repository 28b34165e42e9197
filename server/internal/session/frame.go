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
	const most = 256 // bytes, of the messages that write themselves
	if m, ok := data.(wire.Appender); ok {
		return append(m.AppendJSON(wire.OpenFrame(make([]byte, 0, most), kind, "", ref)), '}')
	}
	body := marshal(data)
	frame := wire.OpenFrame(make([]byte, 0, len(body)+len(ref)+len(kind)+32), kind, "", ref)
	return append(append(frame, body...), '}')
}

func marshal(message any) []byte {
	body, err := json.Marshal(message)
	if err != nil {
		panic(err) // messages are plain structs
	}
	return body
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
	body := marshal(m)
	at := bytes.Index(body, payloadMark) + len(payloadMark) - 1
	frame := wire.OpenFrame(make([]byte, 0, len(body)+len(g.Payload)+64), wire.TypeAssign, "", "")
	frame = append(append(frame, body[:at]...), g.Payload...)
	return append(append(frame, body[at+1:]...), '}')
}

// millis is a duration on the wire: whole milliseconds, rounded down, never negative.
func millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }

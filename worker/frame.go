package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
)

// Levels that lie around a task object: its envelope and the data of task.assign.
// They do not count towards its depth.
const (
	levelsOfEnvelope = 2
	levelsOfData     = 1
)

func formatID(n uint64) string { return strconv.FormatUint(n, 10) }

// encodeFrame builds an envelope by hand: encoding/json would re-format data.
func encodeFrame(kind, id string, data []byte) []byte {
	frame := wire.OpenFrame(make([]byte, 0, len(data)+len(kind)+len(id)+32), kind, id, "")
	return append(append(frame, data...), '}')
}

// encode makes a frame of a message.
func encode(kind, id string, data any) ([]byte, error) {
	if m, ok := data.(wire.Appender); ok {
		const most = 256 // bytes, as a rule
		return append(m.AppendJSON(wire.OpenFrame(make([]byte, 0, most), kind, id, "")), '}'), nil
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("worker: encode %s: %w", kind, err)
	}
	return encodeFrame(kind, id, text), nil
}

func decodeFrame(text []byte) (frame wire.Envelope, err error) {
	if err := strictjson.DecodeInside(text, &frame, levelsOfEnvelope); err != nil {
		return frame, notStrict("frame", err)
	}
	return frame, checkFrame(frame)
}

func checkFrame(frame wire.Envelope) error {
	switch {
	case frame.Type == "":
		return broken("frame: type is missing")
	case frame.ID != "":
		return broken("frame: id is not for messages of a server")
	case frame.Ref != "" && !isName(frame.Ref):
		return broken("frame: ref must be 1 to 64 printable ASCII characters without blanks")
	}
	return nil
}

// isName reports whether text may name a message or a report.
func isName(text string) bool {
	const longest = 64
	return text != "" && len(text) <= longest && strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

// decode reads the data of a message of this kind. The server never leaves it out.
func decode(kind string, data []byte, v any) error {
	if len(data) == 0 {
		return broken("%s: data is required", kind)
	}
	if err := strictjson.DecodeInside(data, v, levelsOfData); err != nil {
		return notStrict(kind, err)
	}
	return nil
}

func notStrict(kind string, err error) error {
	var rule *strictjson.Error
	if errors.As(err, &rule) {
		return broken("%s: %s", kind, rule.Error())
	}
	return broken("%s: %v", kind, err)
}

const mostCode = 64

// readRefusal turns the data of an error message into what the asker gets.
func readRefusal(act string, data []byte) (*RefusedError, error) {
	var e wire.Error
	if err := decode(wire.TypeError, data, &e); err != nil {
		return nil, err
	}
	switch {
	case e.Code == "" || len(e.Code) > mostCode:
		return nil, broken("error: code must be 1 to %d bytes", mostCode)
	case e.AttemptID != "" && !orbit.ValidID(e.AttemptID):
		return nil, broken("error: attempt_id must be 32 lower-case hexadecimal characters")
	}
	return &RefusedError{Act: act, Code: e.Code, Message: e.Message, AttemptID: e.AttemptID}, nil
}

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

// encodeFrame builds an envelope by hand: encoding/json would re-format data, and
// a result must travel byte for byte. Kind and id need no escapes.
func encodeFrame(kind, id string, data []byte) []byte {
	frame := make([]byte, 0, len(data)+len(kind)+len(id)+32)
	frame = append(frame, `{"type":"`...)
	frame = append(frame, kind...)
	frame = append(frame, `","id":"`...)
	frame = append(frame, id...)
	frame = append(frame, `","data":`...)
	frame = append(frame, data...)
	return append(frame, '}')
}

// encodeFinish encodes f with its result byte for byte.
func encodeFinish(f wire.Finish) ([]byte, error) {
	result := f.Result
	f.Result = nil
	data, err := json.Marshal(f)
	if err != nil || result == nil {
		return data, err
	}
	data = append(data[:len(data)-1], `,"result":`...)
	data = append(data, result...)
	return append(data, '}'), nil
}

func decodeFrame(text []byte) (frame wire.Envelope, err error) {
	if err := strictjson.DecodeInside(text, &frame, levelsOfEnvelope); err != nil {
		return frame, notStrict("frame", err)
	}
	switch {
	case frame.Type == "":
		return frame, broken("frame: type is missing")
	case frame.ID != "":
		return frame, broken("frame: id is not for messages of a server")
	case frame.Ref != "" && !isName(frame.Ref):
		return frame, broken("frame: ref must be 1 to 64 printable ASCII characters without blanks")
	}
	return frame, nil
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

func encode(kind string, data any) ([]byte, error) {
	if f, ok := data.(wire.Finish); ok {
		return encodeFinish(f)
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("worker: encode %s: %w", kind, err)
	}
	return text, nil
}

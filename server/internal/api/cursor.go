package api

import (
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// An attempt cursor is opaque to clients: a version, the task it is bound to and the
// epoch that the next page lies below.
const (
	cursorVersion = 1
	cursorSize    = 1 + len(sqldb.ID{}) + 8
)

var errCursor = badRequest("cursor: is not one that this list has given out")

func newAttemptCursor(task sqldb.ID, epoch int64) string {
	b := append(make([]byte, 0, cursorSize), cursorVersion)
	b = binary.BigEndian.AppendUint64(append(b, task[:]...), uint64(epoch))
	return base64.RawURLEncoding.EncodeToString(b)
}

// attemptCursor returns the epoch that the page asked for lies below.
func attemptCursor(parameters map[string]string, task sqldb.ID) (int64, error) {
	text, present := parameters["cursor"]
	if !present {
		return math.MaxInt64, nil
	}
	if len(text) != base64.RawURLEncoding.EncodedLen(cursorSize) {
		return 0, errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || b[0] != cursorVersion || sqldb.ID(b[1:17]) != task {
		return 0, errCursor
	}
	epoch := binary.BigEndian.Uint64(b[17:])
	if epoch == 0 || epoch > math.MaxInt64 {
		return 0, errCursor
	}
	return int64(epoch), nil
}

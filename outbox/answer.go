package outbox

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Bounds of what a row keeps of an answer, in bytes.
const (
	maxOutcome = 32
	maxCode    = 64
	maxMessage = 1024
	maxDigest  = 128
)

// sent reports whether the outcome is that of a send.
func (o Outcome) sent() bool {
	return o != OutcomeTooOld && o != OutcomeExpired && o != OutcomeDamaged
}

// args appends the columns of the answer that every settle binds alike.
func (a *Answer) args(args []any) ([]any, error) {
	if len(a.Outcome) > maxOutcome || a.Outcome == OutcomeNone {
		return nil, fmt.Errorf("outbox: outcome %q is none", a.Outcome)
	}
	var request any // NULL without one
	if a.RequestID != "" {
		id, err := sqldb.ParseID(a.RequestID)
		if err != nil {
			return nil, fmt.Errorf("outbox: request id of an answer: %w", err)
		}
		request = id[:]
	}
	return append(args, a.Status, cut(a.Code, maxCode), cut(a.Message, maxMessage), cut(a.Digest, maxDigest), request), nil
}

// cut returns text as valid UTF-8 of at most n bytes.
func cut(text string, n int) []byte {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= n {
		return []byte(text)
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return []byte(text[:n])
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

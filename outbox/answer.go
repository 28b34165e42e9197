package outbox

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Bounds of what a row keeps of an answer, in bytes.
const (
	maxCode    = 64
	maxMessage = 1024
	maxDigest  = 128
)

// args appends the columns of the answer that every settle binds alike.
func (a *Answer) args(args []any) ([]any, error) {
	if a.Outcome <= OutcomeAccepted || a.Outcome > OutcomeDamaged {
		return nil, fmt.Errorf("outbox: outcome %v (%d) is none for a row that was not accepted", a.Outcome, a.Outcome)
	}
	if a.Status < 0 || a.Status > 999 {
		return nil, fmt.Errorf("outbox: HTTP status %d of an answer", a.Status)
	}
	var request sqldb.ID // zeros without one
	if a.RequestID != "" {
		var err error
		if request, err = sqldb.ParseID(a.RequestID); err != nil {
			return nil, fmt.Errorf("outbox: request id of an answer: %w", err)
		}
	}
	return append(args, a.Status, cut(a.Code, maxCode), cut(a.Message, maxMessage), cut(a.Digest, maxDigest), request[:]), nil
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

package orbit

import (
	"net/http"
	"strings"
	"time"
)

// acceptedBatch reads the answer to a batch of n items, all accepted, in the letters that
// Orbit's servers write under Prefer: return=minimal. A relay reads little else, and reads it so
// in less than half the time. It returns nil for everything else, which a reader of JSON is
// to judge.
func (r *reply) acceptedBatch(n int) []Answer {
	if r.broken != nil || r.status != http.StatusOK {
		return nil
	}
	l := letters{rest: string(r.body), ok: true} // what is read of it are parts of this one string
	l.follow(`{"request_id":`)
	if id := l.plain(); !l.ok || id == "" || id != r.requestID {
		return nil
	}
	l.follow(`,"data":{"items":[`)
	answers := make([]Answer, n)
	var receipt wireReceipt
	for i := range answers {
		if i > 0 {
			l.follow(",")
		}
		w := wireItemAnswer[*wireReceipt]{Data: &receipt}
		l.item(&w)
		if !l.ok {
			return nil
		}
		answers[i] = itemAnswer(&w, r.requestID, true, (*Answer).acceptItem)
	}
	if l.follow("]}}"); !l.ok || strings.TrimRight(l.rest, "\n") != "" {
		return nil
	}
	return answers
}

// letters reads a text of which all but the values is known. It stops at the first letter
// that is another.
type letters struct {
	rest string
	ok   bool
}

func (l *letters) item(w *wireItemAnswer[*wireReceipt]) {
	t := &w.Data.Task
	l.follow(`{"status":`)
	w.Status = l.status()
	l.follow(`,"content_digest":`)
	w.ContentDigest = l.plain()
	l.follow(`,"data":{"deduplicated":`)
	w.Data.Deduplicated = l.flag()
	l.follow(`,"task":{"id":`)
	t.ID = l.plain()
	l.follow(`,"queue_id":`)
	t.QueueID = l.plain()
	l.follow(`,"handler":`)
	t.Handler = l.plain()
	l.follow(`,"state":`)
	t.State = l.plain()
	l.follow(`,"revision":`)
	t.Revision = decimalUint(l.decimal())
	l.follow(`,"created_at":`)
	t.CreatedAt = wireTime(l.time())
	l.follow(`}}}`)
}

// follow steps over a text that must come next.
func (l *letters) follow(text string) {
	if l.ok {
		l.rest, l.ok = strings.CutPrefix(l.rest, text)
	}
}

// plain reads a string of visible ASCII without escapes.
func (l *letters) plain() string {
	if l.follow(`"`); !l.ok {
		return ""
	}
	for i := range len(l.rest) {
		switch c := l.rest[i]; {
		case c == '"':
			value := l.rest[:i]
			l.rest = l.rest[i+1:]
			return value
		case c == '\\' || c <= ' ' || c > '~':
			l.ok = false
			return ""
		}
	}
	l.ok = false
	return ""
}

// status reads a number of three digits.
func (l *letters) status() int {
	if l.ok = l.ok && len(l.rest) > 3 && l.rest[0] >= '1'; !l.ok {
		return 0
	}
	n := 0
	for _, c := range []byte(l.rest[:3]) {
		l.ok = l.ok && c >= '0' && c <= '9'
		n = 10*n + int(c-'0')
	}
	l.rest = l.rest[3:]
	return n
}

func (l *letters) flag() bool {
	rest, isTrue := strings.CutPrefix(l.rest, "true")
	if isTrue {
		l.rest = rest
		return true
	}
	l.follow("false")
	return false
}

func (l *letters) decimal() uint64 {
	n, err := ParseDecimal(l.plain())
	l.ok = l.ok && err == nil
	return n
}

func (l *letters) time() time.Time {
	at, err := ParseTime(l.plain())
	l.ok = l.ok && err == nil
	return at
}

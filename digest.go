package orbit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// DigestAlgorithm names the way content digests are made; it is stored with each.
// It is Orbit's own and not RFC 8785.
const DigestAlgorithm = "orbit-json-v1"

// A Digest is the SHA-256 of the canonical text of a command (IDEM-005). Equal
// digests mean equal content, whatever the spelling of numbers, strings, times,
// defaults and the order of members.
type Digest [sha256.Size]byte

// String returns orbit-json-v1:<64 lower-case hex>, as in the header
// Orbit-Content-Digest.
func (d Digest) String() string { return DigestAlgorithm + ":" + hex.EncodeToString(d[:]) }

// ParseDigest reads algorithm:<64 lower-case hex>. An algorithm other than
// [DigestAlgorithm] is not an error: such a digest can only not be compared.
func ParseDigest(text string) (algorithm string, d Digest, err error) {
	algorithm, digits, found := strings.Cut(text, ":")
	if !found || algorithm == "" || strings.IndexFunc(algorithm, notPrintable) >= 0 {
		return "", Digest{}, errors.New("orbit: content digest must have the form algorithm:hex")
	}
	if len(digits) != hex.EncodedLen(len(d)) || !isLowerHex(digits) {
		return "", Digest{}, errors.New("orbit: content digest must have 64 lower-case hexadecimal characters")
	}
	_, err = hex.Decode(d[:], []byte(digits))
	return algorithm, d, err
}

// texts are rooms for canonical texts, which nobody needs once they are hashed.
var texts = sync.Pool{New: func() any { return new([]byte) }}

// digest returns the digest of a normalised request with this canonical payload.
func (r *SubmitTaskRequest) digest(payload []byte) Digest {
	const keep = 64 << 10 // larger rooms are left to the collector
	room := texts.Get().(*[]byte)
	text := r.appendCanonical(append((*room)[:0], digestPrefix...), payload)
	d := Digest(sha256.Sum256(text))
	if *room = text; cap(text) <= keep {
		texts.Put(room)
	}
	return d
}

const digestPrefix = DigestAlgorithm + "\n"

// digestOf returns the digest of a canonical text.
func digestOf(canonical []byte) Digest {
	return sha256.Sum256(append([]byte(digestPrefix), canonical...))
}

// appendCanonical appends the canonical text, its members in the order of their
// names. The fields of the first contract always appear with their defaults;
// fields that came later (concurrency_key, priority and all to come) appear only
// when they are not at their default, so that older digests stay what they are
// (IDEM-022). An available_at not given is left out: its default differs between
// repeats.
func (r *SubmitTaskRequest) appendCanonical(dst, payload []byte) []byte {
	c := canonical{object{dst: append(dst, '{')}}
	c.optionalTime("available_at", r.AvailableAt)
	c.optionalString("business_key", r.BusinessKey)
	c.optionalString("concurrency_key", r.ConcurrencyKey)
	c.string("handler", r.Handler)
	c.string("handler_version", r.HandlerVersion)
	c.raw("payload", payload)
	c.string("payload_version", r.PayloadVersion)
	if r.Priority != 0 {
		c.uint("priority", uint64(r.Priority))
	}
	c.string("queue_id", r.QueueID)
	c.string("recovery_safety", r.RecoverySafety)
	c.name("retry")
	c.dst = r.Retry.appendCanonical(c.dst)
	c.optionalTime("start_deadline_at", r.StartDeadlineAt)
	c.uint("task_timeout_ms", r.TaskTimeoutMS)
	return c.end()
}

func (p RetryPolicy) appendCanonical(dst []byte) []byte {
	c := canonical{object{dst: append(dst, '{')}}
	c.uint("attempt_timeout_ms", p.AttemptTimeoutMS)
	c.uint("initial_delay_ms", p.InitialDelayMS)
	c.uint("max_attempts", p.MaxAttempts)
	c.uint("max_delay_ms", p.MaxDelayMS)
	return c.end()
}

// canonical writes numbers and times the way the canonical text has them.
type canonical struct{ object }

func (c *canonical) uint(name string, value uint64) {
	c.name(name)
	c.dst = strictjson.AppendCanonicalUint(c.dst, value)
}

func (c *canonical) optionalTime(name string, t *time.Time) {
	if t != nil {
		c.name(name)
		c.dst = append(t.AppendFormat(append(c.dst, '"'), canonicalLayout), '"')
	}
}

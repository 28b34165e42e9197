package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/orbitkit/orbit"
)

// Key builds an idempotency key from the parts that name a business operation, such as
// Key("order", orderID, "reserve-stock"). It joins them with ':'; bytes that a key
// cannot hold, and ':', '%' and '~' themselves, are written as %XX. Equal parts always
// give the same key and different parts never do; what would be longer than 128
// characters ends in a SHA-256 of the whole instead.
//
// It returns an error for no parts and for an empty one, which is mostly an id that
// was not set.
func Key(parts ...string) (string, error) {
	if len(parts) == 0 {
		return "", &orbit.InvalidArgumentError{Field: "key", Rule: "needs at least one part"}
	}
	key := make([]byte, 0, orbit.MaxIdempotencyKey)
	for i, part := range parts {
		if part == "" {
			return "", &orbit.InvalidArgumentError{Field: fmt.Sprintf("key part %d", i+1), Rule: "must not be empty"}
		}
		if i > 0 {
			key = append(key, ':')
		}
		key = appendPart(key, part)
	}
	if len(key) > orbit.MaxIdempotencyKey {
		sum := sha256.Sum256(key)
		key = append(key[:orbit.MaxIdempotencyKey-1-2*len(sum)], '~') // appears in no other key
		key = hex.AppendEncode(key, sum[:])
	}
	return string(key), nil
}

func appendPart(dst []byte, part string) []byte {
	for i := range len(part) {
		switch c := part[i]; {
		case c <= 0x20, c >= 0x7f, c == ':', c == '%', c == '~':
			dst = fmt.Appendf(dst, "%%%02X", c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

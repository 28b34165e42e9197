package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

const (
	tokenPrefix = "orbit_"
	secretSize  = 32 // bytes: 256 random bits
)

type secret [secretSize]byte

// digest is what the database holds of a secret.
func (s secret) digest() [sha256.Size]byte { return sha256.Sum256(s[:]) }

// NewToken makes the token of a new credential, and the digest of its secret, which is
// all that may be stored of it. It panics if the system has no randomness.
func NewToken(credential sqldb.ID) (token string, digest [sha256.Size]byte) {
	var s secret
	rand.Read(s[:]) // never fails: crypto/rand ends the process instead
	return tokenPrefix + credential.String() + "_" + hex.EncodeToString(s[:]), s.digest()
}

// parseToken reads a token. Nothing of it is secret but the secret itself, so a
// malformed one may be told apart in variable time.
func parseToken(token string) (credential sqldb.ID, s secret, ok bool) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return credential, s, false
	}
	id, digits, ok := strings.Cut(rest, "_")
	if !ok || len(digits) != hex.EncodedLen(secretSize) || strings.ToLower(digits) != digits {
		return credential, s, false
	}
	credential, err := sqldb.ParseID(id)
	if err != nil {
		return credential, s, false
	}
	_, err = hex.Decode(s[:], []byte(digits))
	return credential, s, err == nil
}

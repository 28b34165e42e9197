package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/query"
)

// A cursor is opaque to clients: a version, a MAC, and the position after which the next
// page begins. The MAC also covers what the cursor is bound to, the list and its filters,
// which the client sends again (LIST-009). Its key is the credential's, so a cursor is of
// use to nobody else (LIST-020).
const (
	cursorVersion = 1
	macSize       = 16
	maxCursor     = 1024 // characters (LIMIT-012)
)

// A cursorKind is the list that a cursor belongs to.
type cursorKind byte

const (
	cursorTasks cursorKind = iota + 1
	cursorAttempts
	cursorEvidence
	cursorQueues
)

var (
	errCursor     = badRequest("cursor: is not one that this list gave out for these filters")
	errCursorLong = badRequest("cursor: must have at most 1024 characters")
)

// A cursorSeal makes and opens the cursors of one list, asked for with one set of filters
// by one credential.
type cursorSeal struct {
	key     [sha256.Size]byte
	kind    cursorKind
	filters []byte
}

// seal returns the cursor of a position.
func (s *cursorSeal) seal(position []byte) string {
	b := append(append([]byte{cursorVersion}, s.mac(position)...), position...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// open returns the position of a cursor. It refuses what seal did not make.
func (s *cursorSeal) open(text string) ([]byte, error) {
	if len(text) > maxCursor {
		return nil, errCursorLong
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) <= 1+macSize || b[0] != cursorVersion {
		return nil, errCursor
	}
	position := b[1+macSize:]
	if !hmac.Equal(b[1:1+macSize], s.mac(position)) || base64.RawURLEncoding.EncodeToString(b) != text {
		return nil, errCursor
	}
	return position, nil
}

// mac covers everything, each part with its length where another one follows.
func (s *cursorSeal) mac(position []byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	h.Write([]byte{cursorVersion, byte(s.kind)})
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s.filters))))
	h.Write(s.filters)
	h.Write(position)
	return h.Sum(nil)[:macSize]
}

const placeSize = 8 + len(sqldb.ID{})

// appendPlace writes a place as a position; there is none after the last page.
func appendPlace(p *query.Place) []byte {
	if p == nil {
		return nil
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, placeSize), uint64(p.CreatedAt))
	return append(b, p.ID[:]...)
}

// place reads the position of a list that is ordered by creation time and id.
func (p *paging) place() *query.Place {
	if p.position == nil {
		return nil
	}
	return &query.Place{CreatedAt: int64(binary.BigEndian.Uint64(p.position)), ID: sqldb.ID(p.position[8:placeSize])}
}

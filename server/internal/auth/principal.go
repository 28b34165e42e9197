package auth

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Principal is who sends a request: an accepted credential and what it may do now.
// The credential alone decides the namespace (API-004). Its maps and slices are shared:
// they are read and never changed.
type Principal struct {
	Credential  sqldb.ID
	Namespace   sqldb.ID
	Application sqldb.ID
	Permissions Permissions
	AllQueues   bool                  // may use every queue of the namespace
	Queues      map[sqldb.ID]struct{} // else these
	// CursorKey authenticates the cursors of lists that the credential is given. It
	// follows from the stored digest of its secret, so every node knows it and none
	// stores it.
	CursorKey [sha256.Size]byte
}

// cursorKey derives the key of a credential whose secret has digest.
func cursorKey(digest [sha256.Size]byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, digest[:])
	mac.Write([]byte("orbit list cursor"))
	return [sha256.Size]byte(mac.Sum(nil))
}

// Can reports whether the credential has permission.
func (p *Principal) Can(permission string) bool { return p.Permissions.Has(permission) }

// MayUse reports whether queue lies in the credential's scope. With all queues in
// scope that says nothing about whether the queue exists.
func (p *Principal) MayUse(queue sqldb.ID) bool {
	_, listed := p.Queues[queue]
	return p.AllQueues || listed
}

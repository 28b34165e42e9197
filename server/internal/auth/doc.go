// Package auth tells who sends a request and what they may do (REF-AUTH).
//
// A token belongs to a credential of a namespace of an application. It has the form
// orbit_<32 hex: credential id>_<64 hex: secret>; the database holds only the SHA-256
// of the secret. No request is answered by a look-up that began before it, so a
// revocation, an expiry or a disabled application counts at once on every node.
package auth

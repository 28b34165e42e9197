package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/orbitkit/orbit/resourceguard"
)

const (
	// keep is how long an operation is remembered: the platform's 90 days of idempotency.
	// A repeat that comes later is applied again.
	keep = 90 * 24 * time.Hour

	// mostOperations bounds the body. A key that is written more often within keep needs
	// a store with rows.
	mostOperations = 10_000
)

// A guardedBody is the whole object: what the guard knows and the owner's content, in one
// body, so that one conditional write changes all of it or nothing.
type guardedBody struct {
	Namespace string `json:"namespace"` // the object's name is a digest: this says what it is of
	Key       string `json:"key"`

	Highest uint64 `json:"highest,string"`    // highest token seen; decimal text, as JSON numbers are floats to many
	Attempt string `json:"attempt,omitempty"` // whose it is; empty if a reconciler raised it

	Operations map[string]operation `json:"operations"`
	Content    []byte               `json:"content"`
}

// An operation is the record of a write that was applied.
type operation struct {
	Digest    string    `json:"sha256"` // of the write's content
	Token     uint64    `json:"token,string"`
	Attempt   string    `json:"attempt"`
	Receipt   []byte    `json:"receipt,omitempty"`
	AppliedAt time.Time `json:"applied_at"` // by the store's clock
}

// objectName is a digest, as namespace and key may hold anything and together be longer
// than a name may be. The length keeps "a/b"+"c" apart from "a"+"b/c".
func objectName(namespace, key string) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(namespace)) + ":" + namespace + key))
	return "guarded/" + hex.EncodeToString(sum[:])
}

func parseBody(text []byte, namespace, key string) (guardedBody, error) {
	var b guardedBody
	if err := json.Unmarshal(text, &b); err != nil {
		return b, fmt.Errorf("object of namespace %q, key %q is no guarded body: %w", namespace, key, err)
	}
	if b.Namespace != namespace || b.Key != key || b.Highest == 0 {
		return b, fmt.Errorf("object of namespace %q, key %q is that of %q, %q under token %d", namespace, key, b.Namespace, b.Key, b.Highest)
	}
	return b, nil
}

// admit is the check that has to be atomic with the write.
func (b *guardedBody) admit(f resourceguard.Fence) error {
	switch {
	case f.Token < b.Highest:
		return &resourceguard.StaleError{Presented: f.Token, Highest: b.Highest}
	case f.Token == b.Highest && f.Attempt != b.Attempt && f.Attempt != "":
		return &resourceguard.CollisionError{Token: f.Token, Presented: f.Attempt, Holder: b.Attempt}
	}
	return nil
}

// raise reports whether it changed anything.
func (b *guardedBody) raise(f resourceguard.Fence) bool {
	if f.Token <= b.Highest {
		return false
	}
	b.Highest, b.Attempt = f.Token, f.Attempt
	return true
}

var errFull = errors.New("the object remembers as many operations as it may")

// record remembers w, and forgets what is too old.
func (b *guardedBody) record(w resourceguard.Write, receipt []byte, now time.Time) error {
	for id, o := range b.Operations {
		if now.Sub(o.AppliedAt) > keep {
			delete(b.Operations, id)
		}
	}
	if len(b.Operations) >= mostOperations {
		return errFull
	}
	b.Operations[w.Operation] = operation{Digest: digest(w), Token: w.Token, Attempt: w.Attempt, Receipt: receipt, AppliedAt: now}
	return nil
}

func digest(w resourceguard.Write) string {
	sum := sha256.Sum256(w.Content)
	return hex.EncodeToString(sum[:])
}

// conflict is an error if o, which is on record, was another write than w.
func (o operation) conflict(w resourceguard.Write) error {
	if o.Digest == digest(w) {
		return nil
	}
	e := &resourceguard.ConflictError{Operation: w.Operation, Presented: sha256.Sum256(w.Content)}
	hex.Decode(e.Applied[:], []byte(o.Digest))
	return e
}

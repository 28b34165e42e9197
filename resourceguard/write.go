package resourceguard

import (
	"crypto/sha256"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxName is the most Unicode characters of a namespace, key, attempt or
	// operation: what a task's concurrency_key may have.
	MaxName = 191

	// MaxReceipt is the most bytes of a receipt.
	MaxReceipt = 256 << 10
)

// A Write is one operation on one resource, presented under a token. The texts have 1
// to 191 Unicode characters of valid UTF-8 without control characters and are equal
// if their bytes are: nothing is folded, trimmed or normalised.
type Write struct {
	Namespace string // namespace that issued the token; keys of two namespaces never meet
	Key       string // resource key: the task's concurrency_key
	Token     uint64 // the task's concurrency_token, 1 to 2^64-1
	Attempt   string // id of the attempt that was given the token

	// Operation names what is done, unique within the key and the same in every
	// retry of the task, such as an operation_ref of the payload. It must not be
	// made from token or attempt.
	Operation string

	// Content is what is to be written, in a form that is the same bytes in every
	// repeat. Its SHA-256 is recorded, not the content. It is not empty.
	Content []byte
}

func (w Write) validate() error {
	if err := w.fence().validate(); err != nil {
		return err
	}
	if err := validName("attempt", w.Attempt); err != nil {
		return err
	}
	if err := validName("operation", w.Operation); err != nil {
		return err
	}
	if len(w.Content) == 0 {
		return invalid("content", "must not be empty")
	}
	return nil
}

func (w Write) fence() Fence { return Fence{w.Namespace, w.Key, w.Token, w.Attempt} }

func (w Write) digest() [sha256.Size]byte { return sha256.Sum256(w.Content) }

// A Fence is a token that a resource is to have seen. Its texts follow the rules of
// [Write].
type Fence struct {
	Namespace string
	Key       string
	Token     uint64
	Attempt   string // attempt that was given the token; empty for the fence_token of a reconciler, which no attempt has
}

func (f Fence) validate() error {
	if err := validName("namespace", f.Namespace); err != nil {
		return err
	}
	if err := validName("key", f.Key); err != nil {
		return err
	}
	if f.Token == 0 {
		return invalid("token", "must not be 0")
	}
	if f.Attempt == "" {
		return nil
	}
	return validName("attempt", f.Attempt)
}

func validName(field, text string) error {
	switch {
	case text == "":
		return invalid(field, "must not be empty")
	case !utf8.ValidString(text):
		return invalid(field, "must be valid UTF-8")
	case utf8.RuneCountInString(text) > MaxName:
		return invalid(field, "must be at most 191 Unicode characters long")
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		return invalid(field, "must not contain control characters")
	}
	return nil
}

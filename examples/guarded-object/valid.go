package main

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orbitkit/orbit/resourceguard"
)

func fence(w resourceguard.Write) resourceguard.Fence {
	return resourceguard.Fence{Namespace: w.Namespace, Key: w.Key, Token: w.Token, Attempt: w.Attempt}
}

// validWrite keeps to the rules of resourceguard.Write.
func validWrite(w resourceguard.Write) error {
	if w.Attempt == "" {
		return &resourceguard.InvalidError{Field: "attempt", Rule: "must not be empty"}
	}
	if err := validFence(fence(w)); err != nil {
		return err
	}
	if len(w.Content) == 0 {
		return &resourceguard.InvalidError{Field: "content", Rule: "must not be empty"}
	}
	return validName("operation", w.Operation)
}

// validFence takes an empty attempt for that of a reconciler.
func validFence(f resourceguard.Fence) error {
	if f.Token == 0 {
		return &resourceguard.InvalidError{Field: "token", Rule: "must not be 0"}
	}
	if err := validName("namespace", f.Namespace); err != nil {
		return err
	}
	if err := validName("key", f.Key); err != nil || f.Attempt == "" {
		return err
	}
	return validName("attempt", f.Attempt)
}

func validOperation(namespace, key, id string) error {
	if err := validName("namespace", namespace); err != nil {
		return err
	}
	if err := validName("key", key); err != nil {
		return err
	}
	return validName("operation", id)
}

func validReceipt(receipt []byte) error {
	if len(receipt) > resourceguard.MaxReceipt {
		return &resourceguard.InvalidError{Field: "receipt", Rule: "must be at most 256 KiB"}
	}
	return nil
}

func validName(field, text string) error {
	rule := ""
	switch {
	case text == "":
		rule = "must not be empty"
	case !utf8.ValidString(text):
		rule = "must be valid UTF-8"
	case utf8.RuneCountInString(text) > resourceguard.MaxName:
		rule = "must be at most 191 Unicode characters long"
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		rule = "must not contain control characters"
	default:
		return nil
	}
	return &resourceguard.InvalidError{Field: field, Rule: rule}
}

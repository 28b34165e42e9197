package orbit

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ValidID reports whether id is an id of the contract: 32 lower-case hexadecimal
// characters.
func ValidID(id string) bool { return len(id) == 32 && isLowerHex(id) }

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// ValidateIdempotencyKey refuses a key that is not 1 to 128 printable ASCII
// characters without blanks (IDEM-001). Its error is an [*InvalidArgumentError].
func ValidateIdempotencyKey(key string) error {
	if len(key) < 1 || len(key) > MaxIdempotencyKey || strings.IndexFunc(key, notPrintable) >= 0 {
		return invalid("idempotency_key", "must be 1 to 128 printable ASCII characters without blanks")
	}
	return nil
}

func notPrintable(r rune) bool { return r < 0x21 || r > 0x7e }

// ValidateConcurrencyKey is the whole set of rules of a resource key: at most 191
// Unicode characters of valid UTF-8, no control character, no white space at
// either end. The empty key is valid and means none. Keys are equal if their bytes
// are: nothing is folded or normalised, and a key of zero-width characters is a
// key like any other. Its error is an [*InvalidArgumentError].
func ValidateConcurrencyKey(key string) error {
	const field = "concurrency_key"
	if key == "" {
		return nil
	}
	if err := validText(field, key, MaxConcurrencyKey); err != nil {
		return err
	}
	if strings.IndexFunc(key, unicode.IsControl) >= 0 {
		return invalid(field, "must not contain control characters")
	}
	first, _ := utf8.DecodeRuneInString(key)
	last, _ := utf8.DecodeLastRuneInString(key)
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return invalid(field, "must not begin or end with white space")
	}
	return nil
}

// ValidateBusinessKey refuses a business key of more than 191 Unicode characters,
// or with NUL or a line break. Blanks are kept and count. Empty means none. Its
// error is an [*InvalidArgumentError].
func ValidateBusinessKey(key string) error {
	const field = "business_key"
	if err := validText(field, key, MaxBusinessKey); err != nil {
		return err
	}
	if strings.ContainsAny(key, "\x00\n\r") {
		return invalid(field, "must not contain NUL or line breaks")
	}
	return nil
}

func validText(field, text string, most int) error {
	if !utf8.ValidString(text) {
		return invalid(field, "must be valid UTF-8")
	}
	if utf8.RuneCountInString(text) > most {
		return invalidf(field, "must be at most %d Unicode characters long", most)
	}
	return nil
}

// validName checks a handler name or a version (SUB-008).
func validName(field, name string, most int) error {
	if len(name) < 1 || len(name) > most {
		return invalidf(field, "must be 1 to %d characters long", most)
	}
	for i := range len(name) {
		if !nameByte(name[i]) || i == 0 && !alphanumeric(name[i]) {
			return invalid(field, "must begin with an ASCII letter or digit and contain only letters, digits, '_', '.', ':' and '-'")
		}
	}
	return nil
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func nameByte(c byte) bool {
	return alphanumeric(c) || c == '_' || c == '.' || c == ':' || c == '-'
}

// ValidateTraceparent checks the form of a W3C trace context: version, trace id,
// parent id and flags in lower-case hex, no all-zero id. Versions after 00 may go
// on after the flags, up to 128 characters. Its error is an
// [*InvalidArgumentError].
func ValidateTraceparent(text string) error {
	if !validTraceparent(text) {
		return invalid("traceparent", "must be a W3C traceparent (version-traceid-parentid-flags in lower-case hex)")
	}
	return nil
}

func validTraceparent(text string) bool {
	const size, most = 55, 128
	if len(text) < size || len(text) > most || strings.IndexFunc(text, notPrintable) >= 0 {
		return false
	}
	part := strings.Split(text[:size], "-")
	if len(part) != 4 || len(part[0]) != 2 || len(part[1]) != 32 || len(part[2]) != 16 || len(part[3]) != 2 {
		return false
	}
	if !isLowerHex(strings.Join(part, "")) || part[0] == "ff" {
		return false
	}
	if strings.Trim(part[1], "0") == "" || strings.Trim(part[2], "0") == "" {
		return false
	}
	return len(text) == size || part[0] != "00" && text[size] == '-'
}

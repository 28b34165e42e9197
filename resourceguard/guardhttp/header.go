package guardhttp

import (
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/orbitkit/orbit/resourceguard"
)

// The headers, see the package comment.
const (
	HeaderNamespace = "Orbit-Namespace"
	HeaderKey       = "Orbit-Key"
	HeaderToken     = "Orbit-Token"
	HeaderAttempt   = "Orbit-Attempt"
	HeaderOperation = "Orbit-Operation"
)

// A text is one header that holds a text, and where it goes in a write.
type text struct {
	header, field string
	of            func(*resourceguard.Write) *string
}

var texts = []text{
	{HeaderNamespace, "namespace", func(w *resourceguard.Write) *string { return &w.Namespace }},
	{HeaderKey, "key", func(w *resourceguard.Write) *string { return &w.Key }},
	{HeaderAttempt, "attempt", func(w *resourceguard.Write) *string { return &w.Attempt }},
	{HeaderOperation, "operation", func(w *resourceguard.Write) *string { return &w.Operation }},
}

// A HeaderError tells which header breaks which rule. It never holds the value.
type HeaderError struct {
	Header, Rule string
}

// Error returns the header and the rule.
func (e *HeaderError) Error() string { return "guardhttp: header " + e.Header + " " + e.Rule }

// Set puts the headers of w into h, in place of those that are there. The content does
// not travel with them. An invalid w changes nothing and gives an error that is a
// [resourceguard.ErrInvalid], as does a nil h.
func Set(h http.Header, w resourceguard.Write) error {
	if h == nil {
		return &resourceguard.InvalidError{Field: "h", Rule: "must be given"}
	}
	for _, t := range texts {
		if err := resourceguard.ValidateName(t.field, *t.of(&w)); err != nil {
			return err
		}
	}
	if w.Token == 0 {
		return &resourceguard.InvalidError{Field: "token", Rule: "must not be 0"}
	}
	for _, t := range texts {
		h.Set(t.header, escape(*t.of(&w)))
	}
	h.Set(HeaderToken, strconv.FormatUint(w.Token, 10))
	return nil
}

// Parse reads the headers strictly (RG-020). The write has no content yet. The error is a
// [*HeaderError].
func Parse(h http.Header) (resourceguard.Write, error) {
	var w resourceguard.Write
	for _, t := range texts {
		value, err := single(h, t.header)
		if err != nil {
			return resourceguard.Write{}, err
		}
		if *t.of(&w), err = readText(t, value); err != nil {
			return resourceguard.Write{}, err
		}
	}
	value, err := single(h, HeaderToken)
	if err != nil {
		return resourceguard.Write{}, err
	}
	w.Token, err = readToken(value)
	return w, err
}

func single(h http.Header, name string) (string, error) {
	switch values := h.Values(name); {
	case len(values) == 0:
		return "", &HeaderError{name, "is required"}
	case len(values) > 1:
		return "", &HeaderError{name, "must be given once"}
	default:
		return values[0], nil
	}
}

func readToken(value string) (uint64, error) {
	const rule = "must be a decimal integer from 1 to 18446744073709551615 without sign, leading zeros or blanks"
	token, err := strconv.ParseUint(value, 10, 64)
	if err != nil || token == 0 || strconv.FormatUint(token, 10) != value {
		return 0, &HeaderError{HeaderToken, rule}
	}
	return token, nil
}

func readText(t text, value string) (string, error) {
	plain, ok := unescape(value)
	if !ok || escape(plain) != value { // one form only: a proxy may have judged it by its text
		return "", &HeaderError{t.header, "must be printable ASCII without blanks; every other byte, and '%', but nothing else, as '%' and two upper-case hexadecimal digits"}
	}
	if err := resourceguard.ValidateName(t.field, plain); err != nil {
		rule := "is invalid"
		if invalid := (*resourceguard.InvalidError)(nil); errors.As(err, &invalid) {
			rule = invalid.Rule
		}
		return "", &HeaderError{t.header, rule}
	}
	return plain, nil
}

func plainByte(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plainByte(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteString(strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}

func unescape(s string) (plain string, ok bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case plainByte(c):
			b = append(b, c)
		case c == '%' && i+2 < len(s):
			var err error
			if b, err = hex.AppendDecode(b, []byte(s[i+1:i+3])); err != nil {
				return "", false
			}
			i += 2
		default:
			return "", false
		}
	}
	return string(b), true
}

package strictjson

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

const hexDigits = "0123456789abcdef"

// AppendCanonicalString appends s, which must be valid UTF-8, with the fewest
// escapes: \" and \\ and \u00xx below U+0020.
func AppendCanonicalString[Text ~string | ~[]byte](dst []byte, s Text) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// unquote returns the text of a string literal that the tokenizer has accepted.
// Without escapes it is a part of the literal itself.
func unquote(literal []byte) []byte {
	if bytes.IndexByte(literal, '\\') < 0 {
		return literal[1 : len(literal)-1]
	}
	text, err := jsontext.AppendUnquote(make([]byte, 0, len(literal)), literal)
	if err != nil {
		// The tokenizer has just accepted this literal under the same rules.
		panic("strictjson: accepted string cannot be unquoted: " + err.Error())
	}
	return text
}

package strictjson

import (
	"bytes"
	"strconv"
)

// Bounds of a number, the same for every number of a document.
const (
	MaxNumberLength = 256 // characters of the literal
	MaxExponent     = 308 // of the explicit and of the canonical exponent, either sign
)

const (
	ruleNumberLength = "number literal must be at most 256 characters long"
	ruleExponent     = "number exponent must be within -308 and 308"
	ruleStripped     = "number exponent, without trailing zeros in the coefficient, must be within -308 and 308"
	ruleMagnitude    = "number must be within the range of a finite double"
)

// decimal is a number as sign, coefficient and exponent, taken from text. The
// coefficient has neither leading nor trailing zeros; zero has none at all.
type decimal struct {
	negative bool
	digits   []byte
	exponent int
}

// appendNumber appends the canonical text of a literal that is valid by the JSON
// grammar, or returns the rule that it breaks.
func appendNumber(dst, literal []byte, maxLength int) (out []byte, rule string) {
	if len(literal) > maxLength {
		return dst, ruleNumberLength
	}
	if isDigits(literal) && len(literal) < MaxExponent { // most numbers are: no rule can be broken
		return appendWhole(dst, literal), ""
	}
	var room [MaxNumberLength]byte
	d, rule := parseNumber(room[:0], literal)
	if rule != "" {
		return dst, rule
	}
	return d.append(dst), ""
}

// appendWhole appends the canonical text of a literal of digits alone.
func appendWhole(dst, literal []byte) []byte {
	coefficient := bytes.TrimRight(literal, "0")
	if len(coefficient) == 0 {
		return append(dst, '0')
	}
	dst = append(append(dst, coefficient...), 'e')
	return strconv.AppendInt(dst, int64(len(literal)-len(coefficient)), 10)
}

// checkNumber returns the rule that a literal breaks, if any.
func checkNumber(literal []byte) string {
	if isDigits(literal) && len(literal) <= MaxNumberLength {
		return ""
	}
	var room [MaxNumberLength + 8]byte
	_, rule := appendNumber(room[:0], literal, MaxNumberLength)
	return rule
}

// parseNumber splits a literal; the coefficient is built in room.
func parseNumber(room, literal []byte) (decimal, string) {
	d := decimal{negative: literal[0] == '-'}
	mantissa, explicit, ok := cutExponent(bytes.TrimPrefix(literal, []byte("-")))
	if !ok {
		return d, ruleExponent
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := bytes.TrimLeft(append(append(room, whole...), fraction...), "0")
	d.digits = bytes.TrimRight(digits, "0")
	if len(d.digits) == 0 {
		return decimal{}, "" // zero has no sign and no exponent
	}
	d.exponent = explicit - len(fraction) + len(digits) - len(d.digits)
	if d.exponent < -MaxExponent || d.exponent > MaxExponent {
		return d, ruleStripped
	}
	if !d.finite(literal) {
		return d, ruleMagnitude
	}
	return d, ""
}

// cutExponent separates the explicit exponent and reports whether it is in range.
func cutExponent(literal []byte) (mantissa []byte, exponent int, ok bool) {
	i := bytes.IndexAny(literal, "eE")
	if i < 0 {
		return literal, 0, true
	}
	text := literal[i+1:]
	negative := text[0] == '-'
	digits := bytes.TrimLeft(bytes.TrimLeft(text, "+-"), "0")
	if len(digits) > 3 {
		return nil, 0, false
	}
	for _, c := range digits {
		exponent = exponent*10 + int(c-'0')
	}
	if exponent > MaxExponent {
		return nil, 0, false
	}
	if negative {
		exponent = -exponent
	}
	return literal[:i], exponent, true
}

// finite reports whether rounding to a double stays finite. Anything below
// 10^308 does; only the edge needs the exact rounding of ParseFloat, whose result
// is looked at by nobody.
func (d decimal) finite(literal []byte) bool {
	if len(d.digits)+d.exponent <= MaxExponent {
		return true
	}
	_, err := strconv.ParseFloat(string(literal), 64)
	return err == nil
}

func (d decimal) append(dst []byte) []byte {
	if len(d.digits) == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	dst = append(append(dst, d.digits...), 'e')
	return strconv.AppendInt(dst, int64(d.exponent), 10)
}

// AppendCanonicalUint appends n in the canonical form of a number.
func AppendCanonicalUint(dst []byte, n uint64) []byte {
	var room [20]byte
	dst, _ = appendNumber(dst, strconv.AppendUint(room[:0], n, 10), MaxNumberLength)
	return dst
}

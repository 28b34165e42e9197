package orbit

import (
	"errors"
	"time"
)

const (
	minYear = 2000
	maxYear = 9998

	timeLayout      = "2006-01-02T15:04:05.999999Z07:00"
	canonicalLayout = "2006-01-02T15:04:05.000000Z07:00"
)

var (
	errTimeForm = errors.New("must be an RFC 3339 time such as 2026-09-17T00:00:00Z, with at most 6 fractional digits")
	errTimeYear = errors.New("must lie in the years 2000 to 9998 in UTC")
	errTimeFine = errors.New("must not be finer than microseconds (use Truncate)")
)

// ParseTime reads a time of the contract and returns it in UTC. It takes RFC 3339
// with upper-case T and Z, an offset of at most 23:59 either way, a fraction of
// one to six digits and seconds below 60; the year in UTC lies in 2000 to 9998.
// The error tells the rule and not the text.
func ParseTime(text string) (time.Time, error) {
	t, rest, ok := parseClock(text)
	if !ok {
		return time.Time{}, errTimeForm
	}
	micros, rest, ok := parseFraction(rest)
	if !ok {
		return time.Time{}, errTimeForm
	}
	offset, ok := parseOffset(rest)
	if !ok {
		return time.Time{}, errTimeForm
	}
	t = t.Add(time.Duration(micros)*time.Microsecond - offset)
	return t, checkTime(t)
}

// FormatTime writes t in UTC with at most six fractional digits, as answers have
// it. What is finer than a microsecond is cut off.
func FormatTime(t time.Time) string { return string(AppendTime(nil, t)) }

// AppendTime is [FormatTime] onto dst, without quotes.
func AppendTime(dst []byte, t time.Time) []byte { return t.UTC().AppendFormat(dst, timeLayout) }

// checkTime holds t to the bounds of an input time.
func checkTime(t time.Time) error {
	switch year := t.UTC().Year(); {
	case year < minYear || year > maxYear:
		return errTimeYear
	case t.Nanosecond()%1000 != 0:
		return errTimeFine
	}
	return nil
}

// parseClock reads 2006-01-02T15:04:05 and returns what follows.
func parseClock(text string) (t time.Time, rest string, ok bool) {
	const form = "dddd-dd-ddTdd:dd:dd"
	if len(text) < len(form) || !matches(text[:len(form)], form) {
		return t, "", false
	}
	year, month, day := number(text[0:4]), number(text[5:7]), number(text[8:10])
	hour, minute, second := number(text[11:13]), number(text[14:16]), number(text[17:19])
	if hour > 23 || minute > 59 || second > 59 {
		return t, "", false
	}
	t = time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	// time.Date moves a day that does not exist into the next month.
	same := t.Day() == day && t.Month() == time.Month(month)
	return t, text[len(form):], same
}

func parseFraction(text string) (micros int, rest string, ok bool) {
	if text == "" || text[0] != '.' {
		return 0, text, true
	}
	n := 1
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	digits := text[1:n]
	if len(digits) < 1 || len(digits) > 6 {
		return 0, "", false
	}
	return number((digits + "00000")[:6]), text[n:], true
}

func parseOffset(text string) (time.Duration, bool) {
	if text == "Z" {
		return 0, true
	}
	if !matches(text, "+dd:dd") && !matches(text, "-dd:dd") {
		return 0, false
	}
	hours, minutes := number(text[1:3]), number(text[4:6])
	if hours > 23 || minutes > 59 {
		return 0, false
	}
	offset := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if text[0] == '-' {
		offset = -offset
	}
	return offset, true
}

// matches compares text with a form in which d stands for a digit.
func matches(text, form string) bool {
	if len(text) != len(form) {
		return false
	}
	for i := range len(form) {
		if form[i] == 'd' && !isDigit(text[i]) || form[i] != 'd' && form[i] != text[i] {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// number reads digits that are known to be digits.
func number(digits string) int {
	n := 0
	for i := range len(digits) {
		n = n*10 + int(digits[i]-'0')
	}
	return n
}

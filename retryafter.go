package orbit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ParseRetryAfter reads a Retry-After header: whole seconds, or an HTTP date, which
// is compared with now (a date that has passed gives 0). It reports false if value
// is neither. A negative number of seconds is returned as it is and one too large
// for a Duration as the largest: the caller clamps both to what it can bear.
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if digits := strings.TrimPrefix(value, "-"); digits != "" && strings.Trim(digits, "0123456789") == "" {
		return retrySeconds(value), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(now)), true
}

func retrySeconds(text string) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	n, _ := strconv.ParseInt(text, 10, 64) // out of range gives the bound itself
	switch {
	case n > most:
		return math.MaxInt64
	case n < -most:
		return math.MinInt64
	}
	return time.Duration(n) * time.Second
}

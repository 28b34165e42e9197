package cli

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// A day is 24 hours: durations are spans of time, and no calendar's.
const day = 24 * time.Hour

var withDays = regexp.MustCompile(`^([0-9]+)d(.*)$`)

// ParseDuration reads a duration as [time.ParseDuration] does, and days besides: "90d" and
// "1d12h" are a number of days of 24 hours, first and whole, and what else comes after them.
func ParseDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is no duration such as 90d, 1d12h, 36h or 30m", text)
	m := withDays.FindStringSubmatch(text)
	if m == nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, bad
		}
		return d, nil
	}
	days, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || days > math.MaxInt64/int64(day) {
		return 0, bad
	}
	rest := time.Duration(0)
	if m[2] != "" {
		if rest, err = time.ParseDuration(m[2]); err != nil || m[2][0] == '-' || m[2][0] == '+' {
			return 0, bad
		}
	}
	d := time.Duration(days)*day + rest
	if d < 0 {
		return 0, bad // more than 292 years
	}
	return d, nil
}

// FormatDuration writes a duration as people give it: days first, without units that are
// zero, such as "90d" and "1d12h".
func FormatDuration(d time.Duration) string {
	text := ""
	if days := d / day; days > 0 {
		text, d = strconv.FormatInt(int64(days), 10)+"d", d%day
		if d == 0 {
			return text
		}
	}
	return text + shortened.ReplaceAllString(d.String(), "$1")
}

// shortened finds the zero units at the end of a duration in Go's notation.
var shortened = regexp.MustCompile(`([hm])(?:0m)?0s$`)

// DurationVar is a flag that takes what [ParseDuration] reads.
func DurationVar(flags *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	flags.Var((*duration)(d), name, usage)
}

type duration time.Duration

// Set implements [pflag.Value].
func (d *duration) Set(text string) error {
	parsed, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = duration(parsed)
	return nil
}

// String implements [pflag.Value]. Help shows no default that is "0".
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return FormatDuration(time.Duration(*d))
}

// Type implements [pflag.Value].
func (d *duration) Type() string { return "duration" }

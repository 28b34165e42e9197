package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

const (
	whole      = "must be a whole number"
	wholeFrom0 = "must be a whole number from 0 to 18446744073709551615"
)

// rules are what may stand after flags of a type, in words for people. The errors of Go's
// parsers name functions of Go.
var rules = map[string]string{
	"int": whole, "int64": whole, "uint": wholeFrom0, "uint64": wholeFrom0,
	"duration": "must be a duration such as 500ms, 10s or 2h", "bool": "must be true or false",
}

// flagError puts a mistake in a flag in one line that names the flag and the rule.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	if _, own := flag.Value.(*duration); own {
		return fmt.Errorf("--%s: %w", flag.Name, invalid.Unwrap())
	}
	if rule := rules[flag.Value.Type()]; rule != "" {
		return fmt.Errorf("--%s %q: %s", flag.Name, invalid.GetValue(), rule)
	}
	return err
}

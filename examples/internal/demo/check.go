package demo

import (
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
)

// Same returns an error that names what was compared, unless got is want.
func Same[T comparable](what string, got, want T) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%s is %v, want %v", what, got, want)
}

// Refused returns the server's refusal if err is one with this code, and otherwise an error
// that tells what was expected.
func Refused(act string, err error, code string) (*orbit.APIError, error) {
	var refusal *orbit.APIError
	switch {
	case err == nil:
		return nil, fmt.Errorf("%s was not refused, want %s", act, code)
	case !errors.As(err, &refusal) || refusal.Code != code:
		return nil, fmt.Errorf("%s: %w, want %s", act, err, code)
	}
	return refusal, nil
}

package drivers_test

import (
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/drivers"
)

// CLI-004, CLI-015
func TestTheEnvironmentNamesExactlyOneDatabase(t *testing.T) {
	const dsn = "root:" + canary + "@tcp(db:3306)/orbit"
	tests := []struct {
		name string
		env  map[string]string
		want string // address, or part of the error
		ok   bool
	}{
		{"dsn", map[string]string{"X_DSN": dsn}, "mysql:" + dsn, true},
		{"address", map[string]string{"X_DATABASE": "sqlite:/x.db"}, "sqlite:/x.db", true},
		{"both", map[string]string{"X_DSN": dsn, "X_DATABASE": "sqlite:/x.db"}, "X_DATABASE and X_DSN are both set", false},
		{"none", nil, "set X_DSN to a MySQL DSN", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := drivers.FromEnvironment(func(name string) string { return test.env[name] }, "X_DATABASE", "X_DSN")
			if test.ok && (err != nil || got != test.want) {
				t.Errorf("address = %q, %v, want %q", got, err, test.want)
			}
			if !test.ok && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), canary)) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
}

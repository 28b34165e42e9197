package drivers

import (
	"strings"
	"testing"
)

// AMB-059
func TestServersThatAreTooOldAreRefused(t *testing.T) {
	tests := []struct {
		version string
		want    string // part of the error; empty for accepted
	}{
		{"8.0.15", "MySQL 8.0.15 is too old: Orbit needs 8.0.16"},
		{"8.0.16", ""},
		{"8.4.10", ""},
		{"9.7.4-2", ""},
		{"5.7.44-log", "MySQL 5.7.44 is too old"},
		{"10.5.29-MariaDB", "MariaDB 10.5.29 is too old: Orbit needs 10.6.0"},
		{"10.6.0-MariaDB-log", ""},
		{"5.5.5-10.11.6-MariaDB", ""},
		{"11.8.2-MariaDB-ubu2404", ""},
		{"five", "is not understood"},
	}
	for _, test := range tests {
		t.Run(test.version, func(t *testing.T) {
			err := checkVersion(test.version)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("checkVersion = %v, want %q", err, test.want)
			}
		})
	}
}

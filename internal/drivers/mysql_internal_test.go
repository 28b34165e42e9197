package drivers

import (
	"strings"
	"testing"
	"time"
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

// A statement of a migration may take longer than any limit of an ordinary connection.
func TestOnlyMigrationsReadWithoutALimit(t *testing.T) {
	tests := []struct {
		parameters string
		patient    bool
		want       time.Duration
	}{
		{"", false, 75 * time.Second},
		{"", true, 0},
		{"?readTimeout=90s", false, 90 * time.Second},
		{"?readTimeout=90s", true, 90 * time.Second},
	}
	for _, test := range tests {
		cfg, err := mysqlConfig("root@tcp(127.0.0.1:1)/orbit"+test.parameters, test.patient)
		if err != nil || cfg.ReadTimeout != test.want {
			t.Errorf("read limit of %q, patient %v = %v, %v, want %v", test.parameters, test.patient, cfg.ReadTimeout, err, test.want)
		}
		if err == nil && (cfg.Timeout == 0 || cfg.WriteTimeout == 0) {
			t.Errorf("limits of %q: dial %v, write %v, want both", test.parameters, cfg.Timeout, cfg.WriteTimeout)
		}
	}
}

package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit/internal/cli"
)

// CLI-017: days besides Go's units, and a clear refusal of all else.
func TestDurationsTakeDays(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90d": 90 * day, "1d12h": 36 * time.Hour, "0d": 0, "2d30m5s": 2*day + 30*time.Minute + 5*time.Second,
		"1d1.5h": day + 90*time.Minute, "106751d": 106751 * day, "36h": 36 * time.Hour, "0": 0, "-1h": -time.Hour, "500ms": 500 * time.Millisecond,
	} {
		got, err := cli.ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "90", "1.5d", "-1d", "1d-1h", "1d+1h", "1d2d", "1h1d", "1 d", "d1", "106752d", "106751d24h", "99999999999999999999d", "1w"} {
		if got, err := cli.ParseDuration(text); err == nil || !strings.Contains(err.Error(), "90d") {
			t.Errorf("ParseDuration(%q) = %v, %v; want an error that shows how", text, got, err)
		}
	}
}

func TestDurationsAreWrittenAsTheyAreGiven(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 24 * time.Hour: "1d", 36 * time.Hour: "1d12h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", time.Hour: "1h",
		20 * time.Hour: "20h", 10 * time.Minute: "10m", 24*time.Hour + time.Second: "1d1s", -time.Hour: "-1h", 20 * time.Second: "20s",
	} {
		got := cli.FormatDuration(d)
		back, err := cli.ParseDuration(got)
		if got != want || err != nil || back != d {
			t.Errorf("FormatDuration(%v) = %q, read as %v, %v; want %q", d, got, back, err, want)
		}
	}
}

func TestADurationIsAFlag(t *testing.T) {
	var d time.Duration
	flags := pflag.NewFlagSet("f", pflag.ContinueOnError)
	cli.DurationVar(flags, &d, "age", 24*time.Hour, "how old")
	if d != 24*time.Hour || !strings.Contains(flags.FlagUsages(), "(default 1d)") {
		t.Errorf("default %v, %s", d, flags.FlagUsages())
	}
	var none time.Duration
	cli.DurationVar(flags, &none, "none", 0, "nothing")
	if strings.Contains(flags.FlagUsages(), "(default 0") {
		t.Errorf("help shows a default that is none: %s", flags.FlagUsages())
	}
	if err := flags.Parse([]string{"--age", "3d"}); err != nil || d != 72*time.Hour {
		t.Errorf("--age 3d = %v, %v", d, err)
	}
	if err := flags.Parse([]string{"--age", "x"}); err == nil || !strings.Contains(err.Error(), "--age") {
		t.Errorf("--age x = %v, want an error that names the flag", err)
	}
}

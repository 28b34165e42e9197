package main

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// IDEM-016: nothing is deleted unless an age is given, and none below the floor is taken.
func TestRetentionIsReadFromFlagOrEnvironment(t *testing.T) {
	tests := []struct {
		flag, variable string
		want           time.Duration
		says           string
	}{
		{"", "", 0, ""},
		{"0", "", 0, ""},
		{"2160h", "", 2160 * time.Hour, ""},
		{"", "24h", 24 * time.Hour, ""},
		{"48h", "24h", 48 * time.Hour, ""},
		{"0", "24h", 0, ""},
		{"90d", "", 90 * 24 * time.Hour, ""},
		{"", "1d12h", 36 * time.Hour, ""},
		{"90", "", 0, `"90"`},
		{"23h59m59s", "", 0, "at least 1d"},
		{"-24h", "", 0, "at least 1d"},
		{"", "soon", 0, "ORBIT_RETENTION"},
	}
	for _, tt := range tests {
		s := settings{retention: tt.flag}
		got, err := s.readRetention(cli.Environment{Get: func(string) string { return tt.variable }})
		if got != tt.want || (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("--retention %q, ORBIT_RETENTION %q: %v, %v; want %v, %q", tt.flag, tt.variable, got, err, tt.want, tt.says)
		}
	}
}

func TestMetricsAreServedOnAnAddressOfTheirOwn(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	env := map[string]string{"ORBIT_DATABASE": db.Address, "ORBIT_HTTP_ADDR": "127.0.0.1:0", "ORBIT_METRICS_ADDR": "127.0.0.1:0", "ORBIT_RETENTION": "2160h"}
	addr, errs, stop := runNode(t, env)
	serving := regexp.MustCompile(`msg="serving metrics" .*addr=(\S+)`)
	var m []string
	for range 1000 {
		if m = serving.FindStringSubmatch(errs.String()); m != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if m == nil {
		t.Fatalf("no metrics: %s", errs)
	}
	get := func(url string) (int, string) {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get("http://" + m[1] + "/metrics"); code != http.StatusOK || !strings.Contains(body, "orbit_accept_tasks_total 0") {
		t.Errorf("metrics = %d %.200s", code, body)
	}
	if code, _ := get("http://" + addr + "/metrics"); code != http.StatusNotFound {
		t.Errorf("/metrics of the interface = %d, want 404", code)
	}
	if code := stop(); code != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestMistakesOfUpkeepAreOneLineAndExit2(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	env := map[string]string{"ORBIT_DATABASE": dbtest.Open(t, dbtest.SQLite, migrations.Server).Address, "ORBIT_HTTP_ADDR": "127.0.0.1:0"}
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--retention", "1h"}, "--retention"},
		{[]string{"--retention", "x"}, "--retention"},
		{[]string{"--metrics-addr", "nowhere"}, "--metrics-addr"},
		{[]string{"--metrics-addr", taken.Addr().String()}, "--metrics-addr"},
	} {
		out, errs := &output{}, &output{}
		code := program.Run(t.Context(), tt.args, cli.Environment{Get: func(name string) string { return env[name] }, Out: out, Err: errs})
		if code != cli.ExitUsage || !strings.Contains(errs.String(), tt.says) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: exit %d, %q", tt.args, code, errs)
		}
	}
}

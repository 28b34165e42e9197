//go:build linux

package faults

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
)

// built is the program orbit-relay in a folder that TestMain removes.
var built = sync.OnceValues(func() (program string, err error) {
	if builtIn, err = os.MkdirTemp("", "orbit-faults-"); err != nil {
		return "", err
	}
	program = filepath.Join(builtIn, "orbit-relay")
	build := exec.Command("go", "build", "-o", program, "github.com/orbitkit/orbit/cmd/orbit-relay")
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" { // its packages are built already
				build.Args = append(build.Args[:2:2], append([]string{"-race"}, build.Args[2:]...)...)
			}
		}
	}
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return program, nil
})

var builtIn string

// A verdict is what orbit-relay verify says.
type verdict struct {
	Rows   int64 `json:"rows"`
	Count  int64 `json:"fault_count"`
	Faults []struct {
		Row  int64  `json:"row"`
		Rule string `json:"rule"`
	} `json:"faults"`
}

// verify runs orbit-relay verify as an operator does, on the business database itself.
func (s *shop) verify() (v verdict, code int) {
	s.Helper()
	program, err := built()
	if err != nil {
		s.Fatal(err)
	}
	var text, complaint strings.Builder
	cmd := exec.CommandContext(s.Context(), program, "verify", "--json")
	cmd.Env = append(os.Environ(), "ORBIT_RELAY_DATABASE="+s.business.Address)
	cmd.Stdout, cmd.Stderr = &text, &complaint
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		s.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text.String()), &v); err != nil {
		s.Fatalf("orbit-relay verify: %v: %s%s", err, text.String(), complaint.String())
	}
	return v, cmd.ProcessState.ExitCode()
}

// verified holds the whole outbox to what orbit-relay verify says, and the command to its
// word: with the digest of one row gone it must find that row.
func (s *shop) verified() {
	s.Helper()
	rows := s.businessCount("SELECT COUNT(*) FROM orbit_outbox")
	if v, code := s.verify(); code != 0 || v.Count != 0 || v.Rows != rows {
		s.Errorf("orbit-relay verify: exit %d, %+v; want 0, and no fault in %d rows", code, v, rows)
	}
	seq := s.businessCount("SELECT MAX(seq) FROM orbit_outbox WHERE state = 2")
	s.change("UPDATE orbit_outbox SET request_sha256 = ? WHERE seq = ?", make([]byte, 32), seq)
	if v, code := s.verify(); code != 1 || len(v.Faults) != 1 || v.Faults[0].Row != seq {
		s.Errorf("orbit-relay verify of a damaged row %d: exit %d, %+v; want 1 and that row", seq, code, v)
	}
}

package examples_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
)

// EX-009, EX-010, EX-012, OUT-001, OUT-002, OUT-005: the service and the relay that the
// documented commands start run to the output that README.md prints, again and again, and the
// database is left without a fault.
func TestOutboxExampleRunsToItsExactOutput(t *testing.T) {
	want := printed(t)["outbox"]
	programs := build(t)
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			i := install(t, programs, engine)
			env := append(i.env(), "SHOP_DATABASE="+dbtest.Open(t, engine).Address)
			migrate, relay := outboxCommands(t)
			if out, err := shellCommand(t.Context(), programs, env, migrate).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", migrate, err, out)
			}
			// Nothing is lost while no relay runs: it is started after the first order.
			first := programs.command(t.Context(), env, "outbox")
			var out, errs bytes.Buffer
			first.Stdout, first.Stderr = &out, &errs
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			runRelay(t, shellCommand(context.Background(), programs, env, "exec env "+relay))
			if err := first.Wait(); err != nil || out.String() != want || errs.Len() > 0 || want == "" {
				t.Errorf("%v\n%s\nREADME.md has\n%s\nstderr: %s", err, &out, want, &errs)
			}
			if r := programs.run(t, env, "outbox"); r.code != 0 || r.out != want || r.err != "" {
				t.Errorf("again: exit %d\n%s\nstderr: %s", r.code, r.out, r.err)
			}
			verify := shellCommand(t.Context(), programs, env, "ORBIT_RELAY_DATABASE=$SHOP_DATABASE orbit-relay verify")
			if text, err := verify.CombinedOutput(); err != nil || !strings.Contains(string(text), "0 faults") {
				t.Errorf("verify: %v\n%s", err, text)
			}
		})
	}
}

// outboxCommands returns what README.md tells to type, for programs that are built already.
func outboxCommands(t *testing.T) (migrate, relay string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^(ORBIT_DATABASE=.* up --set outbox)\n(ORBIT_RELAY_DATABASE=.* --target shipping)$`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("README.md has no commands for the outbox example")
	}
	return strings.ReplaceAll(m[1], "go run ./cmd/", ""), strings.ReplaceAll(m[2], "go run ./cmd/", "")
}

func shellCommand(ctx context.Context, programs binaries, env []string, line string) *exec.Cmd {
	shell := exec.CommandContext(ctx, "sh", "-c", line)
	shell.Env = append(programs.command(ctx, env, "none").Env, "PATH="+string(programs)+":"+os.Getenv("PATH"))
	return shell
}

// runRelay starts a relay, and stops it when the test ends: it goes in peace.
func runRelay(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer // read once the process has ended
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("relay: %v\n%s", err, &log)
		}
	})
}

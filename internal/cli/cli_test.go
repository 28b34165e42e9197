package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
)

var errRefused = errors.New("refused")

// sample is a program with one command of each kind.
func sample(env cli.Environment) *cobra.Command {
	fail := func(err error) func(*cobra.Command, []string) error {
		return func(*cobra.Command, []string) error { return err }
	}
	root := &cobra.Command{Use: "sample"}
	group := &cobra.Command{Use: "group", Short: "Lead to others"}
	group.AddCommand(
		&cobra.Command{Use: "one", Args: cli.OneArgument("the name of one thing"), RunE: func(_ *cobra.Command, args []string) error {
			_, err := fmt.Fprintln(env.Out, env.Get("GREETING"), args[0])
			return err
		}},
		&cobra.Command{Use: "fail", RunE: fail(errors.New("it went wrong"))},
	)
	root.AddCommand(group,
		&cobra.Command{Use: "refuse", RunE: fail(fmt.Errorf("sorry: %w", errRefused))},
		&cobra.Command{Use: "mistake", RunE: fail(fmt.Errorf("deep: %w", cli.Usage(errors.New("bad flag"))))},
		&cobra.Command{Use: "wait", RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprintln(env.Out, "waiting")
			<-c.Context().Done()
			fmt.Fprintln(env.Out, "stopping")
			if env.Get("STUCK") != "" {
				select {}
			}
			return nil
		}})
	return root
}

var program = cli.Program{Root: sample, Variables: "GREETING  what to say\nSTUCK     whether to stay", Mistakes: func(err error) bool { return errors.Is(err, errRefused) }}

// CLI-014, CLI-017: exit codes, and one line for each error.
func TestRunTellsMistakesFromFailures(t *testing.T) {
	cases := []struct {
		args string
		code int
		out  string
		errs string
	}{
		{"group one x", 0, "hello x\n", ""},
		{"", 2, "", "sample: say what to do: group, mistake, refuse or wait (--help explains)\n"},
		{"group", 2, "", "sample: say what to do: fail or one (--help explains)\n"},
		{"group one", 2, "", "sample: one needs the name of one thing\n"},
		{"group one x y", 2, "", "sample: one needs the name of one thing\n"},
		{"group fail", 1, "", "sample: it went wrong\n"},
		{"group fail x", 2, "", "sample: unknown command or argument \"x\" (--help lists the commands)\n"},
		{"nothing", 2, "", "sample: unknown command or argument \"nothing\" (--help lists the commands)\n"},
		{"group nothing", 2, "", "sample: unknown command or argument \"nothing\" (--help lists the commands)\n"},
		{"refuse", 2, "", "sample: sorry: refused\n"},
		{"mistake", 2, "", "sample: deep: bad flag\n"},
		{"group fail --none", 2, "", "sample: unknown flag: --none\n"},
	}
	for _, c := range cases {
		var out, errs bytes.Buffer
		env := cli.Environment{Get: func(string) string { return "hello" }, Out: &out, Err: &errs}
		code := program.Run(t.Context(), strings.Fields(c.args), env)
		if code != c.code || out.String() != c.out || errs.String() != c.errs {
			t.Errorf("%q: exit %d, %q, %q; want %d, %q, %q", c.args, code, &out, &errs, c.code, c.out, c.errs)
		}
	}
}

func TestVersionAndHelpSucceed(t *testing.T) {
	for args, want := range map[string]string{"--version": "sample ", "--help": "refuse", "group --help": "one"} {
		var out bytes.Buffer
		env := cli.Environment{Out: &out, Err: io.Discard}
		if code := program.Run(context.Background(), strings.Fields(args), env); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d, %q; want %q", args, code, &out, want)
		}
	}
}

// CLI-017: the help of each command, also of those deep in the tree, names the environment
// and the exit codes.
func TestEveryHelpNamesEnvironmentAndExitCodes(t *testing.T) {
	for _, args := range []string{"--help", "group --help", "group one --help", "help group fail"} {
		var out bytes.Buffer
		program.Run(t.Context(), strings.Fields(args), cli.Environment{Out: &out, Err: io.Discard})
		const want = "\nEnvironment:\n  GREETING  what to say\n  STUCK     whether to stay\n\nExit codes:\n  0 done; 1 refused"
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%s does not say once %q:\n%s", args, want, &out)
		}
	}
}

// TestMain lets this binary be the program whose signals TestSignals tries.
func TestMain(m *testing.M) {
	if os.Getenv("CLI_TEST_PROGRAM") != "" {
		os.Args = []string{"sample", "wait"}
		program.Main()
	}
	os.Exit(m.Run())
}

// CLI-018: the first signal asks, the second ends.
func TestSignals(t *testing.T) {
	if c, out := start(t); signal(c) != nil || c.Wait() != nil {
		t.Errorf("after one signal: %v, %q; want exit 0", c.ProcessState, out)
	}
	c, out := start(t, "STUCK=1")
	if err := signal(c); err != nil {
		t.Fatal(err)
	}
	next(t, out, "stopping")
	if err := signal(c); err != nil {
		t.Fatal(err)
	}
	c.Wait() // its error is the signal
	if status := c.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("after two signals: %v, want an end by SIGTERM", c.ProcessState)
	}
}

func signal(c *exec.Cmd) error { return c.Process.Signal(syscall.SIGTERM) }

// start runs the program until it waits.
func start(t *testing.T, env ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(append(os.Environ(), "CLI_TEST_PROGRAM=1"), env...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	next(t, out, "waiting")
	return c, out
}

// next reads the next line of the program's output.
func next(t *testing.T, out io.Reader, want string) {
	t.Helper()
	line := make([]byte, len(want)+1)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != want+"\n" {
		t.Fatalf("the program says %q, %v; want %q", line, err, want)
	}
}

package examples_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/freeport"
)

// binaries are the examples and Orbit's programs, built as a user would build them.
type binaries string

// buildDir is where build puts them; TestMain makes and removes it.
var buildDir string

func TestMain(m *testing.M) {
	os.Exit(inBuildDir(m.Run))
}

func inBuildDir(run func() int) int {
	var err error
	if buildDir, err = os.MkdirTemp("", "orbit-examples-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(buildDir)
	return run()
}

var buildOnce = sync.OnceValue(func() error {
	args := []string{"build"}
	if raceEnabled {
		args = append(args, "-race")
	}
	args = append(args, "-o", buildDir+string(filepath.Separator), "../cmd/orbit", "../cmd/orbit-migrate", "../cmd/orbit-admin", "../cmd/orbit-relay")
	programs, err := exampleNames()
	if err != nil {
		return err
	}
	for _, name := range append(programs, "outbox") {
		args = append(args, "./"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
})

func build(t *testing.T) binaries {
	t.Helper()
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	return binaries(buildDir)
}

// alone are the examples that need no server, or more than a server, and have tests of their
// own.
var alone = []string{"quickstart", "handoff-mysql", "guarded-object", "outbox"}

// exampleNames returns the examples that need a server and nothing else, from their folders.
func exampleNames() ([]string, error) {
	programs, err := filepath.Glob("*/main.go")
	var names []string
	for _, program := range programs {
		if name := filepath.Dir(program); !slices.Contains(alone, name) {
			names = append(names, name)
		}
	}
	return names, err
}

// command prepares a program with nothing of Orbit's in its environment but env.
func (b binaries) command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(string(b), name), args...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ORBIT_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// A result is what a program that has ended left.
type result struct {
	code     int
	out, err string
}

// run runs an example to its end.
func (b binaries) run(t *testing.T, env []string, name string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := b.command(t.Context(), env, name)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("%s: %v", name, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// An installation is a server as the documents tell to set one up, with credentials.
type installation struct {
	url   string
	dir   string
	admin func(args ...string)
}

func (i *installation) env() []string {
	return []string{"ORBIT_URL=" + i.url, "ORBIT_CREDENTIALS_FILE=" + i.credentials("full")}
}

func (i *installation) credentials(name string) string { return filepath.Join(i.dir, name+".json") }

// install migrates a database of its own, makes the first credential and starts a server.
func install(t *testing.T, b binaries, engine string) *installation {
	t.Helper()
	database := []string{"ORBIT_DATABASE=" + dbtest.Open(t, engine).Address}
	i := &installation{dir: t.TempDir()}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := b.command(t.Context(), database, name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	i.admin = func(args ...string) { t.Helper(); run("orbit-admin", args...) }
	run("orbit-migrate", "up")
	i.admin("bootstrap", "--application", "examples", "--namespace", "default", "--environment", "test",
		"--queue", "initial", "--worker-access", "--output", i.credentials("full"))
	address := freeport.Address(t)
	i.url = "http://" + address
	serve(t, b.command(context.Background(), append(database, "ORBIT_HTTP_ADDR="+address), "orbit"), i.url)
	return i
}

// serve starts a server, waits until it is ready and stops it when the test ends.
func serve(t *testing.T, cmd *exec.Cmd, url string) {
	t.Helper()
	var log bytes.Buffer // read once the process has ended
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-done; err != nil {
			t.Errorf("server: %v\n%s", err, &log)
		}
	})
	for {
		if resp, err := http.Get(url + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case err := <-done:
			done <- err
			t.Fatalf("server ended early: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

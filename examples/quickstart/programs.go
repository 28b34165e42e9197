package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// programs are Orbit's four commands, built from this checkout, as an operator would
// run them.
type programs struct {
	dir string // where the binaries are
	log string // where their logs go
}

func buildPrograms(ctx context.Context, dir string) (*programs, error) {
	root, err := goOutput(ctx, "list", "-m", "-f", "{{.Dir}}", "github.com/orbitkit/orbit")
	if err != nil {
		return nil, err
	}
	args := []string{"build"}
	if raceEnabled {
		args = append(args, "-race")
	}
	args = append(args, "-o", dir+string(filepath.Separator), "./cmd/orbit", "./cmd/orbit-migrate", "./cmd/orbit-admin", "./cmd/orbit-relay")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build Orbit's programs: %w\n%s", err, out)
	}
	return &programs{dir: dir, log: dir}, nil
}

func goOutput(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// run runs a program to its end.
func (p *programs) run(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, name), args...)
	cmd.Env = childEnv(env)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// A process is a program running beside this one.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

// start starts a program; its output goes to a log file.
func (p *programs) start(env []string, logName, name string, args ...string) (*process, error) {
	path := filepath.Join(p.log, logName+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(filepath.Join(p.dir, name), args...)
	cmd.Env = childEnv(env)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	proc := &process{name: name, cmd: cmd, log: path, done: make(chan struct{})}
	go func() {
		proc.err = cmd.Wait()
		close(proc.done)
	}()
	return proc, nil
}

// kill ends the process as a crash would: SIGKILL, nothing runs after it.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.done
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s ended with %v instead of by the kill", p.name, p.err)
	}
	return nil
}

// stop asks the process to end and waits; a clean end is exit code 0.
func (p *process) stop(bound time.Duration) error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(bound):
		p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not stop within %v", p.name, bound)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.tail())
	}
	return nil
}

// abandon ends the process however it can; for the way out after a failure.
func (p *process) abandon() {
	p.cmd.Process.Kill()
	<-p.done
}

func (p *process) tail() string {
	b, _ := os.ReadFile(p.log)
	return string(b[max(0, len(b)-2000):])
}

// childEnv is this process's environment without Orbit's own variables, plus env.
func childEnv(env []string) []string {
	var all []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "ORBIT_") {
			all = append(all, e)
		}
	}
	return append(all, env...)
}

func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// waitReady waits until the server says that it can work.
func waitReady(ctx context.Context, base string, p *process) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("task server is not ready: %w\n%s", ctx.Err(), p.tail())
		case <-p.done:
			return fmt.Errorf("task server ended: %w\n%s", p.err, p.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

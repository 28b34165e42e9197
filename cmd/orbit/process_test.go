package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orbitkit/orbit"
)

// A process is "orbit dev" as a child of its own.
type process struct {
	*exec.Cmd
	url   string
	creds orbit.Credentials
}

// build builds the program once for the tests that need a process.
func build(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "orbit")
	if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return file
}

func startProcess(t *testing.T, file string) *process {
	t.Helper()
	data := t.TempDir()
	p := &process{Cmd: exec.Command(file, "dev", "--data", data, "--addr", "127.0.0.1:0")}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	lines := bufio.NewScanner(out)
	for p.url == "" && lines.Scan() {
		if m := regexp.MustCompile(`Orbit serves on (\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			p.url = m[1]
		}
	}
	go io.Copy(io.Discard, out)
	if p.creds, err = orbit.LoadCredentials(filepath.Join(data, "credentials.json")); err != nil {
		t.Fatal(err)
	}
	return p
}

// CLI-018: SIGTERM and SIGINT end the process with 0; a second signal ends it at once
// though a request is under way.
func TestSignals(t *testing.T) {
	file := build(t)
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := startProcess(t, file)
		submitOne(t, p.url, p.creds)
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("after %v: %v, want exit 0", signal, err)
		}
	}

	p := startProcess(t, file)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The server answers 100 when it begins to read the body: the request is under way.
	fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n", p.creds.Token)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("got %q, %v; want 100 Continue", line, err)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for { // the first signal has been taken when no connection is
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			break
		}
		c.Close()
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = p.Wait()
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("after the second signal: %v, want an end by SIGTERM", err)
	}
}

// Issue "Speed": an idle orbit dev takes less than 60 MiB.
func TestIdleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: reads /proc")
	}
	p := startProcess(t, build(t))
	submitOne(t, p.url, p.creds)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatal("no VmRSS")
	}
	if kib, err := strconv.Atoi(string(m[1])); err != nil || kib > 60<<10 {
		t.Errorf("RSS %d KiB, %v; want at most 60 MiB", kib, err)
	} else {
		t.Logf("RSS %d KiB", kib)
	}
}

//go:build linux

package faults

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// The variables that make a process of this binary a node, a worker or a relay. Each holds
// the process's configuration in JSON.
const (
	asNode   = "ORBIT_FAULTS_NODE"
	asWorker = "ORBIT_FAULTS_WORKER"
	asRelay  = "ORBIT_FAULTS_RELAY"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asNode) != "":
		os.Exit(nodeMain(os.Getenv(asNode)))
	case os.Getenv(asWorker) != "":
		os.Exit(workerMain(os.Getenv(asWorker)))
	case os.Getenv(asRelay) != "":
		os.Exit(relayMain(os.Getenv(asRelay)))
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(defaultParallel()) {
		f.Value.Set("6") // the tests wait for leases most of the time
	}
	code := m.Run()
	if builtIn != "" {
		os.RemoveAll(builtIn)
	}
	if left := children(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: processes are left over: %v\n", left)
		code = 1
	}
	os.Exit(code)
}

func defaultParallel() int {
	n, _ := strconv.Atoi(flag.Lookup("test.parallel").DefValue)
	return n
}

// children returns the ids of the child processes of this one.
func children() []string {
	var ids []string
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		ids = append(ids, strings.Fields(string(text))...)
	}
	return ids
}

// now reads the clock that all processes of this machine share and nobody sets: the
// journals of several processes are ordered by it.
func now() time.Duration {
	const monotonic = 1 // CLOCK_MONOTONIC
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}

// configured reads the configuration of this process.
func configured[T any](text string) (c T) {
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	return c
}

// commands hands each line of the standard input to do, by its words. The end of the input
// is the end of the test.
func commands(do func(words []string)) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 0 {
			do(words)
		}
	}
	os.Exit(1)
}

// seconds is how long a test that goes on for a while is to go on.
func seconds(t *testing.T, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("ORBIT_FAULT_SECONDS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("ORBIT_FAULT_SECONDS=%q: must be a positive number of seconds", text)
	}
	return time.Duration(n) * time.Second
}

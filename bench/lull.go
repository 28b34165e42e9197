package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// benchLull tells what a relay that has nothing to do costs: orbit-relay as its users run it,
// with the defaults and metrics.
func benchLull(ctx context.Context, o options) error {
	w, err := newWorkshop(ctx, o.dsn, "outbox")
	if err != nil {
		return err
	}
	defer w.close()
	s, err := startSink(w.DB, nil, sinkKind{instant: true})
	if err != nil {
		return err
	}
	defer s.close()
	dir, err := os.MkdirTemp("", "orbit-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "orbit-relay")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/orbit-relay")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build orbit-relay: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, program, "run", "--target", "bench", "--metrics-address", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "ORBIT_RELAY_DATABASE=mysql:"+w.dsn, "ORBIT_URL="+s.url, "ORBIT_TOKEN=bench")
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}()
	time.Sleep(5 * time.Second) // it has found its shard and its target
	before, err := w.counters(ctx)
	if err != nil {
		return err
	}
	time.Sleep(o.idleFor)
	after, err := w.counters(ctx)
	if err != nil {
		return err
	}
	resident, err := residentOf(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("the relay has ended: %w", err)
	}
	const own = 2 // statements of the reading itself
	fmt.Printf("%-28s %.1f statements per second (over %v), %.1f MiB resident\n", "idle relay",
		float64(after["Questions"]-before["Questions"]-own)/o.idleFor.Seconds(), o.idleFor, float64(resident)/1024)
	return nil
}

// residentOf reads the resident memory of a process, in KiB.
func residentOf(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("process %d shows no memory", pid)
	}
	return strconv.ParseInt(fields[0], 10, 64)
}

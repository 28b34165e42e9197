package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Processor time, in microseconds, beside what the database counts. It hardly depends on
// what else the machine does.
const (
	cpuSelf     = "cpu of this process"  // server and submitters, or the hand-written loop
	cpuChildren = "cpu of its processes" // workers, once they have ended
	cpuDatabase = "cpu of the database"
)

// addCPU adds the processor time used so far.
func (w *workshop) addCPU(ctx context.Context, c counters) {
	c[cpuSelf], c[cpuChildren] = cpuUsed(syscall.RUSAGE_SELF), cpuUsed(syscall.RUSAGE_CHILDREN)
	var file, folder string
	if w.QueryRowContext(ctx, "SELECT @@pid_file, @@datadir").Scan(&file, &folder) == nil {
		if !filepath.IsAbs(file) {
			file = filepath.Join(folder, file)
		}
		c[cpuDatabase] = cpuOf(file)
	}
}

func cpuOfSelf() int64 { return cpuUsed(syscall.RUSAGE_SELF) }

func cpuUsed(who int) int64 {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil {
		return 0
	}
	return (u.Utime.Sec+u.Stime.Sec)*1_000_000 + u.Utime.Usec + u.Stime.Usec
}

// cpuOf is the processor time of the process whose id is in file, or 0 if it runs
// elsewhere.
func cpuOf(file string) int64 {
	id, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(id)) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const userTime, systemTime, tick = 11, 12, 10_000 // microseconds
	if len(fields) <= systemTime {
		return 0
	}
	user, _ := strconv.ParseInt(fields[userTime], 10, 64)
	system, _ := strconv.ParseInt(fields[systemTime], 10, 64)
	return (user + system) * tick
}

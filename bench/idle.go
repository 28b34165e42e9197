package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// few is the number of idle connections that many are compared with.
const few = 10

// benchIdle tells what an idle worker connection costs the server: memory, and queries.
func benchIdle(ctx context.Context, o options) error {
	w, err := newWorkshop(ctx, o.dsn, "server")
	if err != nil {
		return err
	}
	defer w.close()
	s, err := startServerProcess(ctx, w)
	if err != nil {
		return err
	}
	defer s.stop()
	first, err := s.idle(ctx, o, w, few)
	if err != nil {
		return err
	}
	all, err := s.idle(ctx, o, w, o.connections)
	if err != nil {
		return err
	}
	each := func(after, before int64) float64 { return float64(after-before) / float64(o.connections-few) / 1024 }
	fmt.Printf("%-28s resident %.1f KiB, heap in use %.1f KiB, stacks %.1f KiB, %.1f goroutines each (from %d to %d connections)\n", "idle connection",
		each(all.Resident, first.Resident), each(all.Heap, first.Heap), each(all.Stacks, first.Stacks),
		float64(all.Goroutines-first.Goroutines)/float64(o.connections-few), few, o.connections)
	fmt.Printf("%-28s %.1f statements per second with %d connections, %.1f with %d (over %v)\n", "idle, statements",
		first.perSecond, few, all.perSecond, o.connections, o.idleFor)
	return nil
}

// A footprint is what a server process takes.
type footprint struct {
	Resident, Heap, Stacks int64 // bytes
	Goroutines             int
	perSecond              float64 // statements
}

// A serverProcess is our server as a process of its own.
type serverProcess struct {
	*child
	URL   string
	Creds orbit.Credentials
}

func startServerProcess(ctx context.Context, w *workshop) (*serverProcess, error) {
	c, err := startChild(ctx, "server", w.dsn)
	if err != nil {
		return nil, err
	}
	s := &serverProcess{child: c}
	line, err := c.hear()
	if err == nil {
		err = json.Unmarshal([]byte(line), s)
	}
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return s, nil
}

// serverChild serves a database, and says what it takes whenever it is asked.
func serverChild(ctx context.Context, in *bufio.Reader) error {
	var dsn string
	if err := readOrder(in, &dsn); err != nil {
		return err
	}
	n, err := startNode(ctx, &workshop{dsn: dsn}, orbit.Credentials{}, server.Config{})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"URL": n.url, "Creds": n.creds}); err != nil {
		return err
	}
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return n.stop()
		}
		f, err := measure()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
			return err
		}
	}
}

// measure gives back what is not needed and tells the rest.
func measure() (footprint, error) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return footprint{}, err
	}
	f := footprint{Heap: int64(m.HeapInuse), Stacks: int64(m.StackInuse), Goroutines: runtime.NumGoroutine()}
	for line := range strings.SplitSeq(string(status), "\n") {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return footprint{}, err
			}
			f.Resident = kib * 1024
		}
	}
	return f, nil
}

// idle has so many workers connect that are given nothing, and measures.
func (s *serverProcess) idle(ctx context.Context, o options, w *workshop, connections int) (f footprint, err error) {
	c, err := startChild(ctx, "connections", connectionsOrder{s.URL, s.Creds.Token, s.Creds.QueueID, connections})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if _, err := c.hear(); err != nil {
		return f, err
	}
	time.Sleep(3 * time.Second) // what came with connecting is over
	before, err := questions(ctx, w.DB)
	if err != nil {
		return f, err
	}
	time.Sleep(o.idleFor)
	after, err := questions(ctx, w.DB)
	if err != nil {
		return f, err
	}
	if err := s.say("measure"); err != nil {
		return f, err
	}
	line, err := s.hear()
	if err != nil {
		return f, err
	}
	f.perSecond = float64(after-before-1) / o.idleFor.Seconds()
	return f, json.Unmarshal([]byte(line), &f)
}

// A connectionsOrder is what a process of idle connections must know.
type connectionsOrder struct {
	URL, Token, Queue string
	Count             int
}

// connectionsChild keeps connections of workers that have credit open until its input ends.
func connectionsChild(ctx context.Context, in *bufio.Reader) error {
	var o connectionsOrder
	if err := readOrder(in, &o); err != nil {
		return err
	}
	list := make([]*worker.Conn, o.Count)
	var lost sync.Once
	_, err := rate(32, o.Count, func(i int) error {
		c, err := worker.Dial(ctx, o.URL, o.Token, worker.Registration{
			ProcessID: worker.NewProcessID(), Handlers: []worker.Handler{{Name: "bench.work", Version: "v1"}},
			Queues: []string{o.Queue}, Capacity: 4, ConcurrencyKeys: true,
		}, worker.Network{})
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		list[i] = c
		go func() {
			for {
				if _, err := c.Next(ctx); err != nil {
					lost.Do(func() { fmt.Fprintln(os.Stderr, "a connection was lost:", err) })
					return
				}
			}
		}()
		return c.Credit(ctx, 4)
	})
	if err != nil {
		return err
	}
	fmt.Println("connected")
	for {
		if _, err := in.ReadString('\n'); err != nil {
			break
		}
	}
	lost.Do(func() {}) // from here on they are meant to end
	os.Exit(0)         // closing each politely takes long
	return nil
}

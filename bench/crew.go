package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit/worker"
)

// childVariable makes this program a part of a bench that is a process of its own.
const childVariable = "ORBIT_BENCH_CHILD"

var children = map[string]func(context.Context, *bufio.Reader) error{
	"worker": workerChild, "server": serverChild, "connections": connectionsChild,
}

// A child is a process of this program that does one part.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startChild starts a process for a part and hands it what it must know.
func startChild(ctx context.Context, part string, config any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childVariable+"="+part), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in, out: bufio.NewReader(out)}
	if err := json.NewEncoder(in).Encode(config); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// say sends a line, hear waits for one.
func (c *child) say(line string) error {
	_, err := fmt.Fprintln(c.in, line)
	return err
}

func (c *child) hear() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("child process: %w", err)
	}
	return line[:len(line)-1], nil
}

// stop has the process end by itself.
func (c *child) stop() error {
	c.in.Close()
	io.Copy(io.Discard, c.out)
	return c.cmd.Wait()
}

// A workerOrder is what a worker process must know.
type workerOrder struct {
	URL, Token, Queue string
	Capacity          int
	Profile           string // file for a CPU profile; empty for none
}

// workerChild is a worker process whose handler does nothing. It connects when it is
// told to, says how many handlers have run, and drains when its input ends.
func workerChild(ctx context.Context, in *bufio.Reader) error {
	var o workerOrder
	if err := readOrder(in, &o); err != nil {
		return err
	}
	var ran atomic.Int64
	w, err := worker.NewWorker(o.URL, o.Token, worker.Config{
		Queues: []string{o.Queue}, Capacity: o.Capacity, Log: slog.New(slog.DiscardHandler),
		Handlers: map[worker.Handler]worker.HandlerFunc{
			{Name: "bench.work", Version: "v1"}: func(context.Context, worker.Execution) (json.RawMessage, error) {
				ran.Add(1)
				return nil, nil
			},
		},
		OnError: workerError,
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return nil
	}
	if o.Profile != "" {
		end, err := profile(o.Profile)
		if err != nil {
			return err
		}
		defer end()
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		io.Copy(io.Discard, in)
		stop()
	}()
	go func() {
		for said := int64(0); ; time.Sleep(often) {
			if n := ran.Load(); n != said {
				said = n
				fmt.Println(n)
			}
		}
	}()
	return w.Run(running)
}

// workerError ends the process: nothing that a worker deals with by itself belongs into a
// bench.
func workerError(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func readOrder(in *bufio.Reader, order any) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, order)
}

// A crew is some worker processes.
type crew struct {
	hands   []*child
	ran     []atomic.Int64 // handlers, by process
	lost    atomic.Bool    // one has ended
	reading sync.WaitGroup
}

// startCrew starts worker processes, shared out over nodes. They are up, and connect
// with begin.
func startCrew(ctx context.Context, o options, nodes ...*node) (*crew, error) {
	processes := max(o.processes, len(nodes))
	c := &crew{ran: make([]atomic.Int64, processes)}
	for i := range processes {
		n := nodes[i%len(nodes)]
		order := workerOrder{URL: n.url, Token: n.creds.Token, Queue: n.creds.QueueID, Capacity: max(1, o.capacity/processes)}
		if o.explain != "" && i == 0 {
			order.Profile = filepath.Join(o.explain, "worker.pprof")
		}
		hand, err := startChild(ctx, "worker", order)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.hands = append(c.hands, hand)
		if _, err := hand.hear(); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

// begin has the workers connect.
func (c *crew) begin() error {
	for i, hand := range c.hands {
		if err := hand.say("begin"); err != nil {
			return err
		}
		c.reading.Go(func() {
			for {
				line, err := hand.hear()
				if err != nil {
					c.lost.Store(true)
					return
				}
				n, _ := strconv.ParseInt(line, 10, 64)
				c.ran[i].Store(n)
			}
		})
	}
	return nil
}

// handled is how many handlers have run.
func (c *crew) handled() (n int64, err error) {
	for i := range c.ran {
		n += c.ran[i].Load()
	}
	if c.lost.Load() {
		err = errors.New("a worker process has ended")
	}
	return n, err
}

func (c *crew) stop() error {
	var errs []error
	for _, hand := range c.hands {
		hand.in.Close()
	}
	c.reading.Wait()
	for _, hand := range c.hands {
		errs = append(errs, hand.stop())
	}
	return errors.Join(errs...)
}

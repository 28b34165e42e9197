package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

const (
	startEvery = 10 * time.Millisecond // 100 submits a second
	startTasks = 300                   // in one run
)

// benchStart compares how long it takes from the moment at which a submit is acknowledged
// to that at which the handler begins, at 100 submits per second and nothing else to do.
func benchStart(ctx context.Context, o options) error {
	ours, err := newStartSystem(ctx, o)
	if err != nil {
		return err
	}
	defer ours.close()
	floor, err := newFloorLoop(ctx, o, ours.nodes[0].creds)
	if err != nil {
		return err
	}
	defer floor.close()
	stop, err := floor.work(ctx)
	if err != nil {
		return err
	}
	begun := &moments{at: make(map[string]chan time.Time)}
	floor.handle = func(task []byte) { begun.note(hex.EncodeToString(task)) }
	var all [2][]float64
	var p50, p99 ratio
	p50.name, p99.name = "submit to handler, p50", "submit to handler, p99"
	for round := range o.pairs {
		mine, err := startRun(&ours.begun, func(i int) (string, error) {
			return ours.accept(ctx, fmt.Sprintf("start-%d-%d", round, i), i)
		})
		if err != nil {
			return errors.Join(err, stop())
		}
		its, err := startRun(begun, func(i int) (string, error) {
			return floor.accepted(fmt.Sprintf("start-%d-%d", round, i), i)
		})
		if err != nil {
			return errors.Join(err, stop())
		}
		p50.add(quantile(mine, 0.5), quantile(its, 0.5))
		p99.add(quantile(mine, 0.99), quantile(its, 0.99))
		all[0], all[1] = append(all[0], mine...), append(all[1], its...)
	}
	for _, r := range []*ratio{&p50, &p99} {
		r.printAs("ms")
	}
	fmt.Printf("%-28s ours p50 %.2f ms, p99 %.2f ms; two-commit loop p50 %.2f ms, p99 %.2f ms (%d tasks each)\n", "submit to handler, all runs",
		quantile(all[0], 0.5), quantile(all[0], 0.99), quantile(all[1], 0.5), quantile(all[1], 0.99), len(all[0]))
	return stop()
}

// moments are when handlers began, by task.
type moments struct {
	mu sync.Mutex
	at map[string]chan time.Time
}

func (m *moments) channel(task string) chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at[task] == nil {
		m.at[task] = make(chan time.Time, 1)
	}
	return m.at[task]
}

func (m *moments) note(task string) { m.channel(task) <- time.Now() }

// of waits for a handler to begin.
func (m *moments) of(task string) time.Time { return <-m.channel(task) }

// startRun submits at an even pace and returns how many milliseconds after each
// acknowledgement the handler began.
func startRun(begun *moments, submit func(i int) (task string, err error)) ([]float64, error) {
	took, failed := make([]float64, startTasks), make([]error, startTasks)
	var running sync.WaitGroup
	pace := time.NewTicker(startEvery)
	defer pace.Stop()
	for i := range startTasks {
		<-pace.C
		running.Go(func() {
			task, err := submit(i)
			accepted := time.Now()
			if err != nil {
				failed[i] = err
				return
			}
			took[i] = float64(max(0, begun.of(task).Sub(accepted)).Microseconds()) / 1000
		})
	}
	running.Wait()
	return took, errors.Join(failed...)
}

// A startSystem is our server with a worker in this process, so that one clock is read.
type startSystem struct {
	*orbitSystem
	begun  moments
	stop   context.CancelFunc
	worker sync.WaitGroup
}

func newStartSystem(ctx context.Context, o options) (*startSystem, error) {
	inner, err := newOrbitSystem(ctx, o, server.Config{})
	if err != nil {
		return nil, err
	}
	s := &startSystem{orbitSystem: inner, begun: moments{at: make(map[string]chan time.Time)}}
	n := inner.nodes[0]
	w, err := worker.NewWorker(n.url, n.creds.Token, worker.Config{
		Queues: []string{n.creds.QueueID}, Capacity: 64, Log: slog.New(slog.DiscardHandler),
		Handlers: map[worker.Handler]worker.HandlerFunc{
			{Name: "bench.work", Version: "v1"}: func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
				s.begun.note(e.Task.ID)
				return nil, nil
			},
		},
		OnError: func(err error) { fmt.Fprintln(os.Stderr, "worker:", err) },
	})
	if err != nil {
		inner.close()
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	s.stop = stop
	s.worker.Go(func() {
		if err := w.Run(running); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
		}
	})
	return s, nil
}

func (s *startSystem) close() {
	s.stop()
	s.worker.Wait()
	s.orbitSystem.close()
}

func (s *startSystem) accept(ctx context.Context, key string, i int) (string, error) {
	r := request(i)
	r.QueueID = s.nodes[0].creds.QueueID
	receipt, err := s.nodes[0].client.SubmitTask(ctx, key, r)
	if err != nil {
		return "", err
	}
	return receipt.Task.ID, nil
}

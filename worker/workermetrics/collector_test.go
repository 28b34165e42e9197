package workermetrics_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workermetrics"
	"github.com/orbitkit/orbit/worker/workertest"
)

// A worker that did and suffered all kinds of things shows each of them once, and what it
// holds while it holds it.
func TestWhatAWorkerDoesIsShown(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{InMemory: true})
	deaf, hear := make(chan struct{}), make(chan struct{})
	stuck := make(chan struct{}, 1)
	w, err := worker.NewWorker(s.URL(), s.Token, worker.Config{
		Queues: []string{s.QueueID}, Network: s.Network(), StopTimeout: time.Millisecond, Capacity: 3,
		HandlerCapacity: map[worker.Handler]int{{Name: "deaf", Version: "v1"}: 2},
		MinReconnect:    time.Millisecond, Log: slog.New(slog.DiscardHandler),
		OnError: func(err error) {
			if errors.As(err, new(*worker.StuckError)) {
				stuck <- struct{}{}
			}
		},
		Handlers: map[worker.Handler]worker.HandlerFunc{
			{Name: "good", Version: "v1"}: func(context.Context, worker.Execution) (json.RawMessage, error) { return nil, nil },
			{Name: "bad", Version: "v1"}: func(context.Context, worker.Execution) (json.RawMessage, error) {
				return nil, worker.Failed(errors.New("no"))
			},
			{Name: "panics", Version: "v1"}: func(context.Context, worker.Execution) (json.RawMessage, error) { panic("secret") },
			{Name: "deaf", Version: "v1"}: func(context.Context, worker.Execution) (json.RawMessage, error) {
				close(deaf)
				<-hear
				return nil, nil
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(workermetrics.New(w, prometheus.Labels{"worker": "w"}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for _, handler := range []string{"good", "good", "bad", "panics"} {
		s.Await(s.Submit(orbit.SubmitTaskRequest{Handler: handler}))
	}
	held := s.Submit(orbit.SubmitTaskRequest{Handler: "deaf"})
	<-deaf
	s.Expire(held)
	s.Drop() // to resume shows the worker that the right is over
	<-stuck
	want(t, registry, "orbit_slots_stuck 1", "orbit_slots{phase=running} 1", "orbit_slots_capacity 3", "orbit_leases_lost_total 1",
		`orbit_executions_total{handler=good,outcome=succeeded,version=v1} 2`, `orbit_executions_total{handler=bad,outcome=failed,version=v1} 1`,
		`orbit_executions_total{handler=panics,outcome=unknown,version=v1} 1`, `orbit_execution_panics_total{handler=panics,version=v1} 1`,
		`orbit_execution_panics_total{handler=good,version=v1} 0`, `orbit_execution_duration_seconds{handler=good,version=v1} 2`,
		`orbit_message_round_trip_seconds{message=task.start} 5`, `orbit_message_round_trip_seconds{message=task.finish} 4`,
		"orbit_connects_total{result=ok} 2", "orbit_unacknowledged_results 0")
	close(hear)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	want(t, registry, "orbit_slots_stuck 0", "orbit_slots{phase=running} 0", "orbit_connections 0",
		`orbit_executions_total{handler=deaf,outcome=succeeded,version=v1} 1`)
}

// want waits until a registry shows lines: the name, the labels but worker's, and the value;
// of a histogram, its count.
func want(t *testing.T, registry *prometheus.Registry, lines ...string) {
	t.Helper()
	var missing []string
	for range 1000 {
		shown := shownBy(t, registry)
		missing = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(shown, line) })
		if len(missing) == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("missing: %s\nof:\n%s", strings.Join(missing, "\n"), strings.Join(shownBy(t, registry), "\n"))
}

func shownBy(t *testing.T, registry *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "worker" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			text := ""
			if labels != nil {
				text = "{" + strings.Join(labels, ",") + "}"
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			lines = append(lines, fmt.Sprint(family.GetName(), text, " ", value))
		}
	}
	return lines
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
	"github.com/orbitkit/orbit/internal/throttle"
)

// A supervisor keeps a relay running for each source. Each has connections, clients and
// goroutines of its own: a database or a server that hangs holds up nobody else.
type supervisor struct {
	log     *slog.Logger
	single  bool        // one source, of flags and environment: its name is shown nowhere
	metrics *exposition // nil without metrics
	spans   trace.TracerProvider
	token   tokenHolder // of operators
	guesses *throttle.Failures

	mu      sync.Mutex
	running map[string]*sourceRun
	ending  map[string]*sourceRun // removed, and not at their end yet
	all     sync.WaitGroup
	left    []error // by sources that ended with the process
}

func newSupervisor(log *slog.Logger, single bool, spans trace.TracerProvider) *supervisor {
	return &supervisor{log: log, single: single, spans: spans, guesses: throttle.New(), running: map[string]*sourceRun{}, ending: map[string]*sourceRun{}}
}

// run serves cfg until ctx ends, and what load returns after each reload that has no
// mistake. It then stops every source gracefully and returns what had to be left.
func (s *supervisor) run(ctx context.Context, cfg config.Config, reload <-chan os.Signal, load func() (config.Config, []error)) error {
	s.apply(ctx, cfg)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-reload:
			next, mistakes := load()
			if next.Listen.Places() != cfg.Listen.Places() && len(mistakes) == 0 {
				mistakes = append(mistakes, errors.New("listen: the addresses cannot change while the relay runs: restart it"))
			}
			if len(mistakes) == 0 {
				mistakes = s.tryMoved(ctx, next)
			}
			for _, m := range mistakes {
				s.log.Error("configuration refused, the old one goes on", "err", m)
			}
			if len(mistakes) == 0 {
				s.apply(ctx, next)
			}
		}
	}
	s.all.Wait()
	return errors.Join(s.left...)
}

// tryMoved opens the databases of sources that are served well now and are to have another
// address, side by side. What it cannot open is a mistake: such a source goes on as it is.
func (s *supervisor) tryMoved(ctx context.Context, next config.Config) []error {
	errs := make([]error, len(next.Sources))
	var trying sync.WaitGroup
	for i, c := range next.Sources {
		old := s.find(c.Name)
		if old == nil || old.config.Database == c.Database || !old.isOpen() {
			continue
		}
		trying.Go(func() {
			if err := tryOnce(ctx, c); err != nil {
				errs[i] = fmt.Errorf("sources.%s.database: %w", c.Name, err)
			}
		})
	}
	trying.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// apply starts, stops and replaces sources until they are those of cfg. Unchanged ones are
// not touched. It waits for none: a source that takes long to stop holds up its own
// successor only.
func (s *supervisor) apply(ctx context.Context, cfg config.Config) {
	s.token.set(cfg.Listen.Token)
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes changes
	for name, r := range s.running {
		if !slices.ContainsFunc(cfg.Sources, func(c config.Source) bool { return c.Name == name }) {
			r.stop()
			delete(s.running, name)
			s.ending[name] = r
			changes.removed = append(changes.removed, name)
		}
	}
	for _, c := range cfg.Sources {
		old := s.running[c.Name]
		switch {
		case old == nil:
			old = s.ending[c.Name] // of a source that comes back soon
			changes.added = append(changes.added, c.Name)
		case reflect.DeepEqual(old.config, c):
			changes.kept = append(changes.kept, c.Name)
			continue
		default:
			old.stop()
			changes.changed = append(changes.changed, c.Name)
		}
		s.running[c.Name] = s.start(ctx, c, old)
	}
	if !s.single {
		changes.log(s.log)
	}
}

// start runs a source, once the one before it under this name has ended.
func (s *supervisor) start(process context.Context, c config.Source, before *sourceRun) *sourceRun {
	ctx, stop := context.WithCancel(process)
	log := s.log
	if !s.single {
		log = log.With("source", c.Name)
	}
	r := &sourceRun{config: c, log: log, metrics: s.metrics, spans: s.spans, labelled: !s.single, stop: stop, done: make(chan struct{}), operations: newOperations()}
	s.all.Go(func() {
		defer s.forget(r)
		defer close(r.done)
		defer stop()
		if before != nil {
			<-before.done
		}
		if err := r.run(ctx); err != nil && process.Err() != nil {
			s.note(err)
		}
	})
	return r
}

// forget drops a run that has ended, if it was removed.
func (s *supervisor) forget(r *sourceRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending[r.config.Name] == r {
		delete(s.ending, r.config.Name)
	}
}

// note keeps what a source had to leave when the process ended: its exit code tells. A source
// that a reload has ended tells the log.
func (s *supervisor) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, err)
}

// find returns the run of a source, or nil.
func (s *supervisor) find(name string) *sourceRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[name]
}

// sources returns all runs, by name.
func (s *supervisor) sources() (all []*sourceRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *sourceRun) int { return strings.Compare(a.config.Name, b.config.Name) })
	return all
}

// changes are what a reload does, by names of sources.
type changes struct{ added, changed, removed, kept []string }

func (c *changes) log(log *slog.Logger) {
	slices.Sort(c.removed)
	log.Info("configuration applied", "added", strings.Join(c.added, " "), "changed", strings.Join(c.changed, " "),
		"removed", strings.Join(c.removed, " "), "kept", strings.Join(c.kept, " "))
}

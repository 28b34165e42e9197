package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/cmd/orbit-relay/internal/config"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

func newCheck(env environment) *cobra.Command {
	var s settings
	out := cli.Format{Env: env.Environment}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check configuration, databases and task servers, all at once",
		Long: `check takes the flags of run and reports every mistake in them, in the environment, in the
configuration file, in the databases and in the rights of their users at once, with exit
code 2; those of a file with their lines. If there is none it asks each task server who it is
as run does before it sends anything: exit code 1 means that run would wait for a server or
for a database. It sends no row and leads no shard.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return checkAll(cmd.Context(), env, &s, &out) },
	}
	s.register(cmd.Flags())
	s.registerListen(cmd.Flags())
	out.Register(cmd.Flags())
	return cmd
}

// checkPatience bounds what check waits for a database or a server.
const checkPatience = 10 * time.Second

func checkAll(ctx context.Context, env environment, s *settings, out *cli.Format) error {
	cfg, mistakes := s.read(env)
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	single := env.place.config == ""
	away := outages{}
	for i, err := range openAll(ctx, cfg.Sources) {
		name := cfg.Sources[i].Name
		switch {
		case err == nil || cfg.Sources[i].Database == "":
		case !cli.IsUsage(err):
			away[name] = err
		case single:
			mistakes = append(mistakes, err)
		default:
			mistakes = append(mistakes, fmt.Errorf("sources.%s.database: %w", name, err))
		}
	}
	switch {
	case len(mistakes) > 0 && single:
		return cli.Usage(oneLine(mistakes...))
	case len(mistakes) > 0:
		return reportMistakes(out, mistakes)
	}
	e := examined{Checks: []check{{Name: "settings", Level: string(outbox.Fine), Detail: "flags, environment and database are right"}}}
	if len(away) > 0 {
		e.Checks = away.checks()
	}
	e.Checks = append(e.Checks, probeAll(ctx, cfg.Sources)...)
	if err := out.Print(e, e.print); err != nil {
		return err
	}
	var failed []error
	for _, c := range e.Checks {
		if c.Level == string(outbox.Bad) {
			failed = append(failed, fmt.Errorf("%s: %s", c.Name, c.Detail))
		}
	}
	if len(failed) > 0 {
		return oneLine(failed...)
	}
	return nil
}

// reportMistakes shows every mistake in a line of its own.
func reportMistakes(out *cli.Format, mistakes []error) error {
	var e examined
	for _, m := range mistakes {
		c := check{Name: "configuration", Level: string(outbox.Bad), Detail: m.Error()}
		e.Checks = append(e.Checks, c)
	}
	if err := out.Print(e, e.print); err != nil {
		return err
	}
	if len(mistakes) == 1 {
		return cli.Usage(errors.New("there is a mistake in the configuration"))
	}
	return cli.Usage(fmt.Errorf("there are %d mistakes in the configuration", len(mistakes)))
}

// outages are the databases that cannot be opened now, by source: run would wait for them.
type outages map[string]error

func (o outages) checks() (all []check) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		all = append(all, check{Name: "database of source " + name, Level: string(outbox.Bad), Detail: o[name].Error()})
	}
	return all
}

// tryRights opens a database and tries whether its user may do what the relay does.
func tryRights(ctx context.Context, s config.Source) error {
	db, store, err := openSource(ctx, s)
	if err != nil {
		return err
	}
	defer db.Close()
	checks, err := store.Doctor(ctx)
	if err != nil {
		return err
	}
	for _, c := range checks {
		if c.Name == "rights" && c.Grade == outbox.Bad {
			return cli.Usage(errors.New(c.Detail))
		}
	}
	return nil
}

// openAll opens each database, side by side, and tells what is wrong with it.
func openAll(ctx context.Context, sources []config.Source) []error {
	errs := make([]error, len(sources))
	var opening sync.WaitGroup
	for i, s := range sources {
		opening.Go(func() {
			errs[i] = tryRights(ctx, s)
		})
	}
	opening.Wait()
	return errs
}

// probeAll asks each task server who it is, side by side: each target once.
func probeAll(ctx context.Context, sources []config.Source) []check {
	seen := map[string]bool{}
	var targets []config.Target
	for _, s := range sources {
		for _, t := range s.Targets {
			if !seen[t.Name] {
				targets = append(targets, t)
			}
			seen[t.Name] = true
		}
	}
	checks := make([]check, len(targets))
	var probing sync.WaitGroup
	for i, t := range targets {
		probing.Go(func() { checks[i] = probe(ctx, t) })
	}
	probing.Wait()
	return checks
}

func probe(ctx context.Context, t config.Target) check {
	c := check{Name: "target " + t.Name, Level: string(outbox.Fine), Detail: "the server is Orbit, and the credential may submit"}
	target, err := t.Open()
	if err == nil {
		defer target.Client.CloseIdleConnections()
		err = relay.Probe(ctx, target)
	}
	if err != nil {
		c.Level, c.Detail = string(outbox.Bad), err.Error()
	}
	return c
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

func newCheck(env cli.Environment) *cobra.Command {
	var s settings
	var l listeners
	out := cli.Format{Env: env}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check flags, environment, database and task server, all at once",
		Long: `check takes the flags of run and reports every mistake in them, in the environment and in
the database at once, with exit code 2. If there is none it asks the task server who it is
as run does before it sends anything: exit code 1 means that run would wait. It sends no
row and leads no shard.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return checkAll(cmd.Context(), env, &s, &l, &out) },
	}
	s.register(cmd.Flags())
	l.register(cmd.Flags())
	out.Register(cmd.Flags())
	return cmd
}

func checkAll(ctx context.Context, env cli.Environment, s *settings, l *listeners, out *cli.Format) error {
	var mistakes []error
	note := func(err error) {
		if err != nil {
			mistakes = append(mistakes, oneLine(err))
		}
	}
	db, err := openDatabase(ctx, env)
	note(err)
	if err == nil {
		defer db.Close()
	}
	target, err := s.readTarget(env)
	note(err)
	note(s.cfg.Validate())
	if err == nil {
		note(relay.ValidateTarget(target))
	}
	note(l.validate())
	if len(mistakes) > 0 {
		return cli.Usage(oneLine(errors.Join(mistakes...)))
	}
	e := examined{Checks: []check{{Name: "settings", Level: string(outbox.Fine), Detail: "flags, environment and database are right"}}}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	server := check{Name: "target " + target.Name, Level: string(outbox.Fine), Detail: "the server is Orbit, and the credential may submit"}
	if err := relay.Probe(ctx, target); err != nil {
		server.Level, server.Detail = string(outbox.Bad), err.Error()
	}
	target.Client.CloseIdleConnections()
	e.Checks = append(e.Checks, server)
	if err := out.Print(e, e.print); err != nil {
		return err
	}
	if err := e.verdict(); err != nil {
		return fmt.Errorf("%s: %s", server.Name, server.Detail)
	}
	return nil
}

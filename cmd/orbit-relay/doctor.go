package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

func newDoctor(env environment) *cobra.Command {
	out := cli.Format{Env: env.Environment}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the business database for what an outbox rests on",
		Long: `doctor looks at engine and version, isolation, durability, packet size, clock, indexes,
rights, the plan of the due query and how long due rows wait, and says for each whether it
is ok, deserves a look (warn) or breaks a promise (fail). It changes nothing and needs the
database only. Exit code 1 means that something fails.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return examine(cmd.Context(), env, &out) },
	}
	out.Register(cmd.Flags())
	return cmd
}

// examined are checks, in the form that --json prints.
type examined struct {
	Checks []check `json:"checks"`
}

type check struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // ok, warn or fail
	Detail string `json:"detail"`
}

func (e *examined) print(w io.Writer) {
	for _, c := range e.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Level, c.Name, cli.Plain(c.Detail))
	}
}

// verdict is an error if something fails.
func (e *examined) verdict() error {
	failed := 0
	for _, c := range e.Checks {
		if c.Level == string(outbox.Bad) {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(e.Checks))
	}
	return nil
}

func examine(ctx context.Context, env environment, out *cli.Format) error {
	db, store, err := openOutbox(ctx, env)
	if err != nil {
		return err
	}
	defer db.Close()
	e, err := readDoctor(ctx, store)
	if err != nil {
		return err
	}
	if err := out.Print(e, e.print); err != nil {
		return err
	}
	return e.verdict()
}

func readDoctor(ctx context.Context, store *outbox.Store) (examined, error) {
	checks, err := store.Doctor(ctx)
	if err != nil {
		return examined{}, err
	}
	e := examined{Checks: []check{}}
	for _, c := range checks {
		e.Checks = append(e.Checks, check{Name: c.Name, Level: string(c.Grade), Detail: c.Detail})
	}
	return e, nil
}

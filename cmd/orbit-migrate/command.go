package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/drivers/postgres"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
)

const long = `orbit-migrate applies Orbit's schema, step by step, to the database named by
ORBIT_MYSQL_DSN (user:password@tcp(host:3306)/database) or by ORBIT_DATABASE
(mysql:<DSN>, sqlite:<path>, or for the set guard postgres://user:password@host/database).
Use a database that is dedicated to Orbit; only the sets outbox and guard belong into the
databases of your own services.

Steps only go forward, and running up again changes nothing. Servers of an older release
must be stopped before up, unless its release notes call the new steps additive.`

// variables is what each --help says of the environment.
const variables = `ORBIT_MYSQL_DSN  user:password@tcp(host:3306)/database
ORBIT_DATABASE   instead of it: mysql:<DSN>, sqlite:<path> or, for --set guard,
                 postgres://user:password@host:5432/database
`

func newRoot(env cli.Environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "orbit-migrate",
		Short: "Apply Orbit's schema to a database",
		Long:  long,
	}
	setName := root.PersistentFlags().String("set", string(migrations.Server), "schema set: server, outbox or guard")
	root.AddCommand(newUp(env, setName), newStatus(env, setName), newVersion(env, setName))
	return root
}

func newUp(env cli.Environment, setName *string) *cobra.Command {
	var to int
	up := &cobra.Command{
		Use:   "up",
		Short: "Apply the steps that the database lacks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd.Context(), env, *setName, drivers.OpenForMigration, func(db *sqldb.DB, set migrations.Set) error {
				if err := checkTo(cmd, set, db.Dialect(), to); err != nil {
					return err
				}
				return runUp(cmd.Context(), env, db, set, to)
			})
		},
	}
	up.Flags().IntVar(&to, "to", 0, "last step to apply (default the newest)")
	return up
}

func checkTo(cmd *cobra.Command, set migrations.Set, d *sqldb.Dialect, to int) error {
	latest, err := migrations.Latest(set, d)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("to") && (to < 1 || to > latest) {
		return cli.Usage(fmt.Errorf("--to %d: this release knows steps 1 to %d of set %s", to, latest, set))
	}
	return nil
}

func runUp(ctx context.Context, env cli.Environment, db *sqldb.DB, set migrations.Set, to int) error {
	applied, err := migrations.Up(ctx, db, set, migrations.Options{To: to, Report: func(e migrations.Event) { report(env.Out, e) }})
	if err != nil {
		return err
	}
	at, err := migrations.Version(ctx, db, set)
	if err != nil {
		return err
	}
	if len(applied) == 0 {
		fmt.Fprintf(env.Out, "set %s: nothing to do, at version %d\n", set, at)
		return nil
	}
	steps := "steps"
	if len(applied) == 1 {
		steps = "step"
	}
	fmt.Fprintf(env.Out, "set %s: %d %s applied, at version %d\n", set, len(applied), steps, at)
	return nil
}

func report(out io.Writer, e migrations.Event) {
	switch e.Kind {
	case migrations.Waiting:
		fmt.Fprintf(out, "waiting for %s, which holds the migration lock\n", e.Holder)
	case migrations.StepResumed:
		if e.Statement > e.Statements {
			fmt.Fprintf(out, "%s: all statements were applied, closing the step\n", e.Step)
			return
		}
		fmt.Fprintf(out, "%s was half applied, going on at statement %d of %d\n", e.Step, e.Statement, e.Statements)
	case migrations.StepApplied:
		fmt.Fprintf(out, "%s applied in %s\n", e.Step, e.Took.Round(time.Millisecond))
	}
}

func newStatus(env cli.Environment, setName *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show each step and when it was applied",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd.Context(), env, *setName, drivers.OpenExisting, func(db *sqldb.DB, set migrations.Set) error {
				steps, err := migrations.Status(cmd.Context(), db, set)
				if err != nil {
					return err
				}
				return printStatus(env.Out, steps)
			})
		},
	}
}

func printStatus(out io.Writer, steps []migrations.StepStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range steps {
		when := ""
		if !s.AppliedAt.IsZero() {
			when = s.AppliedAt.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%06d_%s\t%s\t%s\n", s.Number, s.Name, s.State, when)
	}
	return w.Flush()
}

func newVersion(env cli.Environment, setName *string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of the database's schema",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd.Context(), env, *setName, drivers.OpenExisting, func(db *sqldb.DB, set migrations.Set) error {
				at, err := migrations.Version(cmd.Context(), db, set)
				if err != nil {
					return err
				}
				fmt.Fprintln(env.Out, at)
				return nil
			})
		},
	}
}

// An opener is one of the ways of opening a database: only up may make a file.
type opener func(ctx context.Context, address string) (*sqldb.DB, error)

// withDatabase opens the database that the environment names and runs f on it.
func withDatabase(ctx context.Context, env cli.Environment, setName string, open opener, f func(*sqldb.DB, migrations.Set) error) error {
	set, err := migrations.ParseSet(setName)
	if err != nil {
		return cli.Usage(fmt.Errorf("--set: %w", err))
	}
	address, err := drivers.FromEnvironment(env.Get, "ORBIT_DATABASE", "ORBIT_MYSQL_DSN")
	if err != nil {
		return cli.Usage(err)
	}
	if postgres.IsAddress(address) {
		open = postgres.Open
	}
	db, err := open(ctx, address)
	if err != nil {
		return cli.Usage(err)
	}
	defer db.Close()
	if _, err := migrations.Latest(set, db.Dialect()); err != nil { // of this engine
		return cli.Usage(err)
	}
	return f(db, set)
}

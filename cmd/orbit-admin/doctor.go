package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/server"
)

const doctorLong = `doctor examines the server's database and says for each thing that it looks at whether it
is ok, deserves a look (warn), breaks what Orbit promises (fail), or could not be looked at
(skipped, with the right that the database user lacks), and what to do. It changes nothing.
Exit code 1 means that something fails.

--deep also holds all tasks, attempts, permits and events against each other. It reads
every row: not for a busy hour.`

func newDoctor(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var deep bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the server's database",
		Long:  doctorLong,
		RunE:  func(cmd *cobra.Command, _ []string) error { return examine(cmd.Context(), env, &out, deep) },
	}
	c.Flags().BoolVar(&deep, "deep", false, "look for contradictions in the data too")
	out.Register(c.Flags())
	return c
}

// examine does without the check of the schema's version: that is one of its findings.
func examine(ctx context.Context, env cli.Environment, out *cli.Format, deep bool) error {
	address, err := drivers.FromEnvironment(env.Get, "ORBIT_DATABASE", "ORBIT_MYSQL_DSN")
	if err != nil {
		return cli.Usage(err)
	}
	db, err := drivers.OpenExisting(ctx, address)
	if err != nil {
		return cli.Usage(err)
	}
	defer db.Close()
	findings := server.Examine(ctx, db, deep)
	if err := out.Print(examined{findings}, func(w io.Writer) { printFindings(w, findings) }); err != nil {
		return err
	}
	failed := 0
	for _, f := range findings {
		if f.Level == server.FindingFailure {
			failed++
		}
	}
	switch failed {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 of %d checks fails", len(findings))
	}
	return fmt.Errorf("%d of %d checks fail", failed, len(findings))
}

// An examined is what doctor has found, in the form that --json prints.
type examined struct {
	Checks []server.Finding `json:"checks"`
}

func printFindings(w io.Writer, findings []server.Finding) {
	for _, f := range findings {
		text := cli.Plain(f.Text)
		if f.Do != "" {
			text += ": " + f.Do
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Check, text)
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

const retentionLong = `retention deletes tasks that ended long ago, with their attempts, evidence, events, reviews
and the records of their idempotency keys. A task stays as long as one of its keys is
promised to be known, 90 days from each command; what is under review stays, and so do
resource keys and the audit.

A node with --retention does the same by itself. Any number may run at one time.`

func newRetention(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "retention",
		Short: "Delete tasks that ended long ago, and see what was deleted",
		Long:  retentionLong,
	}
	c.AddCommand(newRetentionRun(env), newRetentionStatus(env))
	return c
}

func newRetentionRun(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var r server.RetentionRequest
	c := &cobra.Command{
		Use:   "run",
		Short: "Delete now what ended before a given age",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return retain(cmd.Context(), env, &out, r)
		},
	}
	cli.DurationVar(c.Flags(), &r.Age, "older-than", 0, fmt.Sprintf("`age` of a task since its end, such as 180d or 4320h; required, at least %s", cli.FormatDuration(server.MinRetention)))
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "count only, delete nothing")
	out.Register(c.Flags())
	return c
}

func newRetentionStatus(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the last run that deleted something",
		Long:  "status shows the last run that deleted something. What a run would delete now is told by\nretention run --dry-run.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd.Context(), env, func(db *sqldb.DB) error { return showLastRun(cmd.Context(), db, &out) })
		},
	}
	out.Register(c.Flags())
	return c
}

// A retained is what one run has done, as it is shown.
type retained struct {
	DryRun    bool      `json:"dry_run"`
	Cutoff    time.Time `json:"cutoff"` // tasks that ended later stay
	Tasks     int64     `json:"tasks"`
	Attempts  int64     `json:"attempts"`
	Evidence  int64     `json:"evidence"`
	Reviews   int64     `json:"reviews"`
	Events    int64     `json:"events"`
	Records   int64     `json:"records"`
	OldestDue string    `json:"oldest_due_for,omitempty"` // how long the first of them could have gone before; absent if nothing was due
}

func retain(ctx context.Context, env cli.Environment, out *cli.Format, r server.RetentionRequest) error {
	if r.Age < server.MinRetention {
		return cli.Usage(fmt.Errorf("--older-than %s: must be at least %s", cli.FormatDuration(r.Age), cli.FormatDuration(server.MinRetention)))
	}
	r.Actor = actor()
	return withDatabase(ctx, env, func(db *sqldb.DB) error {
		report, err := server.Retain(ctx, db, r)
		if err != nil && report.Counts.Tasks+report.Counts.Records == 0 {
			return err
		}
		c := report.Counts
		done := retained{r.DryRun, report.Cutoff, c.Tasks, c.Attempts, c.Evidence, c.Reviews, c.Events, c.Records, ""}
		if !report.Empty() {
			done.OldestDue = report.Oldest.Round(time.Second).String()
		}
		if printErr := out.Print(done, func(w io.Writer) { done.table(w, c.String()) }); err == nil {
			err = printErr
		}
		return err
	})
}

func (d *retained) table(w io.Writer, counts string) {
	if d.OldestDue == "" {
		fmt.Fprintf(w, "nothing is due (of what ended until %s)\n", d.Cutoff.Format(time.RFC3339))
		return
	}
	what := "deleted"
	if d.DryRun {
		what = "would delete"
	}
	fmt.Fprintf(w, "%s %s\nended until %s; the first was due %s ago\n", what, counts, d.Cutoff.Format(time.RFC3339), d.OldestDue)
}

// A lastRun is the last run that deleted something, as it is shown.
type lastRun struct {
	At    *time.Time `json:"at"` // null if there is none
	Actor string     `json:"actor,omitempty"`
	Note  string     `json:"note,omitempty"`
}

func showLastRun(ctx context.Context, db *sqldb.DB, out *cli.Format) error {
	run, ok, err := server.LastRetention(ctx, db)
	if err != nil {
		return err
	}
	var shown lastRun
	if ok {
		shown = lastRun{&run.At, run.Actor, run.Note}
	}
	return out.Print(shown, func(w io.Writer) {
		if !ok {
			fmt.Fprintln(w, "no run has deleted anything yet")
			return
		}
		fmt.Fprintf(w, "%s by %s: %s\n", run.At.Format(time.RFC3339), cli.Plain(run.Actor), cli.Plain(run.Note))
	})
}

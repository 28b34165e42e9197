package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/outbox"
)

// openOutbox opens the outbox for an operator, who needs the database only.
func openOutbox(ctx context.Context, env cli.Environment) (*sqldb.DB, *outbox.Store, error) {
	db, err := openDatabase(ctx, env)
	if err != nil {
		return nil, nil, err
	}
	store, err := outbox.Open(db.Dialect(), db.Write(), db.Read())
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	return db, store, nil
}

// An actor is who changes something by hand, and how.
type actor struct {
	env cli.Environment
	act outbox.Act
	out cli.Format
}

func newActor(env cli.Environment) *actor { return &actor{env: env, out: cli.Format{Env: env}} }

func (a *actor) register(flags *pflag.FlagSet) {
	flags.StringVar(&a.act.Operator, "operator", "", "`who` does it, for the audit (default $USER)")
	flags.StringVar(&a.act.Reason, "reason", "", "`why`, for the audit; required")
	flags.BoolVar(&a.act.DryRun, "dry-run", false, "say what would be done, and change nothing")
	a.out.Register(flags)
}

// check completes the operator and refuses an act without a name or a reason.
func (a *actor) check() error {
	if a.act.Operator == "" {
		a.act.Operator = a.env.Get("USER")
	}
	switch {
	case a.act.Operator == "" || len(a.act.Operator) > 128:
		return cli.Usage(errors.New("--operator must have 1 to 128 bytes (default $USER)"))
	case a.act.Reason == "" || len(a.act.Reason) > 1024:
		return cli.Usage(errors.New("--reason must have 1 to 1024 bytes"))
	}
	return nil
}

// did is what an act has done, in the form that --json prints.
type did struct {
	Action  string  `json:"action"`
	DryRun  bool    `json:"dry_run"`
	Rows    []int64 `json:"rows,omitempty"`
	Skipped []int64 `json:"skipped,omitempty"` // rows that the act does not fit
	Count   int64   `json:"count"`
	Target  string  `json:"target,omitempty"`
	QueueID string  `json:"queue_id,omitempty"`
}

func (a *actor) report(d did, words string) error {
	d.DryRun = a.act.DryRun
	return a.out.Print(d, func(w io.Writer) {
		prefix := ""
		if d.DryRun {
			prefix = "dry run: "
		}
		fmt.Fprintln(w, prefix+words)
		if len(d.Skipped) > 0 {
			fmt.Fprintf(w, "skipped, since it needs more than that: rows %v\n", d.Skipped)
		}
	})
}

// parseSeqs reads the numbers of rows.
func parseSeqs(args []string) ([]int64, error) {
	if len(args) > outbox.MaxRows {
		return nil, cli.Usage(fmt.Errorf("%d rows, at most %d at once", len(args), outbox.MaxRows))
	}
	seqs := make([]int64, len(args))
	for i, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 1 {
			return nil, cli.Usage(fmt.Errorf("row %q: must be a number from list", arg))
		}
		seqs[i] = n
	}
	return seqs, nil
}

// anyArguments lets a command check its arguments itself, once its flags are known.
func anyArguments(*cobra.Command, []string) error { return nil }

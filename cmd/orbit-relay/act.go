package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

// An actor is who changes something by hand, and how.
type actor struct {
	env environment
	act outbox.Act
	out cli.Format
}

func newActor(env environment) *actor { return &actor{env: env, out: cli.Format{Env: env.Environment}} }

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
	return flagged(checkAct(a.act))
}

// checkAct refuses an act that the journal could not hold.
func checkAct(a outbox.Act) error {
	switch {
	case a.Operator == "" || len(a.Operator) > 128:
		return &orbit.InvalidArgumentError{Field: "operator", Rule: "must have 1 to 128 bytes"}
	case !utf8.ValidString(a.Operator) || strings.ContainsFunc(a.Operator, unicode.IsControl):
		return &orbit.InvalidArgumentError{Field: "operator", Rule: "must be UTF-8 without control characters"}
	case a.Reason == "" || len(a.Reason) > 1024:
		return &orbit.InvalidArgumentError{Field: "reason", Rule: "must have 1 to 1024 bytes"}
	}
	return nil
}

// flagged puts what is wrong with a field in the words of its flag.
func flagged(err error) error {
	var invalid *orbit.InvalidArgumentError
	if !errors.As(err, &invalid) {
		return err
	}
	name := strings.ReplaceAll(strings.TrimSuffix(invalid.Field, "_id"), "_", "-") // queue_id is --queue
	return cli.Usage(fmt.Errorf("--%s: %s", name, invalid.Rule))
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

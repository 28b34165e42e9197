package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/server"
)

func newTokens(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "tokens",
		Short: "Raise the tokens of resource keys after a restore",
	}
	c.AddCommand(newTokensRaise(env))
	return c
}

const tokensRaiseLong = `raise lifts the last token of every resource key, and the one at which new keys begin, to
--min, or --by so much above the highest there is. After a restore to an older state, or a
fail-over to a replica that lagged, tokens are behind what the resources have seen, which
refuse them as stale; each attempt of a key takes two numbers.

Nothing is lowered, and nobody loses a key: an attempt keeps its token and can finish. It
may run beside nodes of this release, in short transactions, and reads every key. What was
cut off goes on with the same --min; --by is counted anew from the highest. Keys whose tokens
are used up stay so, and do not count as the highest.`

func newTokensRaise(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var r server.TokenRaise
	c := &cobra.Command{
		Use:   "raise",
		Short: "Raise the tokens of all keys that are below a number",
		Long:  tokensRaiseLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			switch {
			case given("min") == given("by"):
				return cli.Usage(errors.New("either --min or --by is required"))
			case r.Min == 0 && r.By == 0:
				return cli.Usage(errors.New("--min and --by: must be at least 1"))
			}
			return raiseTokens(cmd.Context(), env, &out, r)
		},
	}
	f := c.Flags()
	f.Uint64Var(&r.Min, "min", 0, fmt.Sprintf("`number` that every token is to be above, 1 to %d", uint64(server.MaxTokenRaise)))
	f.Uint64Var(&r.By, "by", 0, "instead of --min: `number` that is added to the highest")
	f.StringVar(&r.Application, "application", "", "`name` of the application of --namespace")
	f.StringVar(&r.Namespace, "namespace", "", "only keys in the namespace with this `name`, present and new; needs --application; default all")
	f.BoolVar(&r.DryRun, "dry-run", false, "count only, change nothing")
	f.StringVar(&r.Reason, "reason", "", "`why`, for the audit; required, but for a dry run")
	out.Register(f)
	return c
}

// aLongTime is how often a raise that goes on tells how far it is.
const aLongTime = 5 * time.Second

func raiseTokens(ctx context.Context, env cli.Environment, out *cli.Format, r server.TokenRaise) error {
	told := time.Now()
	r.Progress = func(p server.TokensRaised) {
		if time.Since(told) >= aLongTime {
			told = time.Now()
			fmt.Fprintf(env.Err, "%d keys looked at, %d below %d\n", p.Keys, p.Raised, p.Min)
		}
	}
	return withOperator(ctx, env, func(o *server.Operator) error {
		done, err := o.RaiseTokens(ctx, r)
		if err != nil && (r.DryRun || done.FloorAfter == 0) {
			return err // nothing was written
		}
		if printErr := out.Print(done, func(w io.Writer) { tokensTable(w, done, r.DryRun, err) }); err == nil {
			err = printErr
		}
		return err
	})
}

func tokensTable(w io.Writer, done server.TokensRaised, dry bool, err error) {
	verb := "raised"
	if dry {
		verb = "would raise"
	}
	fmt.Fprintf(w, "%s %d of %d keys to %d; new keys begin above %d (before: %d)\n",
		verb, done.Raised, done.Keys, done.Min, done.FloorAfter, done.FloorBefore)
	if err != nil {
		fmt.Fprintf(w, "not finished: run it again with --min %d\n", done.Min)
	}
}

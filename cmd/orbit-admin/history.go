package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

func newAttempts(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var pages pager
	var payload bool
	c := &cobra.Command{
		Use:   "attempts <task id>",
		Short: "List the attempts of a task, the newest first",
		Args:  cli.OneArgument("the id of one task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			below, err := pages.number("an epoch")
			if err != nil {
				return err
			}
			return withTask(cmd.Context(), env, args[0], func(o *server.Operator, id sqldb.ID) error {
				attempts, next, err := o.Attempts(cmd.Context(), id, below, pages.limit)
				if err != nil {
					return err
				}
				if !payload {
					for _, a := range attempts {
						a.Result = nil
					}
				}
				return printAttemptPage(&out, attempts, next)
			})
		},
	}
	c.Flags().BoolVar(&payload, "payload", false, "show results too (with --json)")
	pages.register(c.Flags(), "`epoch` of the last attempt of the page before")
	out.Register(c.Flags())
	return c
}

// number reads --after where it is a number; what says of what.
func (p *pager) number(what string) (int64, error) {
	if err := p.check(); err != nil || p.after == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(p.after, 10, 64)
	if err != nil || n < 1 {
		return 0, cli.Usage(fmt.Errorf("--after %q: must be %s, from 1 on", p.after, what))
	}
	return n, nil
}

func printAttemptPage(out *cli.Format, attempts []*orbit.Attempt, next int64) error {
	p := page[*orbit.Attempt]{Items: attempts}
	if p.Items == nil {
		p.Items = []*orbit.Attempt{}
	}
	if next != 0 {
		p.Next = strconv.FormatInt(next, 10)
	}
	return out.Print(p, func(w io.Writer) {
		printAttempts(w, attempts)
		if p.Next != "" {
			fmt.Fprintf(w, "more with --after %s\n", p.Next)
		}
	})
}

func printAttempts(w io.Writer, attempts []*orbit.Attempt) {
	fmt.Fprintf(w, "ATTEMPT\tEPOCH\tID\tSTATE\tOUTCOME\tREASON\tTOKEN\tWORKER\tCLAIMED\tSTARTED\tENDED\tERROR\n")
	for _, a := range attempts {
		token := ""
		if a.ConcurrencyToken != 0 {
			token = count(a.ConcurrencyToken)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Number, a.Epoch, a.ID, a.State, cli.Plain(a.Outcome), cli.Plain(a.Reason),
			cli.Plain(token), a.WorkerID, at(a.ClaimedAt), cli.Plain(maybeAt(a.StartedAt)), cli.Plain(maybeAt(a.EndedAt)), cli.Plain(a.ErrorText))
	}
}

func newEvidence(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var pages pager
	var payload bool
	c := &cobra.Command{
		Use:   "evidence <task id>",
		Short: "List the evidence of a task, the newest first",
		Args:  cli.OneArgument("the id of one task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			after, err := pages.id()
			if err != nil {
				return err
			}
			return withTask(cmd.Context(), env, args[0], func(o *server.Operator, id sqldb.ID) error {
				evidence, next, err := o.Evidence(cmd.Context(), id, after, pages.limit)
				if err != nil {
					return err
				}
				return printEvidence(&out, evidence, next, payload)
			})
		},
	}
	c.Flags().BoolVar(&payload, "payload", false, "show the bodies too")
	pages.register(c.Flags(), "`id` of the last evidence of the page before")
	out.Register(c.Flags())
	return c
}

func printEvidence(out *cli.Format, evidence []orbit.Evidence, next string, payload bool) error {
	header := "ID, ATTEMPT, KIND, CREATED, BYTES"
	if payload {
		header += ", BODY"
	}
	if out.JSON && !payload {
		for i := range evidence {
			evidence[i].Body = nil
		}
	}
	return list(out, evidence, next, header, func(e orbit.Evidence) []string {
		cells := []string{e.ID, e.AttemptID, e.Kind, at(e.CreatedAt), strconv.Itoa(len(e.Body))}
		if payload {
			cells = append(cells, string(e.Body))
		}
		return cells
	})
}

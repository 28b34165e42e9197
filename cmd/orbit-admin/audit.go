package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

func newAudit(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed what, and why",
	}
	c.AddCommand(newAuditList(env))
	return c
}

const auditLong = `list shows the rows of the audit, the newest first. It reads only.

Bounded, for an index leads to the rows: --target, and --namespace (with --application)
together with --from and --before. All other filters, and --from and --before without
--namespace, are compared row by row: a page looks at 10,000 rows and no more, so that it may
be short or empty and still say how to go on.`

// An auditQuery is what the flags of audit list say.
type auditQuery struct {
	filter          server.AuditFilter
	target, request string
	span            span
	pages           pager
}

func newAuditList(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var q auditQuery
	c := &cobra.Command{
		Use:   "list",
		Short: "List what was done, the newest first",
		Long:  auditLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := q.read(); err != nil {
				return err
			}
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				entries, next, err := o.Audit(cmd.Context(), q.filter, q.pages.limit)
				if err != nil {
					return err
				}
				return printAudit(&out, entries, next)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&q.filter.Place.Application, "application", "", "`name` of the application of --namespace")
	f.StringVar(&q.filter.Place.Namespace, "namespace", "", "only in the namespace with this `name`; needs --application")
	f.StringVar(&q.target, "target", "", "only what was done to the thing with this `id`")
	f.StringVar(&q.filter.Action, "action", "", "only this `action`, such as queue.update")
	f.StringVar(&q.filter.Actor, "actor", "", "only by this `actor`, as the list shows it")
	f.StringVar(&q.request, "request", "", "only the request with this `id`")
	q.span.register(f)
	q.pages.register(f, "`number` of the last row of the page before")
	out.Register(f)
	return c
}

func (q *auditQuery) read() (err error) {
	if q.filter.After, err = q.pages.number("the number of a row"); err != nil {
		return err
	}
	for _, id := range []struct {
		flag, text string
		into       *sqldb.ID
	}{{"--target", q.target, &q.filter.Target}, {"--request", q.request, &q.filter.Request}} {
		if id.text == "" {
			continue
		}
		if *id.into, err = parseID(id.flag, id.text); err != nil {
			return err
		}
	}
	q.filter.From, q.filter.Before, err = q.span.read()
	return err
}

func printAudit(out *cli.Format, entries []server.AuditEntry, next int64) error {
	p := page[server.AuditEntry]{Items: entries}
	if next != 0 {
		p.Next = strconv.FormatInt(next, 10)
	}
	return out.Print(p, func(w io.Writer) {
		fmt.Fprintln(w, "SEQ\tAT\tACTION\tBY\tTARGET\tREQUEST\tNOTE")
		for _, e := range entries {
			by := e.Actor
			if by == "" && e.CredentialID != "" {
				by = "credential " + e.CredentialID
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Seq, at(e.At), cli.Plain(e.Action), cli.Plain(by), cli.Plain(e.TargetID), cli.Plain(e.RequestID), cli.Plain(e.Note))
		}
		if p.Next != "" {
			fmt.Fprintf(w, "more with --after %s\n", p.Next)
		}
	})
}

// A span is a time from one moment to before another.
type span struct{ from, before string }

func (s *span) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.from, "from", "", "only from this `time` on: 2026-11-01T08:00:00Z, or 2026-11-01 for its begin in UTC")
	flags.StringVar(&s.before, "before", "", "only before this `time`")
}

// read returns both ends in microseconds, nil where there is none.
func (s *span) read() (from, before *int64, err error) {
	if from, err = readTime("--from", s.from); err != nil {
		return nil, nil, err
	}
	before, err = readTime("--before", s.before)
	return from, before, err
}

func readTime(flag, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return new(sqldb.Micros(t)), nil
		}
	}
	return nil, cli.Usage(fmt.Errorf("%s %q: must be a time such as 2026-11-01T08:00:00Z, or a day such as 2026-11-01", flag, text))
}

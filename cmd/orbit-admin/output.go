package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

// A page is a part of a list.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"` // for --after; absent on the last page
}

// list shows a page, with a line for each item.
func list[T any](f *cli.Format, items []T, next, header string, row func(T) []string) error {
	if items == nil {
		items = []T{}
	}
	return f.Print(page[T]{items, next}, func(w io.Writer) {
		fmt.Fprintln(w, strings.ReplaceAll(header, ", ", "\t"))
		for _, item := range items {
			cells := row(item)
			for i := range cells {
				cells[i] = cli.Plain(cells[i])
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		if next != "" {
			fmt.Fprintf(w, "more with --after %s\n", cli.Plain(next))
		}
	})
}

// fields shows the fields of one thing, as pairs of a name and a value.
func fields(w io.Writer, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(w, "%s\t%s\n", pairs[i], cli.Plain(pairs[i+1]))
	}
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func maybeAt(t *time.Time) string {
	if t == nil {
		return ""
	}
	return at(*t)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

// most is a limit; 0 is none.
func most(n uint64) string {
	if n == 0 {
		return "none"
	}
	return count(n)
}

// A pager is how much of a list is asked for.
type pager struct {
	limit int
	after string
}

const maxLimit = 1000

func (p *pager) register(flags *pflag.FlagSet, after string) {
	flags.IntVar(&p.limit, "limit", 50, "most `lines`, 1 to 1000")
	flags.StringVar(&p.after, "after", "", after)
}

func (p *pager) check() error {
	if p.limit < 1 || p.limit > maxLimit {
		return cli.Usage(fmt.Errorf("--limit %d: must be between 1 and %d", p.limit, maxLimit))
	}
	return nil
}

// id reads --after where it is an id.
func (p *pager) id() (id sqldb.ID, err error) {
	if err := p.check(); err != nil || p.after == "" {
		return id, err
	}
	return parseID("--after", p.after)
}

func parseID(what, text string) (sqldb.ID, error) {
	id, err := sqldb.ParseID(text)
	if err != nil {
		return id, cli.Usage(fmt.Errorf("%s: %w", what, err))
	}
	return id, nil
}

func registerPlace(flags *pflag.FlagSet, p *server.Place, queue bool) {
	flags.StringVar(&p.Application, "application", "", "`name` of the application; required")
	flags.StringVar(&p.Namespace, "namespace", "", "`name` of the namespace; required")
	if queue {
		flags.StringVar(&p.Queue, "queue", "", "`name` of the queue; required")
	}
}

func registerReason(flags *pflag.FlagSet, reason *string) {
	flags.StringVar(reason, "reason", "", "`why`, for the audit")
}

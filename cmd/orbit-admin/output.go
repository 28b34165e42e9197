package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

// A format is how a command shows what it has found.
type format struct {
	env  cli.Environment
	json bool
}

func (f *format) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

// print shows v as JSON, or lets table write it for people.
func (f *format) print(v any, table func(w io.Writer)) error {
	if f.json {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			return err
		}
		_, err := f.env.Out.Write(visible(text.Bytes()))
		return err
	}
	w := tabwriter.NewWriter(f.env.Out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// visible writes what a terminal would act on or hide (control characters beyond ASCII,
// zero-width and bidirectional ones) as escapes of JSON. Outside strings JSON has none.
func visible(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		if r < 0x80 || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// A page is a part of a list.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"` // for --after; absent on the last page
}

// list shows a page, with a line for each item.
func list[T any](f *format, items []T, next, header string, row func(T) []string) error {
	if items == nil {
		items = []T{}
	}
	return f.print(page[T]{items, next}, func(w io.Writer) {
		fmt.Fprintln(w, strings.ReplaceAll(header, ", ", "\t"))
		for _, item := range items {
			cells := row(item)
			for i := range cells {
				cells[i] = plain(cells[i])
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		if next != "" {
			fmt.Fprintf(w, "more with --after %s\n", plain(next))
		}
	})
}

// fields shows the fields of one thing, as pairs of a name and a value.
func fields(w io.Writer, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(w, "%s\t%s\n", pairs[i], plain(pairs[i+1]))
	}
}

// plain is a text that others chose, so that it cannot steer a terminal or break a table.
func plain(text string) string {
	switch {
	case text == "":
		return "-"
	case strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0:
		return strconv.Quote(text)
	}
	return text
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

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit/internal/cli"
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
	if !f.json {
		w := tabwriter.NewWriter(f.env.Out, 0, 0, 2, ' ', 0)
		table(w)
		return w.Flush()
	}
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

// visible writes what a terminal would act on or hide as escapes of JSON. Outside
// strings JSON has none.
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

// plain is a text that others chose, so that it cannot steer a terminal or break a table.
func plain(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	if text == "" {
		return "-"
	}
	return text
}

// fields shows pairs of a name and a value, those without a value left out.
func fields(w io.Writer, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", pairs[i], plain(pairs[i+1]))
		}
	}
}

// at is a time for people, empty for none.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// since is a time for JSON, absent for none.
func since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

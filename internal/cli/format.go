package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// A Format is how a command shows what it has found: as a table for people, or as JSON.
type Format struct {
	Env  Environment
	JSON bool
}

// Register adds the flag --json.
func (f *Format) Register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.JSON, "json", false, "print JSON")
}

// Print shows v as JSON, or lets table write it for people: cells end with tabs.
func (f *Format) Print(v any, table func(w io.Writer)) error {
	if !f.JSON {
		w := tabwriter.NewWriter(f.Env.Out, 0, 0, 2, ' ', 0)
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
	_, err := f.Env.Out.Write(visible(text.Bytes()))
	return err
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

// Plain is a text that others chose, so that it cannot steer a terminal or break a table. An
// empty one is "-".
func Plain(text string) string {
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

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/orbitkit/orbit/internal/cli"
)

// A Mistake is one rule that a configuration file breaks, with its place. It never shows a
// value that may be a secret.
type Mistake struct {
	File string
	Line int    // 0 for the file as a whole
	Path string // such as sources.shop.connections; empty for the file as a whole
	Rule string
}

// Error returns place and rule in one line.
func (m Mistake) Error() string {
	place := m.File
	if m.Line > 0 {
		place += ":" + strconv.Itoa(m.Line)
	}
	if m.Path != "" {
		place += ": " + m.Path
	}
	return place + ": " + m.Rule
}

// A document reads a YAML file strictly: what is unknown, doubled or of another type is a
// mistake. It goes on after each, so that all are found at once.
type document struct {
	file     string
	lines    map[string]int // of each path that was read
	mistakes []Mistake
}

// A reader takes the value of one field.
type reader func(n *yaml.Node, path string)

var yamlLine = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?`)

// open returns the root of the text, or nil after a mistake.
func (d *document) open(text []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, next yaml.Node
	err := decoder.Decode(&root)
	switch {
	case errors.Is(err, io.EOF):
		d.add(0, "", "is empty")
	case err != nil:
		d.syntax(err)
	case len(root.Content) != 1:
		d.add(0, "", "is empty")
	case !errors.Is(decoder.Decode(&next), io.EOF):
		d.add(max(1, next.Line), "", "must hold one document")
	default:
		return root.Content[0]
	}
	return nil
}

// syntax notes what the parser says. Its texts name tokens and hold no values.
func (d *document) syntax(err error) {
	m := yamlLine.FindStringSubmatch(err.Error())
	line, text := 0, err.Error()
	if m != nil {
		line, _ = strconv.Atoi(m[1]) // 0 without one
		text = text[len(m[0]):]
	}
	d.add(line, "", "is no YAML: "+text)
}

func (d *document) add(line int, path, rule string) {
	d.mistakes = append(d.mistakes, Mistake{File: d.file, Line: line, Path: path, Rule: rule})
}

// at notes a mistake at a path that was read, or at the nearest one around it.
func (d *document) at(path, rule string) {
	near := path
	for d.lines[near] == 0 && strings.Contains(near, ".") {
		near = near[:strings.LastIndexByte(near, '.')]
	}
	d.add(d.lines[near], path, rule)
}

// object reads a mapping with the given fields, each of which may be left out.
func (d *document) object(n *yaml.Node, path string, fields map[string]reader) {
	known := strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
	d.members(n, path, func(name string, value *yaml.Node, at string) {
		if read := fields[name]; read != nil {
			read(value, at)
			return
		}
		d.at(at, "is unknown, known are "+known)
	})
}

// members reads a mapping whose keys are texts, each once.
func (d *document) members(n *yaml.Node, path string, each func(name string, value *yaml.Node, at string)) {
	if !d.kind(n, path, yaml.MappingNode, "a mapping of fields") {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			d.add(key.Line, path, "a name of a field must be a text")
			continue
		}
		at := key.Value
		if strings.ContainsRune(at, '.') {
			at = strconv.Quote(at) // lest it look like a field of a field
		}
		if path != "" {
			at = path + "." + at
		}
		if first := d.lines[at]; first > 0 {
			d.add(key.Line, at, fmt.Sprintf("is given twice, first in line %d", first))
			continue
		}
		d.lines[at] = key.Line
		each(key.Value, value, at)
	}
}

// kind refuses a node of another kind, and what makes one node stand for another.
func (d *document) kind(n *yaml.Node, path string, want yaml.Kind, what string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.add(n.Line, path, "must be written out: anchors and aliases are not read")
	case n.Kind != want || n.ShortTag() == "!!null":
		d.add(n.Line, path, "must be "+what)
	default:
		return true
	}
	return false
}

// text reads a text that is not empty.
func (d *document) text(to *string) reader {
	return func(n *yaml.Node, path string) {
		switch {
		case !d.kind(n, path, yaml.ScalarNode, "a text"):
		case n.ShortTag() != "!!str":
			d.add(n.Line, path, "must be a text: put it in quotes")
		case n.Value == "":
			d.add(n.Line, path, "must not be empty")
		default:
			*to = n.Value
		}
	}
}

func (d *document) boolean(to *bool) reader {
	return func(n *yaml.Node, path string) {
		if d.kind(n, path, yaml.ScalarNode, "true or false") {
			if n.ShortTag() != "!!bool" {
				d.add(n.Line, path, "must be true or false")
				return
			}
			*to = strings.EqualFold(n.Value, "true")
		}
	}
}

// number reads a whole number within bounds.
func (d *document) number(to *int, least, most int) reader {
	return func(n *yaml.Node, path string) {
		rule := fmt.Sprintf("must be a whole number from %d to %d", least, most)
		if !d.kind(n, path, yaml.ScalarNode, rule[len("must be "):]) {
			return
		}
		value, err := strconv.Atoi(n.Value)
		if n.ShortTag() != "!!int" || err != nil || value < least || value > most {
			d.add(n.Line, path, rule)
			return
		}
		*to = value
	}
}

// duration reads a duration that is not zero, which would silently mean the default.
func (d *document) duration(to *time.Duration) reader {
	return func(n *yaml.Node, path string) {
		const rule = "must be a duration such as 30d, 12h or 1500ms, and not 0"
		if !d.kind(n, path, yaml.ScalarNode, rule[len("must be "):]) {
			return
		}
		value, err := cli.ParseDuration(n.Value)
		if n.ShortTag() != "!!str" || err != nil || value == 0 {
			d.add(n.Line, path, rule)
			return
		}
		*to = value
	}
}

// list reads a sequence of texts.
func (d *document) list(to *[]string) reader {
	return func(n *yaml.Node, path string) {
		if !d.kind(n, path, yaml.SequenceNode, "a list of names") {
			return
		}
		for i, item := range n.Content {
			var name string
			d.text(&name)(item, fmt.Sprintf("%s[%d]", path, i))
			if slices.Contains(*to, name) {
				d.add(item.Line, fmt.Sprintf("%s[%d]", path, i), "is given twice")
				continue
			}
			*to = append(*to, name)
		}
	}
}

// sorted returns the mistakes in the order of their lines.
func (d *document) sorted() []Mistake {
	slices.SortStableFunc(d.mistakes, func(a, b Mistake) int { return a.Line - b.Line })
	return d.mistakes
}

package wiretest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Fault is a legal frame with one thing wrong in it.
type Fault struct {
	Name  string // such as "data.slots = -1"
	Path  string // of the member that is wrong, such as data.held[0].epoch
	Value string // what it is instead; empty if it is missing, there twice or not known
	Frame string

	field, kind string // its own name, and the type of the message
}

// NamedBy reports whether words tell what is wrong: the member, or the message if that has
// no data.
func (f Fault) NamedBy(words string) bool {
	return strings.Contains(words, f.field) || f.Path == "data" && strings.Contains(words, f.kind+": ")
}

// wrong values by the type of the right one. What the schema takes all the same is no fault.
var wrong = map[string][]string{
	"string":  {`null`, `7`, `true`, `{}`, `["x"]`, `""`, `"\ud800"`, `"a b\u0000"`, `"` + strings.Repeat("x", 5000) + `"`},
	"integer": {`null`, `"7"`, `-1`, `1.5`, `1e3`, `0`, `18446744073709551615`, `99999999999999999999`, `true`, `[]`},
	"boolean": {`null`, `"true"`, `1`, `0`, `{}`},
	"array":   {`null`, `{}`, `"x"`, `[null]`, `[7]`, `[[]]`},
	"object":  {`null`, `[]`, `"x"`, `7`},
	"any":     {`null`},
}

// Faults returns the frames that a legal frame of sender becomes by one fault in one
// member: missing, null, of another type, out of bounds, there twice, or spelled
// otherwise. Optional members that are empty or zero are not among them: they count as
// left out.
func Faults(sender, frame string) []Fault {
	value, err := decode([]byte(frame))
	if err == nil {
		err = Check(sender, []byte(frame))
	}
	if err != nil {
		panic(fmt.Sprintf("wiretest: %s: %v", frame, err))
	}
	var all []Fault
	for _, m := range membersOf("", value) {
		all = append(all, m.faults(sender, value)...)
	}
	return all
}

// A place is one member of a frame.
type place struct {
	path, name string
	value      any
}

// membersOf returns the members below a value, but nothing of what lies in business data.
func membersOf(path string, value any) (all []place) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below := strings.TrimPrefix(path+"."+name, ".")
			all = append(all, place{below, name, v[name]})
			if name != "payload" && name != "result" {
				all = append(all, membersOf(below, v[name])...)
			}
		}
	case []any:
		for i, one := range v {
			all = append(all, membersOf(fmt.Sprintf("%s[%d]", path, i), one)...)
		}
	}
	return all
}

func (m place) faults(sender string, frame any) (all []Fault) {
	text := encode(m.value)
	add := func(what, field, value, member string, always bool) {
		spoiled := render("", frame, m.path, member)
		if always || Check(sender, []byte(spoiled)) != nil {
			all = append(all, Fault{
				Name: m.path + " " + what, Path: m.path, Value: value, Frame: spoiled,
				field: field, kind: frame.(map[string]any)["type"].(string),
			})
		}
	}
	said := fmt.Sprintf("%q:%s", m.name, text)
	optional := Check(sender, []byte(render("", frame, m.path, ""))) == nil
	add("is missing", m.name, "", "", false)
	add("stands there twice", m.name, "", said+","+said, true)
	alias := strings.ToUpper(m.name[:1]) + m.name[1:]
	add("is spelled otherwise", alias, "", fmt.Sprintf("%q:%s", alias, text), true)
	add("has a neighbour that is not known", "more", "", said+`,"more":1`, true)
	for _, value := range wrong[kindOf(m)] {
		if optional && (value == `""` || value == `0`) {
			continue
		}
		broken := !json.Valid([]byte(value)) || strings.Contains(value, `\ud800`)
		add("= "+value[:min(len(value), 24)], m.name, value, fmt.Sprintf("%q:%s", m.name, value), broken)
	}
	return all
}

func kindOf(m place) string {
	if m.name == "payload" || m.name == "result" {
		return "any"
	}
	switch m.value.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	}
	return "integer"
}

// render writes a value with another text for the member at path.
func render(at string, value any, path, member string) string {
	switch v := value.(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below := strings.TrimPrefix(at+"."+name, ".")
			part := fmt.Sprintf("%q:%s", name, render(below, v[name], path, member))
			if below == path {
				part = member
			}
			if part != "" {
				parts = append(parts, part)
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		var parts []string
		for i, one := range v {
			parts = append(parts, render(fmt.Sprintf("%s[%d]", at, i), one, path, member))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return encode(value)
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was decoded from text
	}
	return string(text)
}

// Package wiretest holds frames of the worker protocol to its schema. It knows the part
// of JSON Schema that the schema uses, and refuses any other word in it.
package wiretest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/orbitkit/orbit/internal/wire"
)

// Who sends a frame.
const (
	Client = "client"
	Server = "server"
)

var schema = parse(wire.Schema)

func parse(text []byte) map[string]any {
	value, err := decode(text)
	if err != nil {
		panic(err)
	}
	return value.(map[string]any)
}

func decode(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // no number passes through a float
	err = d.Decode(&value)
	return value, err
}

// Check returns nil if frame is one that sender may send, and else the rule that it
// breaks.
func Check(sender string, frame []byte) error {
	value, err := decode(frame)
	if err != nil {
		return err
	}
	kind := ""
	if object, ok := value.(map[string]any); ok {
		kind, _ = object["type"].(string)
	}
	all := resolve("#/$defs/" + sender)["oneOf"].([]any)
	for _, one := range all {
		if s := one.(map[string]any); s["properties"].(map[string]any)["type"].(map[string]any)["const"] == kind {
			return check(s, value, kind)
		}
	}
	return fmt.Errorf("a %s sends no message of type %q", sender, kind)
}

// Properties returns the member names of a message's data, and those that are required.
func Properties(name string) (all, required []string) {
	s := follow(resolve("#/$defs/" + name))
	for member := range s["properties"].(map[string]any) {
		all = append(all, member)
	}
	for _, member := range s["required"].([]any) {
		required = append(required, member.(string))
	}
	slices.Sort(all)
	slices.Sort(required)
	return all, required
}

func resolve(ref string) map[string]any {
	at := any(schema)
	for _, name := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(map[string]any)[name]
	}
	return at.(map[string]any)
}

func follow(s map[string]any) map[string]any {
	if ref, ok := s["$ref"].(string); ok {
		return resolve(ref)
	}
	return s
}

// check holds a value to a schema.
func check(s map[string]any, value any, path string) error {
	for word, rule := range s {
		test, known := words[word]
		if !known {
			panic("the schema uses a word that is not checked: " + word)
		}
		if err := test(s, rule, value, path); err != nil {
			return err
		}
	}
	return nil
}

type test func(s map[string]any, rule, value any, path string) error

var words map[string]test

func init() {
	words = map[string]test{
		"$ref": func(_ map[string]any, rule, value any, path string) error {
			return check(resolve(rule.(string)), value, path)
		},
		"const": func(_ map[string]any, rule, value any, path string) error {
			return unless(rule == value, path, "must be %v", rule)
		},
		"enum": func(_ map[string]any, rule, value any, path string) error {
			return unless(slices.Contains(rule.([]any), value), path, "must be one of %v", rule)
		},
		"not": func(_ map[string]any, rule, value any, path string) error {
			return unless(check(rule.(map[string]any), value, path) != nil, path, "must not be %v", rule)
		},
		"type": checkType, "if": checkIf, "then": ignored, "else": ignored, "description": ignored,
		"required": checkRequired, "properties": checkProperties, "additionalProperties": checkAdditional,
		"items": checkItems, "minItems": items(1), "maxItems": items(-1),
		"pattern": checkPattern, "minLength": length(1), "maxLength": length(-1),
		"minimum": bound(1), "maximum": bound(-1),
	}
}

func ignored(map[string]any, any, any, string) error { return nil }

func unless(ok bool, path, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...))
}

func checkType(_ map[string]any, rule, value any, path string) error {
	kind := "null"
	switch v := value.(type) {
	case map[string]any:
		kind = "object"
	case []any:
		kind = "array"
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case json.Number:
		if kind = "number"; !strings.ContainsAny(v.String(), ".eE") {
			kind = "integer"
		}
	}
	return unless(kind == rule, path, "must be of type %v, is %s", rule, kind)
}

func checkIf(s map[string]any, rule, value any, path string) error {
	branch := "then"
	if check(rule.(map[string]any), value, path) != nil {
		branch = "else"
	}
	next, _ := s[branch].(map[string]any)
	return check(next, value, path)
}

func checkRequired(_ map[string]any, rule, value any, path string) error {
	object, ok := value.(map[string]any)
	for _, name := range rule.([]any) {
		if _, has := object[name.(string)]; ok && !has {
			return fmt.Errorf("%s.%v: is required", path, name)
		}
	}
	return nil
}

func checkProperties(_ map[string]any, rule, value any, path string) error {
	object, _ := value.(map[string]any)
	for name, s := range rule.(map[string]any) {
		if member, has := object[name]; has {
			if err := check(s.(map[string]any), member, path+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAdditional knows one rule: false.
func checkAdditional(s map[string]any, rule, value any, path string) error {
	object, _ := value.(map[string]any)
	for name := range object {
		if _, known := s["properties"].(map[string]any)[name]; !known && rule == false {
			return fmt.Errorf("%s.%s: is not known", path, name)
		}
	}
	return nil
}

func checkItems(_ map[string]any, rule, value any, path string) error {
	list, _ := value.([]any)
	for i, one := range list {
		if err := check(rule.(map[string]any), one, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

func checkPattern(_ map[string]any, rule, value any, path string) error {
	text, ok := value.(string)
	return unless(!ok || matches(rule.(string), text), path, "must match %v", rule)
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// The three below hold a number to a bound; sign is 1 for a least and -1 for a most.

func items(sign int) test {
	return func(_ map[string]any, rule, value any, path string) error {
		list, ok := value.([]any)
		return unless(!ok || within(big.NewInt(int64(len(list))), rule, sign), path, "has %d items, bound is %v", len(list), rule)
	}
}

func length(sign int) test {
	return func(_ map[string]any, rule, value any, path string) error {
		text, ok := value.(string)
		n := utf8.RuneCountInString(text)
		return unless(!ok || within(big.NewInt(int64(n)), rule, sign), path, "has %d characters, bound is %v", n, rule)
	}
}

func bound(sign int) test {
	return func(_ map[string]any, rule, value any, path string) error {
		number, ok := value.(json.Number)
		n, whole := new(big.Int).SetString(number.String(), 10)
		return unless(!ok || whole && within(n, rule, sign), path, "is %s, bound is %v", number, rule)
	}
}

func within(n *big.Int, rule any, sign int) bool {
	limit, _ := new(big.Int).SetString(rule.(json.Number).String(), 10)
	return n.Cmp(limit)*sign >= 0
}

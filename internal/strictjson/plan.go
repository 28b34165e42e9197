package strictjson

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// A plan is what Decode knows of one struct type.
type plan struct {
	fields   []field
	byName   map[string]int
	required uint64 // bit i: field i
}

type field struct {
	name     string
	index    int
	nullable bool
}

var plans sync.Map // reflect.Type to *plan; a cache, bounded by the program's types

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p, _ := plans.LoadOrStore(t, newPlan(t))
	return p.(*plan)
}

func newPlan(t reflect.Type) *plan {
	p := &plan{byName: make(map[string]int)}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if !sf.IsExported() || name == "-" {
			continue
		}
		if name == "" || len(p.fields) == 64 {
			panic(fmt.Sprintf("strictjson: field %s of %s needs a json name, and a struct has at most 64 fields", sf.Name, t))
		}
		if !supported(sf.Type) {
			panic(fmt.Sprintf("strictjson: field %s of %s has a type that Decode does not know", sf.Name, t))
		}
		strict := sf.Tag.Get("strict")
		p.byName[name] = len(p.fields)
		if strict == "required" {
			p.required |= 1 << len(p.fields)
		}
		p.fields = append(p.fields, field{name: name, index: i, nullable: strict == "nullable"})
	}
	return p
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

func supported(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(textUnmarshaler) {
		return true
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		return t == reflect.TypeFor[json.RawMessage]() || supported(t.Elem())
	case reflect.Struct, reflect.String, reflect.Bool:
		return true
	}
	return reflect.Int <= t.Kind() && t.Kind() <= reflect.Uint64
}

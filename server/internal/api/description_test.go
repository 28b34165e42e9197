package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// A description is openapi.yaml made ready to hold exchanges to it. It is stricter than the
// document in one point: an answer may have no member that is not described. It is safe
// for concurrent use.
type description struct {
	doc        map[string]any
	operations []*operation
	// What any path can answer: to a path that there is not, and to a method.
	noPath, noMethod *described

	compiler *jsonschema.Compiler
	schemas  int
}

// An operation is one method of one path.
type operation struct {
	id         string
	method     string
	path       string         // with {names}
	form       *regexp.Regexp // of a path
	parameters []parameter
	body       *jsonschema.Schema // of the request; nil if it has none
	responses  map[int]*described
}

// A parameter is one of a path, a query or a header.
type parameter struct {
	name, in string
	required bool
	value
}

// A described answer is what may be answered with one status.
type described struct {
	headers map[string]header
	content string // media type; "" if there is none
	body    *jsonschema.Schema
}

type header struct {
	required bool
	value
}

// A value is one that travels as text.
type value struct {
	integer bool
	schema  *jsonschema.Schema
}

const documentURL = "https://orbit.invalid/openapi.yaml"

// loadDescription reads the document once for all tests.
var loadDescription = sync.OnceValues(func() (*description, error) {
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	return parseDescription(text)
})

func parseDescription(text []byte) (d *description, err error) {
	defer func() { // a document of the wrong shape
		if v := recover(); v != nil {
			d, err = nil, fmt.Errorf("read openapi.yaml: %v", v)
		}
	}()
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	root, err := plain(node.Content[0])
	if err != nil {
		return nil, err
	}
	d = &description{doc: root.(map[string]any), compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	if err := d.compiler.AddResource(documentURL, strict(d.doc)); err != nil {
		return nil, err
	}
	for path, item := range object(d.doc["paths"]) {
		for method, operation := range object(item) {
			if method != "parameters" {
				d.add(path, method, object(item), object(operation))
			}
		}
	}
	responses := object(object(d.doc["components"])["responses"])
	d.noPath = d.response(responses["NotFound"])
	d.noMethod = d.response(responses["MethodNotAllowed"])
	return d, nil
}

// plain turns YAML into what a reader of JSON would make of it, numbers as they are written.
func plain(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if _, twice := m[name]; twice {
				return nil, fmt.Errorf("line %d: %s occurs twice", n.Content[i].Line, name)
			}
			v, err := plain(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[name] = v
		}
		return m, nil
	case yaml.SequenceNode:
		list := []any{}
		for _, one := range n.Content {
			v, err := plain(one)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		return scalar(n)
	}
	return nil, fmt.Errorf("line %d: aliases are not for this document", n.Line)
}

func scalar(n *yaml.Node) (any, error) {
	switch n.Tag {
	case "!!str":
		return n.Value, nil
	case "!!int", "!!float":
		return json.Number(n.Value), nil
	case "!!bool":
		return strconv.ParseBool(n.Value)
	case "!!null":
		return nil, nil
	}
	return nil, fmt.Errorf("line %d: %s is no JSON", n.Line, n.Tag)
}

// object panics if v is no object, list if it is no array; parseDescription tells.
func object(v any) map[string]any {
	if v == nil {
		return nil
	}
	return v.(map[string]any)
}

func list(v any) []any {
	if v == nil {
		return nil
	}
	return v.([]any)
}

// strict copies what may hold schemas, with references that work from everywhere. Objects
// are closed, except where a schema only asks a question.
func strict(v any) any {
	switch v := v.(type) {
	case []any:
		copied := make([]any, len(v))
		for i, one := range v {
			copied[i] = strict(one)
		}
		return copied
	case map[string]any:
		copied := map[string]any{}
		for name, one := range v {
			switch name {
			case "if", "then", "else", "not":
				copied[name] = one // no references in there
			case "$ref":
				copied[name] = documentURL + one.(string)
			default:
				copied[name] = strict(one)
			}
		}
		if _, closed := v["additionalProperties"]; v["properties"] != nil && !closed {
			copied["additionalProperties"] = false
		}
		return copied
	}
	return v
}

// follow returns what a reference leads to.
func (d *description) follow(v any) map[string]any {
	o := object(v)
	ref, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	var at any = d.doc
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = object(at)[part]
	}
	if at == nil {
		panic(ref + " leads nowhere")
	}
	return d.follow(at)
}

// schema compiles one.
func (d *description) schema(v any) *jsonschema.Schema {
	d.schemas++
	url := fmt.Sprintf("https://orbit.invalid/schemas/%d", d.schemas)
	if err := d.compiler.AddResource(url, strict(v)); err != nil {
		panic(err)
	}
	return d.compiler.MustCompile(url)
}

func (d *description) value(v any) value {
	return value{integer: d.follow(v)["type"] == "integer", schema: d.schema(v)}
}

var (
	placeholder      = regexp.MustCompile(`\\\{[a-z_]+\\\}`) // in a quoted path
	placeholderNames = regexp.MustCompile(`\{([a-z_]+)\}`)
)

func (d *description) add(path, method string, item, o map[string]any) {
	op := &operation{
		id: o["operationId"].(string), method: strings.ToUpper(method), path: path, responses: map[int]*described{},
		form: regexp.MustCompile("^" + placeholder.ReplaceAllString(regexp.QuoteMeta(path), "([^/:]+)") + "$"),
	}
	for _, v := range append(slices.Clone(list(item["parameters"])), list(o["parameters"])...) {
		p := d.follow(v)
		required, _ := p["required"].(bool)
		op.parameters = append(op.parameters, parameter{p["name"].(string), p["in"].(string), required, d.value(p["schema"])})
	}
	if body := object(o["requestBody"]); body != nil {
		op.body = d.schema(object(object(body["content"])["application/json"])["schema"])
	}
	for status, v := range object(o["responses"]) {
		code, err := strconv.Atoi(status)
		if err != nil {
			panic(err)
		}
		op.responses[code] = d.response(v)
	}
	d.operations = append(d.operations, op)
}

func (d *description) response(v any) *described {
	r := d.follow(v)
	answer := &described{headers: map[string]header{}}
	for name, v := range object(r["headers"]) {
		h := d.follow(v)
		required, _ := h["required"].(bool)
		answer.headers[http.CanonicalHeaderKey(name)] = header{required, d.value(h["schema"])}
	}
	for media, v := range object(r["content"]) {
		answer.content, answer.body = media, d.schema(object(v)["schema"])
	}
	return answer
}

// find returns the operation of a request and what else the path offers. Both are nothing
// for a path that is not described.
func (d *description) find(r *http.Request) (found *operation, methods []string) {
	if strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f") {
		return nil, nil
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, op := range d.operations {
		if !op.form.MatchString(r.URL.Path) {
			continue
		}
		methods = append(methods, op.method)
		if op.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		if op.method == method {
			found = op
		}
	}
	slices.Sort(methods)
	return found, methods
}

package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// An exchange is a request and what was answered.
type exchange struct {
	request *http.Request
	sent    []byte
	status  int
	header  http.Header
	got     []byte
}

// contractHeaders must not be sent where they are not described.
var contractHeaders = []string{
	"X-Request-Id", "Orbit-Content-Digest", "Orbit-Idempotent-Replayed", "Retry-After", "Allow", "Www-Authenticate",
	"Preference-Applied", "Etag", "Location",
}

// check holds an exchange to the description. A status that is not described for the path
// is a fault, and so is a request that was served and that the description forbids.
func (d *description) check(e exchange) error {
	op, methods := d.find(e.request)
	var answer *described
	switch {
	case methods == nil:
		answer = one(d.noPath, e.status == http.StatusNotFound)
	case op == nil:
		answer = one(d.noMethod, e.status == http.StatusMethodNotAllowed && e.header.Get("Allow") == strings.Join(methods, ", "))
	default:
		answer = op.responses[e.status]
	}
	if answer == nil {
		return fmt.Errorf("openapi.yaml: %s %s does not describe status %d (Allow %q)", e.request.Method, e.request.URL.Path, e.status, e.header.Get("Allow"))
	}
	if err := answer.check(e); err != nil {
		return fmt.Errorf("openapi.yaml: answer %d of %s %s: %w", e.status, e.request.Method, e.request.URL.Path, err)
	}
	if e.status >= 300 {
		return nil
	}
	if err := op.check(e); err != nil {
		return fmt.Errorf("openapi.yaml: %s %s was served: %w", e.request.Method, e.request.URL.Path, err)
	}
	return nil
}

func one(d *described, ok bool) *described {
	if ok {
		return d
	}
	return nil
}

// check holds the answer to what is described.
func (d *described) check(e exchange) error {
	for name, h := range d.headers {
		if err := h.check(headerValues(e.header, name), h.required); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	for _, name := range contractHeaders {
		if _, known := d.headers[name]; !known && e.header.Get(name) != "" {
			return fmt.Errorf("header %s is not described", name)
		}
	}
	if e.header.Get("Content-Type") != d.content {
		return fmt.Errorf("Content-Type %q, want %q", e.header.Get("Content-Type"), d.content)
	}
	if d.content != "application/json" || e.request.Method == http.MethodHead {
		return nil
	}
	return validate(d.body, e.got)
}

// check holds a request that was served to what is described.
func (op *operation) check(e exchange) error {
	query, err := url.ParseQuery(e.request.URL.RawQuery)
	if err != nil {
		return err
	}
	for _, p := range op.parameters {
		var values []string
		switch p.in {
		case "query":
			values = query[p.name]
			delete(query, p.name)
		case "header":
			values = headerValues(e.request.Header, p.name)
		case "path":
			values = []string{op.pathValue(e.request.URL.Path, p.name)}
		}
		if err := p.check(values, p.required); err != nil {
			return fmt.Errorf("%s parameter %s: %w", p.in, p.name, err)
		}
	}
	if len(query) > 0 && op.responses[http.StatusBadRequest] != nil {
		return fmt.Errorf("query parameters %v are not described", query)
	}
	switch {
	case op.body == nil:
		return nil
	case op.id == "submitBatch":
		return op.checkBatch(e)
	}
	return validate(op.body, e.sent)
}

func (op *operation) pathValue(path, name string) string {
	names := placeholderNames.FindAllStringSubmatch(op.path, -1)
	at := slices.IndexFunc(names, func(n []string) bool { return n[1] == name })
	return op.form.FindStringSubmatch(path)[at+1]
}

// checkBatch holds the items to the description that were accepted: what is wrong with
// another is its own answer.
func (op *operation) checkBatch(e exchange) error {
	var sent struct{ Items []json.RawMessage }
	var got struct {
		Data struct{ Items []struct{ Status int } }
	}
	if err := json.Unmarshal(e.got, &got); err != nil {
		return err
	}
	if err := json.Unmarshal(e.sent, &sent); err != nil {
		return nil // nested too deeply to be read here, as one of the tests does
	}
	if len(sent.Items) != len(got.Data.Items) {
		return fmt.Errorf("%d items were answered with %d", len(sent.Items), len(got.Data.Items))
	}
	var accepted []json.RawMessage
	for i, item := range got.Data.Items {
		if item.Status < 300 {
			accepted = append(accepted, sent.Items[i])
		}
	}
	if len(accepted) == 0 {
		return nil
	}
	text, err := json.Marshal(map[string]any{"items": accepted})
	if err != nil {
		return err
	}
	return validate(op.body, text)
}

// check holds the values of a header or a parameter to what is described.
func (v value) check(values []string, required bool) error {
	switch {
	case len(values) == 0 && !required:
		return nil
	case len(values) == 0:
		return fmt.Errorf("is missing")
	}
	for _, text := range values {
		var instance any = text
		if _, err := strconv.ParseUint(text, 10, 64); v.integer && err == nil {
			instance = json.Number(text)
		}
		if err := v.schema.Validate(instance); err != nil {
			return err
		}
	}
	return nil
}

// headerValues returns the values of a header, to which blanks around them do not belong
// (RFC 9110).
func headerValues(h http.Header, name string) (values []string) {
	for _, v := range h.Values(name) {
		values = append(values, strings.Trim(v, " \t"))
	}
	return values
}

// validate reads JSON with all digits of its numbers.
func validate(schema *jsonschema.Schema, text []byte) error {
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(instance)
}

package api_test

import (
	"bytes"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/api"
	"github.com/orbitkit/orbit/server/internal/auth"
)

func openapi(t *testing.T) *description {
	t.Helper()
	d, err := loadDescription()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What is served is described, and nothing else is.
func TestEveryRouteIsDescribed(t *testing.T) {
	d := openapi(t)
	var paths []string
	for _, op := range d.operations {
		paths = append(paths, op.method+" "+placeholderNames.ReplaceAllString(op.path, "{}"))
	}
	slices.Sort(paths)
	if routes := api.Routes(); !slices.Equal(paths, routes) {
		t.Errorf("described:\n%s\nserved:\n%s", strings.Join(paths, "\n"), strings.Join(routes, "\n"))
	}
	for _, path := range api.Public() {
		for _, v := range object(object(d.doc["paths"])[path]) {
			security, said := object(v)["security"]
			if worker := path == "/v1/worker/connect"; worker == (said && len(list(security)) == 0) {
				t.Errorf("%s: security %v: only the connection of workers asks for a credential by itself", path, security)
			}
		}
	}
}

// The table of paths in docs/api.md has everything that is served, but what lies below a task
// and is only read: one row speaks for all of that.
func TestTheDocumentNamesEveryPath(t *testing.T) {
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| request | permission |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	for _, route := range api.Routes() {
		method, path, _ := strings.Cut(strings.ReplaceAll(route, "{}", "{id}"), " ")
		if method == http.MethodGet && strings.HasPrefix(path, "/v1/tasks/{id}/") {
			continue
		}
		named := func(row string) bool {
			return strings.Contains(row, "| `"+method+" ") && (strings.Contains(row, " "+path+"`") || strings.Contains(row, "`"+path+"`"))
		}
		if !slices.ContainsFunc(rows, named) {
			t.Errorf("docs/api.md has no row for %s %s", method, path)
		}
	}
}

// The form of OpenAPI 3.1, as far as this document uses it, and what it promises of itself.
func TestDescriptionIsWellFormed(t *testing.T) {
	d := openapi(t)
	if version, _ := d.doc["openapi"].(string); !strings.HasPrefix(version, "3.1.") {
		t.Errorf("openapi is %q", version)
	}
	if info := object(d.doc["info"]); info["title"] == "" || info["version"] != orbit.ContractName {
		t.Errorf("info = %v", info)
	}
	used := map[string]bool{"responses/MethodNotAllowed": true, "securitySchemes/bearer": true}
	references(d.doc, used)
	for kind, v := range object(d.doc["components"]) {
		for name := range object(v) {
			if !used[kind+"/"+name] {
				t.Errorf("#/components/%s/%s is not used", kind, name)
			}
		}
	}
	ids := map[string]bool{}
	for path, item := range object(d.doc["paths"]) {
		for method, v := range object(item) {
			if method != "parameters" {
				d.checkOperation(t, method+" "+path, ids, object(item), object(v))
			}
		}
	}
}

// references collects what the references in v name below #/components/.
func references(v any, into map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			references(one, into)
		}
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			into[strings.TrimPrefix(ref, "#/components/")] = true
		}
		for _, one := range v {
			references(one, into)
		}
	}
}

func (d *description) checkOperation(t *testing.T, name string, ids map[string]bool, item, o map[string]any) {
	id, _ := o["operationId"].(string)
	if id == "" || ids[id] || o["summary"] == nil {
		t.Errorf("%s: operationId %q is missing or repeated, or there is no summary", name, id)
	}
	ids[id] = true
	for _, tag := range list(o["tags"]) {
		if !slices.ContainsFunc(list(d.doc["tags"]), func(v any) bool { return object(v)["name"] == tag }) {
			t.Errorf("%s: tag %v is not declared", name, tag)
		}
	}
	d.checkPathParameters(t, name, append(slices.Clone(list(item["parameters"])), list(o["parameters"])...))
	d.checkExample(t, name, object(o["requestBody"]))
	open := o["security"] != nil
	responses := object(o["responses"])
	for status, v := range responses {
		r := d.follow(v)
		if r["description"] == nil {
			t.Errorf("%s: answer %s has no description", name, status)
		}
		if status != "101" && object(r["headers"])["X-Request-ID"] == nil { // API-016
			t.Errorf("%s: answer %s has no X-Request-ID", name, status)
		}
		d.checkExample(t, name+" "+status, r)
	}
	for _, status := range []string{"401", "503"} { // ERR-002, ERR-012
		if !open && responses[status] == nil {
			t.Errorf("%s has no answer %s", name, status)
		}
	}
}

// checkPathParameters compares the parameters with the names in the path.
func (d *description) checkPathParameters(t *testing.T, name string, parameters []any) {
	var want, have []string
	for _, m := range placeholderNames.FindAllStringSubmatch(name, -1) {
		want = append(want, m[1])
	}
	for _, v := range parameters {
		p := d.follow(v)
		if in := p["in"]; in != "path" && in != "query" && in != "header" {
			t.Errorf("%s: parameter %v lies in %v", name, p["name"], in)
		}
		if p["in"] == "path" {
			have = append(have, p["name"].(string))
			if p["required"] != true {
				t.Errorf("%s: path parameter %v is not required", name, p["name"])
			}
		}
	}
	if slices.Sort(have); !slices.Equal(slices.Sorted(slices.Values(want)), have) {
		t.Errorf("%s: path parameters %v, want %v", name, have, want)
	}
}

// checkExample holds an example to its schema.
func (d *description) checkExample(t *testing.T, name string, carrier map[string]any) {
	for media, v := range object(carrier["content"]) {
		content := object(v)
		if content["schema"] == nil {
			t.Errorf("%s: %s has no schema", name, media)
		}
		if example, ok := content["example"]; ok {
			if err := d.schema(content["schema"]).Validate(example); err != nil {
				t.Errorf("%s: example: %v", name, err)
			}
		}
	}
}

// ERR-014: the codes of the answers are the closed set, each with the status it belongs to.
func TestDescriptionHasEveryCode(t *testing.T) {
	d := openapi(t)
	found := map[string]bool{}
	for path, item := range object(d.doc["paths"]) {
		for method, v := range object(item) {
			if method == "parameters" {
				continue
			}
			for status, r := range object(object(v)["responses"]) {
				for _, code := range d.codes(r) {
					found[code] = true
					if !belongs(status, code) {
						t.Errorf("%s %s: code %s with status %s", method, path, code, status)
					}
				}
			}
		}
	}
	want := []string{
		"APPLICATION_FULL", "BODY_TOO_LARGE", "IDEMPOTENCY_CONFLICT", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED",
		"QUEUE_FULL", "STATE_CONFLICT", "UNAUTHENTICATED", "UNAVAILABLE", "UNSUPPORTED_MEDIA_TYPE",
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
}

// codes returns the codes that an error answer may have.
func (d *description) codes(response any) (codes []string) {
	content := object(object(d.follow(response)["content"])["application/json"])
	inner := object(object(object(content["schema"])["properties"])["error"])
	code := object(object(inner["properties"])["code"])
	if one, ok := code["const"].(string); ok {
		return []string{one}
	}
	for _, one := range list(code["enum"]) {
		codes = append(codes, one.(string))
	}
	return codes
}

func belongs(status, code string) bool {
	n, err := strconv.Atoi(status)
	return err == nil && orbit.CodeBelongsTo(n, code)
}

// REF-AUTH-002: the description knows every permission.
func TestDescriptionHasEveryPermission(t *testing.T) {
	d := openapi(t)
	capabilities := object(object(object(d.doc["components"])["schemas"])["Capabilities"])
	permissions := object(object(object(capabilities["properties"])["permissions"])["items"])
	var known []string
	for _, p := range list(permissions["enum"]) {
		known = append(known, p.(string))
	}
	if !slices.Equal(known, auth.KnownPermissions()) {
		t.Errorf("described %v, known %v", known, auth.KnownPermissions())
	}
}

// A check that nothing fails proves nothing: an exchange that does not fit is found.
func TestExchangesOutsideTheDescriptionAreFound(t *testing.T) {
	d := openapi(t)
	const id = "0123456789abcdef0123456789abcdef"
	base := exchange{
		status: 200, sent: []byte(`{"expected_revision":"1","paused":true}`),
		header: http.Header{"X-Request-Id": {id}, "Content-Type": {"application/json"}},
		got: []byte(`{"request_id":"` + id + `","data":{"id":"` + id + `","namespace_id":"` + id + `","name":"q","max_backlog":0,"max_concurrency":0,` +
			`"paused":true,"active_attempts":0,"revision":"2","created_at":"2026-09-17T00:00:00Z","updated_at":"2026-09-17T00:00:00Z"}}`),
	}
	fits := func(change func(e *exchange)) error {
		e := base
		e.header = e.header.Clone()
		req, err := http.NewRequest(http.MethodPatch, "http://host/v1/queues/"+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "key")
		e.request = req
		change(&e)
		return d.check(e)
	}
	if err := fits(func(*exchange) {}); err != nil {
		t.Fatalf("the exchange that all cases change: %v", err)
	}
	replace := func(text []byte, old, new string) []byte { return bytes.Replace(text, []byte(old), []byte(new), 1) }
	for name, change := range map[string]func(e *exchange){
		"status":                  func(e *exchange) { e.status = 201 },
		"path":                    func(e *exchange) { e.request.URL.Path += "/more" },
		"method":                  func(e *exchange) { e.request.Method = "PUT" },
		"no request id":           func(e *exchange) { e.header.Del("X-Request-Id") },
		"header not described":    func(e *exchange) { e.header.Set("Retry-After", "1") },
		"value of a header":       func(e *exchange) { e.header.Set("Orbit-Idempotent-Replayed", "yes") },
		"content type":            func(e *exchange) { e.header.Set("Content-Type", "text/plain") },
		"member not described":    func(e *exchange) { e.got = replace(e.got, `"name"`, `"more":1,"name"`) },
		"member missing":          func(e *exchange) { e.got = replace(e.got, `"paused":true,`, ``) },
		"member that must not be": func(e *exchange) { e.got = replace(e.got, `"name"`, `"unfinished":1,"name"`) },
		"revision as a number":    func(e *exchange) { e.got = replace(e.got, `"2"`, `2`) },
		"time not in UTC":         func(e *exchange) { e.got = replace(e.got, `00Z`, `00+00:00`) },
		"served without a key":    func(e *exchange) { e.request.Header.Del("Idempotency-Key") },
		"served with a bad key":   func(e *exchange) { e.request.Header.Set("Idempotency-Key", "two words") },
		"served with a query":     func(e *exchange) { e.request.URL.RawQuery = "dry_run=1" },
		"served a bad body":       func(e *exchange) { e.sent = replace(e.sent, `"1"`, `"0"`) },
		"served an unknown field": func(e *exchange) { e.sent = replace(e.sent, `"paused"`, `"Paused":true,"paused"`) },
		"served nothing to do":    func(e *exchange) { e.sent = replace(e.sent, `,"paused":true`, ``) },
	} {
		if fits(change) == nil {
			t.Errorf("%s: the exchange was let through", name)
		}
	}
}

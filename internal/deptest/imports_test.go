package deptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/orbitkit/orbit"

// root is how the tables below name the module's root, package orbit.
const root = "."

// allowed lists what each tree of packages may import of ours, besides itself. The most
// specific tree counts. A package that stands in no tree fails the test: whoever adds it
// decides its place here.
var allowed = map[string][]string{
	root:                        {"internal/strictjson"},
	"outbox":                    {root, "internal/sqldb"},
	"outbox/outboxtest":         {root, "outbox"},
	"outbox/outboxtrace":        {root, "outbox"},
	"relay":                     {root, "outbox"},
	"relay/relaymetrics":        {"outbox", "relay"},
	"server":                    {root, "migrations", "internal/sqldb", "internal/strictjson", "internal/wire", "internal/version", "internal/throttle"},
	"worker":                    {root, "internal/strictjson", "internal/wire"},
	"worker/workertest":         {root, "worker", "internal/wire"},
	"worker/workermetrics":      {"worker"},
	"resourceguard":             {"internal/sqldb"},
	"resourceguard/guardtest":   {"resourceguard"},
	"resourceguard/guardhttp":   {"resourceguard"},
	"resourceguard/guardworker": {"resourceguard", "worker"},
	"resourceguard/reconcile":   {"resourceguard", root},
	"handoff":                   {},
	"handoff/handofftest":       {"handoff"},
	"migrations":                {"internal/sqldb"},
	"cmd":                       {"*"},
	"examples":                  {root, "outbox", "outbox/outboxtest", "relay", "server", "worker", "worker/workertest", "resourceguard", "resourceguard/guardtest", "resourceguard/guardhttp", "resourceguard/guardworker", "resourceguard/reconcile", "handoff", "handoff/handofftest", "migrations"},
	"internal/strictjson":       {},
	"internal/sqldb":            {},
	"internal/wire":             {root},
	"internal/version":          {},
	"internal/cli":              {"internal/version"},
	"internal/tracing":          {"internal/version"},
	"internal/throttle":         {},
	"internal/drivers":          {"internal/sqldb"},
	"internal/dbtest":           {"internal/drivers", "internal/sqldb", "migrations"},
	"internal/dbfault":          {"internal/dbtest", "internal/drivers", "internal/sqldb"},
	"internal/deptest":          {},
	"internal/docstest":         {},
	"internal/coverage":         {},
	"internal/bubble":           {},
	"internal/freeport":         {},
	"internal/faults":           {},
}

// driverModules are the database drivers.
var driverModules = []string{"github.com/go-sql-driver/mysql", "modernc.org/sqlite", "github.com/jackc/pgx", "github.com/lib/pq"}

// mayHaveDrivers are the trees that may import them, or internal/drivers.
var mayHaveDrivers = []string{"cmd", "examples", "internal/drivers", "internal/dbtest", "internal/dbfault"}

const (
	prometheus    = "github.com/prometheus/client_golang"
	openTelemetry = "go.opentelemetry.io/otel"
	otelSDK       = openTelemetry + "/sdk"
	otelExporters = openTelemetry + "/exporters"
)

// forbidden lists what the packages of a tree must not pull in, through whatever they
// import.
var forbidden = map[string][]string{
	root:                 {"database/sql", "server", "outbox", "relay", "worker", "migrations", "resourceguard", "internal/sqldb", "testing", prometheus, openTelemetry},
	"worker":             {"database/sql", "server", "outbox", "relay", "migrations", "resourceguard", "internal/sqldb", "testing", prometheus, otelSDK, otelExporters},
	"outbox":             {"server", "relay", "worker", "resourceguard", "testing", prometheus, openTelemetry},
	"outbox/outboxtrace": {"server", "relay", "worker", "resourceguard", "testing", prometheus, otelSDK, otelExporters},
	"relay":              {"server", "worker", "resourceguard", "testing", prometheus, otelSDK, otelExporters},
	"resourceguard":      {"server", "outbox", "relay", "worker", "net/http", "testing", prometheus, openTelemetry},
	"server":             {"outbox", "relay", "worker", "resourceguard", "testing", otelSDK, otelExporters},
	"handoff":            {"database/sql", "net/http", "testing"},
	"migrations":         {"server", "outbox", "relay", "worker", "resourceguard", "net/http", "testing"},
	"cmd":                {"testing"},
	"examples":           {"testing"},
}

// A listed is a package as go list tells it.
type listed struct {
	ImportPath string
	Imports    []string // direct, without tests
	Deps       []string // all
}

// ours returns the place of a package in this module.
func ours(importPath string) (place string, ok bool) {
	if importPath == module {
		return root, true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func within(place, tree string) bool {
	return place == tree || tree != root && strings.HasPrefix(place, tree+"/")
}

// treeOf returns the most specific tree of the table that holds place.
func treeOf(place string) (tree string, ok bool) {
	for t := range allowed {
		if within(place, t) && len(t) > len(tree) {
			tree = t
		}
	}
	return tree, tree != ""
}

// judge returns every breach of the tables.
func judge(packages []listed) []string {
	var breaches []string
	support := testSupport(packages)
	for _, p := range packages {
		place, ok := ours(p.ImportPath)
		if !ok {
			continue
		}
		tree, ok := treeOf(place)
		if !ok {
			breaches = append(breaches, place+" stands in no tree of the table")
			continue
		}
		if !support[place] {
			breaches = append(breaches, directBreaches(place, tree, p.Imports)...)
			breaches = append(breaches, pulledIn(place, tree, p.Deps, support)...)
		}
	}
	return breaches
}

// testSupport returns the packages that import internal/dbtest: helpers of tests, which
// themselves are bound by no table but must not get into a program.
func testSupport(packages []listed) map[string]bool {
	support := map[string]bool{"internal/dbtest": true}
	for _, p := range packages {
		if place, ok := ours(p.ImportPath); ok && slices.Contains(p.Imports, module+"/internal/dbtest") {
			support[place] = true
		}
	}
	return support
}

func directBreaches(place, tree string, imports []string) []string {
	var breaches []string
	for _, imported := range imports {
		target, our := ours(imported)
		switch {
		case our && !mayImport(tree, target):
			breaches = append(breaches, fmt.Sprintf("%s must not import %s", place, target))
		case !our && tree == "handoff" && isThirdParty(imported):
			breaches = append(breaches, fmt.Sprintf("%s must import the standard library only, not %s", place, imported))
		}
	}
	return breaches
}

func mayImport(tree, target string) bool {
	targetTree, _ := treeOf(target)
	return targetTree == tree || slices.Contains(allowed[tree], "*") ||
		slices.Contains(allowed[tree], target)
}

func isThirdParty(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".")
}

// pulledIn returns the breaches among all that a package depends on.
func pulledIn(place, tree string, deps []string, support map[string]bool) []string {
	banned := forbidden[tree]
	if strings.HasSuffix(path.Base(place), "test") { // a suite for tests
		banned = slices.DeleteFunc(slices.Clone(banned), func(b string) bool { return b == "testing" })
	}
	if !slices.Contains(mayHaveDrivers, tree) {
		banned = slices.Concat(banned, driverModules, []string{"internal/drivers"})
	}
	var breaches []string
	for _, dep := range deps {
		target, our := ours(dep)
		if !our {
			target = dep
		}
		if our && support[target] && tree != "internal/dbtest" || slices.ContainsFunc(banned, func(b string) bool { return within(target, b) }) {
			breaches = append(breaches, fmt.Sprintf("%s must not pull in %s", place, target))
		}
	}
	return breaches
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// MOD-006, AMB-006, CLI-011, RG-004
func TestPackagesImportWhatTheTableAllows(t *testing.T) {
	packages := list(t)
	if len(packages) < 5 {
		t.Fatalf("go list found %d packages", len(packages))
	}
	for _, breach := range judge(packages) {
		t.Error(breach)
	}
}

// Each kind of breach is seen.
func TestBreachesAreFound(t *testing.T) {
	pkg := func(place string, imports ...string) listed {
		return listed{ImportPath: module + "/" + place, Imports: imports, Deps: imports}
	}
	our := func(place string) string { return module + "/" + place }
	tests := map[string]struct {
		p    listed
		want string // empty for none
	}{
		"of its own tree":         {pkg("server/internal/accept", our("server/internal/task")), ""},
		"in the table":            {pkg("relay", our("outbox"), module), ""},
		"worker imports server":   {pkg("worker", our("server")), "worker must not import server"},
		"deep in a tree":          {pkg("server/internal/accept", our("outbox")), "server/internal/accept must not import outbox"},
		"relay looks inside":      {pkg("relay", our("outbox/outboxtest")), "relay must not import outbox/outboxtest"},
		"handoff and a library":   {pkg("handoff", "github.com/google/uuid"), "handoff must import the standard library only"},
		"handoff alone":           {pkg("handoff", "context", "encoding/json"), ""},
		"example looks inside":    {pkg("examples/tasks", our("internal/sqldb")), "examples/tasks must not import internal/sqldb"},
		"unknown package":         {pkg("util"), "util stands in no tree"},
		"driver in the outbox":    {pkg("outbox", "github.com/go-sql-driver/mysql"), "outbox must not pull in github.com/go-sql-driver/mysql"},
		"driver in a command":     {pkg("cmd/orbit", "github.com/go-sql-driver/mysql", our("internal/drivers")), ""},
		"opener in the server":    {pkg("server", our("internal/drivers")), "server must not pull in internal/drivers"},
		"sql in the worker":       {listed{ImportPath: our("worker"), Deps: []string{"database/sql"}}, "worker must not pull in database/sql"},
		"sql in the root":         {listed{ImportPath: module, Deps: []string{"database/sql/driver"}}, ". must not pull in database/sql/driver"},
		"testing in a program":    {listed{ImportPath: our("cmd/orbit"), Deps: []string{"testing"}}, "cmd/orbit must not pull in testing"},
		"metrics in the worker":   {listed{ImportPath: our("worker"), Deps: []string{"github.com/prometheus/client_golang/prometheus"}}, "worker must not pull in github.com/prometheus"},
		"metrics beside it":       {pkg("worker/workermetrics", our("worker"), "github.com/prometheus/client_golang/prometheus"), ""},
		"traces in the root":      {listed{ImportPath: module, Deps: []string{"go.opentelemetry.io/otel/trace"}}, ". must not pull in go.opentelemetry.io/otel/trace"},
		"exporter in the server":  {listed{ImportPath: our("server"), Deps: []string{"go.opentelemetry.io/otel/exporters/x"}}, "server must not pull in"},
		"testing in a suite":      {listed{ImportPath: our("server/internal/dispatch/dispatchtest"), Deps: []string{"testing"}}, ""},
		"test helper in use":      {listed{ImportPath: our("cmd/orbit"), Deps: []string{our("internal/dbtest")}}, "cmd/orbit must not pull in internal/dbtest"},
		"a test helper by itself": {pkg("server/internal/faults", our("internal/dbtest"), our("internal/drivers")), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := judge([]listed{test.p})
			if test.want == "" && len(got) > 0 || test.want != "" && !slices.ContainsFunc(got, func(b string) bool { return strings.Contains(b, test.want) }) {
				t.Errorf("breaches = %q, want %q", got, test.want)
			}
		})
	}
}

package docstest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/orbitkit/orbit/relay"
	"github.com/orbitkit/orbit/relay/relaymetrics"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workermetrics"
)

const monitoring = root + "/deploy/observability/"

// A shownMetric is what the code exports under a name.
type shownMetric struct {
	labels    []string
	histogram bool
}

// exportedMetrics returns every metric of relays, workers and nodes. Those of relays and workers come
// from the code. Those of a node come from docs/observability.md, as its package is internal to
// the server: a test there holds that document to the code, in both directions. The document
// tells besides which metrics are histograms.
func exportedMetrics(t *testing.T) map[string]shownMetric {
	t.Helper()
	all := documentedMetrics(t, "Metrics of a server")
	for name, m := range documentedMetrics(t, "Metrics of the program orbit-relay") {
		all[name] = m // held to the code by a test of the program
	}
	registry := prometheus.NewRegistry()
	relaymetrics.New(registry).Show(&relay.Relay{})
	for section, c := range map[string]prometheus.Collector{
		"Metrics of a relay": registry, "Metrics of a worker": workermetrics.New(&worker.Worker{}, nil),
	} {
		documented := documentedMetrics(t, section)
		for name, labels := range described(t, c) {
			m, told := documented[name]
			if slices.Sort(m.labels); !told || !slices.Equal(labels, m.labels) {
				t.Errorf("docs/observability.md, %q, has %s with labels %v, the code with %v", section, name, m.labels, labels)
			}
			if section == "Metrics of a relay" {
				labels = append(labels, "source") // by the program, for each source of a file
			}
			all[name] = shownMetric{labels, m.histogram}
			delete(documented, name)
		}
		for name := range documented {
			t.Errorf("docs/observability.md, %q, has %s, which the code does not export", section, name)
		}
	}
	return all
}

func documentedMetrics(t *testing.T, section string) map[string]shownMetric {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "docs/observability.md"), "\n## "+section+"\n")
	if !found {
		t.Fatalf("docs/observability.md has no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	all := map[string]shownMetric{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(orbit_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\|").FindAllStringSubmatch(rest, -1) {
		labels := strings.FieldsFunc(row[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		all[row[1]] = shownMetric{labels, row[2] == "histogram"}
	}
	if len(all) == 0 {
		t.Fatalf("docs/observability.md, %q, lists no metric", section)
	}
	return all
}

// described returns what a collector says that it shows: names and labels.
func described(t *testing.T, c prometheus.Collector) map[string][]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	form := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	all := map[string][]string{}
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("the form of a description has changed: %s", d)
		}
		all[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
		slices.Sort(all[m[1]])
	}
	return all
}

// ofScrape are labels that a scraper adds.
var ofScrape = []string{"job", "instance"}

var (
	selector = regexp.MustCompile(`\b(orbit_[a-z_]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	values   = regexp.MustCompile(`^label_values\((orbit_[a-z_]+), ([a-z_]+)\)$`)
)

// faults tells which metrics and labels of an expression the code does not export.
func faults(expr string, all map[string]shownMetric) (found []string) {
	var known []string
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		labels, ok := labelsOf(s[1], all)
		if !ok {
			found = append(found, "there is no metric "+s[1])
			continue
		}
		known = append(known, labels...)
		for _, l := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(labels, l[1]) && !slices.Contains(ofScrape, l[1]) {
				found = append(found, s[1]+" has no label "+l[1])
			}
		}
	}
	if !selector.MatchString(expr) {
		found = append(found, "names no metric")
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(known, l) && !slices.Contains(ofScrape, l) {
				found = append(found, "no metric of the expression has the label "+l)
			}
		}
	}
	return found
}

// labelsOf returns the labels of a series, if there is one of that name.
func labelsOf(series string, all map[string]shownMetric) (labels []string, ok bool) {
	if m, is := all[series]; is {
		return m.labels, !m.histogram // which has no series of its own name
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name, is := strings.CutSuffix(series, suffix)
		if !is || !all[name].histogram {
			continue
		}
		if suffix == "_bucket" {
			return append(slices.Clone(all[name].labels), "le"), true
		}
		return all[name].labels, true
	}
	return nil, false
}

// A rule is one of alerts.yml.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/observability/alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("found %d rules: are they read rightly?", len(all))
	}
	return all
}

// REL-021: alert rules name only metrics and labels that the code exports, and each leads to
// what is to be done about it.
func TestAlertRulesAreTrue(t *testing.T) {
	all := exportedMetrics(t)
	guide := read(t, "docs/outbox-guide.md")
	seen := map[string]bool{}
	for _, r := range rules(t) {
		for _, fault := range faults(r.Expr, all) {
			t.Errorf("%s: %s", r.Alert, fault)
		}
		if seen[r.Alert] || r.Annotations["summary"] == "" || !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: stands twice, or lacks a summary or a severity", r.Alert)
		}
		seen[r.Alert] = true
		path, anchor, _ := strings.Cut(r.Annotations["runbook"], "#")
		if fault := follow(root+"/README.md", r.Annotations["runbook"]); fault != "" || anchor == "" {
			t.Errorf("%s: runbook %q: %s", r.Alert, r.Annotations["runbook"], fault)
			continue
		}
		if text := read(t, path); !strings.Contains(text, r.Alert) {
			t.Errorf("%s is not in %s", r.Alert, path)
		} else if path == "docs/observability.md" && !strings.Contains(text, "`"+r.Expr+"`") {
			t.Errorf("%s: %s has another expression", r.Alert, path)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Orbit\w+)$`).FindAllStringSubmatch(guide, -1) {
		if !seen[m[1]] {
			t.Errorf("docs/outbox-guide.md tells of %s, which there is not", m[1])
		}
	}
}

// REL-021: one source of many that stands still is not hidden by the others.
func TestAlertRulesTellSourcesApart(t *testing.T) {
	seen := 0
	for _, r := range rules(t) {
		if !strings.HasPrefix(r.Alert, "OrbitRelay") && !strings.HasPrefix(r.Alert, "OrbitOutbox") || strings.HasPrefix(r.Expr, "absent(") {
			continue
		}
		seen++
		groups := grouping.FindAllStringSubmatch(r.Expr, -1)
		for _, g := range groups {
			if !strings.HasPrefix(g[1], "job, source") {
				t.Errorf("%s groups by %s", r.Alert, g[1])
			}
		}
		if len(groups) == 0 || !strings.Contains(r.Annotations["summary"], "$labels.source") {
			t.Errorf("%s does not tell the source", r.Alert)
		}
	}
	if seen < 10 {
		t.Errorf("found %d rules: are they read rightly?", seen)
	}
}

// REL-021: dashboards too.
func TestDashboardsAreTrue(t *testing.T) {
	all := exportedMetrics(t)
	files, err := filepath.Glob(monitoring + "*.json")
	if err != nil || len(files) != 2 {
		t.Fatalf("dashboards are %v, %v; want two", files, err)
	}
	for _, file := range files {
		queries := 0
		for _, q := range dashboardQueries(t, file) {
			queries++
			expr := q
			if m := values.FindStringSubmatch(q); m != nil {
				expr = fmt.Sprintf(`%s{%s="x"}`, m[1], m[2])
			}
			for _, fault := range faults(expr, all) {
				t.Errorf("%s: %s: %s", filepath.Base(file), q, fault)
			}
		}
		if queries < 15 {
			t.Errorf("%s: found %d queries: are they read rightly?", filepath.Base(file), queries)
		}
	}
}

// dashboardQueries returns the queries of panels and variables.
func dashboardQueries(t *testing.T, file string) (queries []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title  string
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Type, Definition string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, p := range d.Panels {
		if p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: panel %q shows nothing", file, p.Title)
		}
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			queries = append(queries, v.Definition)
		}
	}
	return queries
}

// The check itself sees what is wrong.
func TestUnknownMetricsAndLabelsAreSeen(t *testing.T) {
	all := map[string]shownMetric{"orbit_a_total": {labels: []string{"target"}}, "orbit_b_seconds": {histogram: true}}
	for expr, want := range map[string]int{
		`sum by (job, target) (rate(orbit_a_total{target="x"}[5m]))`:              0,
		`histogram_quantile(0.9, sum by (le) (rate(orbit_b_seconds_bucket[5m])))`: 0,
		`orbit_c_total > 0`:                    1,
		`orbit_a_total{queue="x", target="y"}`: 1,
		`sum by (queue) (orbit_a_total)`:       1,
		`orbit_b_seconds > 1`:                  1,
		`sum by (le) (orbit_b_seconds_sum)`:    1,
		`orbit_a_total_bucket`:                 1,
		`up == 0`:                              1,
	} {
		if got := faults(expr, all); len(got) != want {
			t.Errorf("%s: faults %q, want %d", expr, got, want)
		}
	}
}

package metrics_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/server/internal/depth"
	"github.com/orbitkit/orbit/server/internal/metrics"
	"github.com/orbitkit/orbit/server/internal/retention"
	"github.com/orbitkit/orbit/server/internal/session"
)

// documented returns what a section of docs/observability.md says that there is: the name of
// each metric and its labels.
func documented(t *testing.T, section string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
	if !found {
		t.Fatalf("no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var list []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(orbit_[a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|").FindAllStringSubmatch(rest, -1) {
		list = append(list, metric(row[1], strings.Split(strings.ReplaceAll(strings.TrimSpace(row[3]), "`", ""), ", ")))
	}
	slices.Sort(list)
	return list
}

func metric(name string, labels []string) string {
	slices.Sort(labels)
	return name + " " + strings.Join(labels, ",")
}

// described returns what a collector says that it shows, in the same form.
func described(c prometheus.Collector) []string {
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	form := regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ".*", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)
	var list []string
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		if m == nil || !strings.HasPrefix(m[1], "orbit_") {
			continue
		}
		labels := strings.Split(m[3], ",")
		for _, constant := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, constant[1])
		}
		list = append(list, metric(m[1], slices.DeleteFunc(labels, func(l string) bool { return l == "" })))
	}
	slices.Sort(list)
	return list
}

// A whole is a [prometheus.Collector] of all that a node shows.
type whole struct{ *metrics.Metrics }

func (whole) Collect(chan<- prometheus.Metric) {}

// The document lists each metric of a node with its labels, and no other.
func TestTheDocumentListsEveryMetric(t *testing.T) {
	m := metrics.New()
	m.ShowNode("node", "v1")
	m.ShowQueues(func() (depth.Reading, bool) { return depth.Reading{}, false })
	m.Worker.Show(func() session.Stats { return session.Stats{} })
	m.Retention.Ran(retention.Report{At: time.UnixMicro(1)})
	got, want := described(whole{m}), documented(t, "Metrics of a server")
	if len(got) < 25 {
		t.Fatalf("the form of a description has changed: %v", got)
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("docs/observability.md lacks %s", name)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("docs/observability.md has %s, which no node shows", name)
		}
	}
}

// A reading that is not known is not shown as zero, and names that somebody wrote by hand do
// not break a scrape.
func TestQueuesAreShownAsLastRead(t *testing.T) {
	m := metrics.New()
	var last depth.Reading
	known := false
	m.ShowQueues(func() (depth.Reading, bool) { return last, known })
	if text := shown(t, m); strings.Contains(text, "orbit_queue") || strings.Contains(text, "orbit_delayed") {
		t.Errorf("without a reading: %s", text)
	}
	known = true
	last = depth.Reading{At: time.UnixMicro(2_500_000), Took: time.Second, Delayed: 4, Queues: []depth.Queue{
		{Application: "a", Namespace: "n", Name: "q\xff", OldestReady: 90 * time.Second},
	}}
	const labels = `application="a",namespace="n",queue="q` + "\uFFFD" + `"`
	wantLines(t, shown(t, m), fmt.Sprintf("orbit_queue_oldest_ready_seconds{%s} 90", labels), fmt.Sprintf(`orbit_queue_tasks{%s,state="needs_review"} 0`, labels),
		"orbit_delayed_tasks 4", "orbit_queues_left_out 0", "orbit_queue_reading_timestamp_seconds 2.5", "orbit_queue_reading_duration_seconds 1")
}

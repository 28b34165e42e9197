package workermetrics_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workermetrics"
)

// The document lists each metric of a worker with its labels, and no other.
func TestTheDocumentListsEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Metrics of a worker\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var want, got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(orbit_[a-z_]+)` \\| [a-z]+ \\|([^|]*)\\|").FindAllStringSubmatch(section, -1) {
		want = append(want, row[1]+" "+strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(row[2]), "`", ""), ", ", ","))
	}
	descs := make(chan *prometheus.Desc)
	go func() { workermetrics.New(&worker.Worker{}, nil).Describe(descs); close(descs) }()
	for d := range descs {
		m := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
		got = append(got, m[1]+" "+m[2])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("a worker shows\n%s\nthe document has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

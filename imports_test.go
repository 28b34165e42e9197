package orbit

import (
	"os/exec"
	"strings"
	"testing"
)

// CLI-011, MOD-006, AMB-006: the package stands alone, without SQL and server.
func TestImportsStandAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const self = "github.com/orbitkit/orbit"
	for _, path := range strings.Fields(string(out)) {
		if path != self && path != self+"/internal/strictjson" && !strings.HasPrefix(path, "github.com/go-json-experiment/json") {
			t.Errorf("package orbit depends on %s", path)
		}
	}
	all, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil || strings.Contains(string(all), "database/sql") {
		t.Errorf("package orbit depends on database/sql (%v)", err)
	}
}

package guardtest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// RG-004: Check may stand in a program, which is to carry no package of tests, and the guard
// none of the server.
func TestSuiteNeedsNeitherTestingNorTheServer(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	unwanted := func(dep string) bool {
		return dep == "testing" || strings.HasPrefix(dep, "github.com/orbitkit/orbit/server")
	}
	if slices.ContainsFunc(deps, unwanted) || !slices.Contains(deps, "github.com/orbitkit/orbit/resourceguard") {
		t.Errorf("the suite needs %v", deps)
	}
}

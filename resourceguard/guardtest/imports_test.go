package guardtest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Check may stand in a program, which is to carry no package of tests.
func TestSuiteNeedsNoTesting(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if deps := strings.Fields(string(out)); slices.Contains(deps, "testing") || !slices.Contains(deps, "context") {
		t.Errorf("the suite needs %v, want no testing", deps)
	}
}

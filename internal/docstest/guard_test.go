package docstest

import "testing"

// RG-015: the write that the handbook shows stands in an example that is compiled and run.
func TestTheGuardedWriteOfTheHandbookCompiles(t *testing.T) {
	source := read(t, "resourceguard/example_handbook_test.go")
	found := 0
	for _, b := range blocks(section(t, read(t, "docs/resource-guard.md"), "## A guarded write")) {
		if b.language != "go" {
			continue
		}
		found++
		if !containsIndented(source, b.text) {
			t.Errorf("a block of \"A guarded write\" does not stand in resourceguard/example_handbook_test.go:\n%s", b.text)
		}
	}
	if found != 2 {
		t.Errorf("found %d blocks of Go, want 2", found)
	}
}

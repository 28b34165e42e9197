package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// leaves returns the arguments of every command that does something, with an id for those
// that take one.
func leaves(c *cobra.Command, path []string) (all [][]string) {
	for _, below := range c.Commands() {
		all = append(all, leaves(below, append(path[:len(path):len(path)], below.Name()))...)
	}
	if c.HasSubCommands() {
		return all
	}
	if strings.Contains(c.Use, "<") {
		path = append(path[:len(path):len(path)], strings.Repeat("a", 32))
	}
	return [][]string{path}
}

// CLI-016, CLI-017, ERR-015: whatever is wrong with the address of the database, no command
// shows the password in it.
func TestThePasswordIsNeverShown(t *testing.T) {
	const password = "canary-55"
	addresses := []string{
		"u:" + password + "@tcp(127.0.0.1:1)/d",
		"u:" + password + "@tcp(127.0.0.1:1)",
		"u:" + password + "@nothing(x)/d",
		"u:" + password + "@tcp(127.0.0.1:1)/d?timeout=" + password,
		"u:" + password + "@/d?strict=true",
		password,
	}
	commands := leaves(newRoot((&world{}).environment()), nil)
	if len(commands) < 25 {
		t.Fatalf("only %d commands: %v", len(commands), commands)
	}
	file := filepath.Join(t.TempDir(), "c.json")
	for _, args := range commands {
		root := newRoot((&world{}).environment())
		if c, _, err := root.Find(args); err == nil && c.Flags().Lookup("output") != nil {
			args = append(args, "--output", file)
		}
		for _, address := range addresses {
			env := map[string]string{"ORBIT_MYSQL_DSN": address}
			code, out, errs := invoke(t.Context(), env, args...)
			if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || strings.Contains(errs, password) {
				t.Errorf("%v with %q: exit %d, %q, %q; want 2 and one line without the password", args, address, code, out, errs)
			}
		}
	}
}

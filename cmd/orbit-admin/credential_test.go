package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// CLI-008, CLI-016: what was made is told to programs too, with its end, and never the token;
// permissions may be given with commas, and the audit tells what the credential may do.
func TestMadeCredentialsAreToldAsJSON(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		var first, made, turned madeCredential
		w.read(&first, "bootstrap --application a --namespace n --queue q --new-credential --output "+at("1"))
		if first.NamespaceID != w.creds.NamespaceID || first.QueueID != w.creds.QueueID || first.File != at("1") || first.ExpiresAt != nil || len(first.Permissions) != 6 {
			t.Errorf("bootstrap = %+v", first)
		}
		w.read(&made, "credential", "create", "--application", "a", "--namespace", "n", "--permission", "tasks:submit,tasks:read", "--permission", "tasks:cancel",
			"--queue", "q", "--expires-in", "1d12h", "--reason", "for the relay", "--output", at("2"))
		if !slices.Equal(made.Permissions, []string{"tasks:cancel", "tasks:read", "tasks:submit"}) || made.ExpiresAt == nil || made.Replaced != nil {
			t.Fatalf("create = %+v", made)
		}
		var entries page[server.AuditEntry]
		w.read(&entries, "audit list --action credential.create --target "+made.ID)
		want := "permissions tasks:cancel tasks:read tasks:submit, queues \"q\", valid until " + made.ExpiresAt.Format(time.RFC3339) + "; for the relay"
		if len(entries.Items) != 1 || entries.Items[0].Note != want {
			t.Errorf("audit = %+v, want the note %q", entries.Items, want)
		}
		w.read(&turned, "credential rotate "+made.ID+" --overlap 30m --output "+at("3"))
		if turned.Replaced == nil || turned.Replaced.ID != made.ID || turned.Replaced.ExpiresAt.After(*made.ExpiresAt) || !turned.ExpiresAt.After(*made.ExpiresAt) {
			t.Errorf("rotate = %+v", turned)
		}
		w.refuse(1, "rotate "+turned.ID+" instead", "credential rotate "+made.ID+" --output "+at("4"))
		var found page[server.CredentialView]
		w.read(&found, "credential list")
		for _, c := range found.Items {
			if c.ID == made.ID && (c.ReplacedBy != turned.ID || c.Replaces != "") || c.ID == turned.ID && (c.Replaces != made.ID || c.ReplacedBy != "") || c.ID == first.ID && c.Replaces+c.ReplacedBy != "" {
				t.Errorf("credential = %+v", c)
			}
		}
		out := w.must("credential rotate " + turned.ID + " --overlap 0 --output " + at("4"))
		if !strings.Contains(out, "the new credential is valid until 20") || !strings.Contains(out, "the old credential "+turned.ID+" was revoked at 20") {
			t.Errorf("rotate without an overlap = %q", out)
		}
		out = w.must("credential rotate " + first.ID + " --output " + at("5"))
		if !strings.Contains(out, "the new credential has no end\n") || !strings.Contains(out, "the old credential "+first.ID+" is valid until 20") {
			t.Errorf("rotate = %q", out)
		}
		var ended revoked
		if w.read(&ended, "credential revoke "+first.ID); ended != (revoked{first.ID, "revoked"}) {
			t.Errorf("revoke = %+v", ended)
		}
		for _, name := range []string{"1", "2", "3", "4", "5"} {
			if token := w.load(at(name)).Token; strings.Contains(w.said.String(), token[len(token)-64:]) {
				t.Errorf("the token of file %s was printed", name)
			}
		}
	}, migrations.Server)
}

// The name of a queue may hold commas, so that --queue takes one at a time.
func TestAQueueNameMayHoldCommas(t *testing.T) {
	w := newWorld(t, dbtest.Open(t, dbtest.SQLite, migrations.Server))
	w.must("queue create --application a --namespace n --queue q,r")
	create := "credential create --application a --namespace n --permission tasks:read --output "
	w.must(create + filepath.Join(t.TempDir(), "c") + " --queue q,r")
	w.refuse(2, `"q,s"`, create+filepath.Join(t.TempDir(), "c")+" --queue q,s")
	w.refuse(2, "reason", append(strings.Fields(create+filepath.Join(t.TempDir(), "c")), "--reason", strings.Repeat("r", 1025))...)
	w.refuse(2, "90d", create+filepath.Join(t.TempDir(), "c")+" --expires-in 90")
}

// CLI-017: each command explains itself, its environment and its exit codes.
func TestEveryCommandTellsEnvironmentAndExitCodes(t *testing.T) {
	var visit func(c *cobra.Command, path ...string)
	visit = func(c *cobra.Command, path ...string) {
		code, out, _ := invoke(t.Context(), nil, append(path, "--help")...)
		if code != 0 || strings.Count(out, "ORBIT_DATABASE ") != 1 || strings.Count(out, "Exit codes:") != 1 {
			t.Errorf("%v --help: exit %d,\n%s", path, code, out)
		}
		for _, below := range c.Commands() {
			visit(below, append(slices.Clone(path), below.Name())...)
		}
	}
	visit(newRoot((&world{}).environment()))
	_, out, _ := invoke(t.Context(), nil, "credential", "create", "--help")
	if !strings.Contains(out, "schedules:manage (reserved)") || strings.Contains(out, "tasks:read (") {
		t.Errorf("credential create --help = %s", out)
	}
}

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// invoke runs the program in this process and returns what it wrote.
func invoke(ctx context.Context, env map[string]string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = program.Run(ctx, args, cli.Environment{Get: func(name string) string { return env[name] }, Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// CLI-002, CLI-008, CLI-016: the documented command, on every engine.
func TestBootstrapAsDocumented(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		env := map[string]string{"ORBIT_DATABASE": db.Address}
		if dsn, isMySQL := strings.CutPrefix(db.Address, "mysql:"); isMySQL {
			env = map[string]string{"ORBIT_MYSQL_DSN": dsn}
		}
		file := filepath.Join(t.TempDir(), "orbit-keyed.credentials.json")
		args := strings.Fields("bootstrap --application keyed-example --namespace default --environment test --queue initial --worker-access --output " + file)
		code, out, errs := invoke(t.Context(), env, args...)
		if code != 0 || errs != "" {
			t.Fatalf("exit %d, %s", code, errs)
		}
		creds, err := orbit.LoadCredentials(file)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
		}
		want := []string{"applications:read", "queues:manage", "reviews:decide", "tasks:cancel", "tasks:read", "tasks:submit", "workers:connect", "workers:consume"}
		if !slices.Equal(creds.Permissions, want) || creds.Environment != "test" || creds.URL != "" {
			t.Errorf("credentials = %v %s %q", creds.Permissions, creds.Environment, creds.URL)
		}
		secret := creds.Token[len(creds.Token)-64:]
		if strings.Contains(out, secret) || !strings.Contains(out, file) || !strings.Contains(out, creds.QueueID) {
			t.Errorf("output = %q", out)
		}

		// The file is in the way; without it the namespace is (CLI-020).
		if code, _, errs := invoke(t.Context(), env, args...); code != 2 || !strings.Contains(errs, file) {
			t.Errorf("over an existing file: exit %d, %s", code, errs)
		}
		args[len(args)-1] = file + ".2"
		if code, _, errs := invoke(t.Context(), env, args...); code != 1 || !strings.Contains(errs, "--new-credential") {
			t.Errorf("second bootstrap: exit %d, %s; want 1 and the way out", code, errs)
		}
		if _, err := os.Stat(file + ".2"); err == nil {
			t.Error("a refused bootstrap left a file")
		}
		if code, _, errs := invoke(t.Context(), env, append(args, "--new-credential", "--url", "https://orbit.example")...); code != 0 {
			t.Errorf("--new-credential: exit %d, %s", code, errs)
		}
		more, err := orbit.LoadCredentials(file + ".2")
		if err != nil || more.NamespaceID != creds.NamespaceID || more.Token == creds.Token || more.URL != "https://orbit.example" {
			t.Errorf("second credentials = %v, %v", more, err)
		}
	}, migrations.Server)
}

// CLI-008: restricted credentials, and their end.
func TestCredentialCreateAndRevoke(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	env := map[string]string{"ORBIT_DATABASE": db.Address}
	dir := t.TempDir()
	must := func(args ...string) string {
		t.Helper()
		code, out, errs := invoke(t.Context(), env, args...)
		if code != 0 {
			t.Fatalf("%v: exit %d, %s", args, code, errs)
		}
		return out
	}
	must("bootstrap", "--application", "a", "--namespace", "n", "--environment", "e", "--queue", "q", "--output", filepath.Join(dir, "1"))
	out := must("credential", "create", "--application", "a", "--namespace", "n", "--name", "relay", "--permission", "tasks:submit",
		"--permission", "tasks:read", "--queue", "q", "--expires-in", "720h", "--output", filepath.Join(dir, "2"))
	creds, err := orbit.LoadCredentials(filepath.Join(dir, "2"))
	if err != nil || !slices.Equal(creds.Permissions, []string{"tasks:read", "tasks:submit"}) {
		t.Fatalf("credentials = %v, %v", creds.Permissions, err)
	}
	id := regexp.MustCompile(`credential ([0-9a-f]{32})`).FindStringSubmatch(out)
	if id == nil || strings.Contains(out, creds.Token[len(creds.Token)-64:]) {
		t.Fatalf("output = %q", out)
	}
	must("credential", "revoke", id[1])
	var n int
	if err := db.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM credential WHERE revoked_at IS NOT NULL").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d revoked credentials, %v", n, err)
	}
	refusals := []struct {
		args []string
		code int
		says string
	}{
		{[]string{"credential", "create", "--application", "a", "--namespace", "n", "--permission", "all", "--output", filepath.Join(dir, "3")}, 2, "permission"},
		{[]string{"credential", "create", "--application", "a", "--namespace", "n", "--output", filepath.Join(dir, "3")}, 2, "permission"},
		{[]string{"credential", "create", "--application", "a", "--namespace", "x", "--permission", "tasks:read", "--output", filepath.Join(dir, "3")}, 2, `"x"`},
		{[]string{"credential", "create", "--application", "a", "--namespace", "n", "--permission", "tasks:read", "--queue", "x", "--output", filepath.Join(dir, "3")}, 2, `"x"`},
		{[]string{"credential", "revoke", strings.Repeat("0", 32)}, 2, "does not exist"},
		{[]string{"credential", "revoke", "x"}, 2, "credential id"},
		{[]string{"credential", "revoke"}, 2, "one credential"},
	}
	for _, r := range refusals {
		if code, _, errs := invoke(t.Context(), env, r.args...); code != r.code || !strings.Contains(errs, r.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %q; want %d and %q", r.args, code, errs, r.code, r.says)
		}
	}
}

// CLI-017: one clear line, exit code 2, no password.
func TestMistakesAreOneLineAndExit2(t *testing.T) {
	const password = "s3cret-77"
	empty := dbtest.Open(t, dbtest.SQLite).Address
	missing := "sqlite:" + filepath.Join(t.TempDir(), "orbit.db")
	ready := dbtest.Open(t, dbtest.SQLite, migrations.Server).Address
	file := filepath.Join(t.TempDir(), "c.json")
	full := []string{"bootstrap", "--application", "a", "--namespace", "n", "--environment", "e", "--queue", "q", "--output", file}
	cases := []struct {
		name string
		env  map[string]string
		args []string
		says string
	}{
		{"nothing to do", nil, nil, "bootstrap"},
		{"unknown command", nil, []string{"boot"}, "boot"},
		{"credential alone", nil, []string{"credential"}, "create"},
		{"no database", nil, full, "ORBIT_MYSQL_DSN"},
		{"two databases", map[string]string{"ORBIT_DATABASE": ready, "ORBIT_MYSQL_DSN": "u:" + password + "@tcp(h)/d"}, full, "both set"},
		{"unreachable", map[string]string{"ORBIT_MYSQL_DSN": "u:" + password + "@tcp(127.0.0.1:1)/d"}, full, "127.0.0.1:1"},
		{"no file", map[string]string{"ORBIT_DATABASE": missing}, full, "there is no " + strings.TrimPrefix(missing, "sqlite:")},
		{"no schema", map[string]string{"ORBIT_DATABASE": empty}, full, "orbit-migrate up"},
		{"no output", map[string]string{"ORBIT_DATABASE": ready}, full[:9], "--output"},
		{"no folder of the output", map[string]string{"ORBIT_DATABASE": ready}, slices.Concat(full[:10], []string{"/no/such/folder/c.json"}), "/no/such/folder/c.json"},
		{"no application", map[string]string{"ORBIT_DATABASE": ready}, append([]string{"bootstrap"}, full[3:]...), "application"},
		{"no environment", map[string]string{"ORBIT_DATABASE": ready}, slices.Concat(full[:5], full[7:]), "environment"},
		{"unknown flag", nil, append(full, "--nothing"), "--nothing"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := invoke(t.Context(), c.env, c.args...)
			if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.says) || strings.Contains(errs, password) {
				t.Errorf("exit %d, stdout %q, stderr %q; want 2 and one line with %q", code, out, errs, c.says)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("a file was made")
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, out, _ := invoke(t.Context(), nil, "--version")
	if code != 0 || !strings.HasPrefix(out, "orbit-admin ") {
		t.Errorf("--version = %d %q", code, out)
	}
	_, out, _ = invoke(t.Context(), nil, "bootstrap", "--help")
	for _, flag := range []string{"--application", "--namespace", "--environment", "--queue", "--worker-access", "--new-credential", "--output"} {
		if !strings.Contains(out, flag) {
			t.Errorf("bootstrap --help does not mention %s", flag)
		}
	}
	if _, out, _ = invoke(t.Context(), nil, "credential", "create", "--help"); !strings.Contains(out, "workers:consume") {
		t.Error("credential create --help does not list the permissions")
	}
}

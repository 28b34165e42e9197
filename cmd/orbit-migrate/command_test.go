package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// A result is what one call of the program left.
type result struct {
	code     int
	out, err string
}

func call(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	code := program.Run(t.Context(), args, cli.Environment{Get: func(name string) string { return env[name] }, Out: &out, Err: &err})
	return result{code, out.String(), err.String()}
}

func on(db *dbtest.DB) map[string]string { return map[string]string{"ORBIT_DATABASE": db.Address} }

// CLI-001
func TestUpStatusAndVersionTellHowFarTheDatabaseIs(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		newest, err := migrations.Latest(migrations.Server, db.Dialect())
		if err != nil {
			t.Fatal(err)
		}
		calls := []struct {
			args []string
			want string // regular expression
		}{
			{[]string{"version"}, `^0\n$`},
			{[]string{"up", "--to", "3"}, `^000001_identity applied in .*\n000002_task applied in .*\n000003_execution applied in .*\nset server: 3 steps applied, at version 3\n$`},
			{[]string{"status"}, `^000001_identity +applied +20.*Z\n(?s:.*)000004_result +pending *\n`},
			{[]string{"up"}, fmt.Sprintf(`^000004_result applied (?s:.*)\nset server: %d steps applied, at version %d\n$`, newest-3, newest)},
			{[]string{"up"}, fmt.Sprintf(`^set server: nothing to do, at version %d\n$`, newest)},
			{[]string{"version"}, fmt.Sprintf(`^%d\n$`, newest)},
			{[]string{"version", "--set", "outbox"}, `^0\n$`},
			{[]string{"up", "--set", "outbox"}, `^000001_\w+ applied in .*\n(?s:.*)set outbox: 3 steps applied, at version 3\n$`},
			{[]string{"up", "--set", "guard"}, `^000001_\w+ applied in .*\n(?s:.*)set guard: 2 steps applied, at version 2\n$`},
		}
		for _, c := range calls {
			r := call(t, on(db), c.args...)
			if r.code != 0 || r.err != "" || !regexp.MustCompile(c.want).MatchString(r.out) {
				t.Errorf("orbit-migrate %v = %+v, want code 0 and %s", c.args, r, c.want)
			}
		}
	})
}

// CLI-001, MIG-015
func TestTheGuardsSetIsAppliedToPostgreSQLAndNoOther(t *testing.T) {
	db := dbtest.Open(t, dbtest.Postgres)
	for _, c := range []struct{ args, want string }{
		{"version", `^0\n$`},
		{"up --to 1", `^000001_guard applied in .*\nset guard: 1 step applied, at version 1\n$`},
		{"status", `^000001_guard +applied +20.*Z\n000002_prune +pending *\n$`},
		{"up", `^000002_prune applied in .*\nset guard: 1 step applied, at version 2\n$`},
		{"up", `^set guard: nothing to do, at version 2\n$`},
	} {
		r := call(t, on(db), append(strings.Fields(c.args), "--set", "guard")...)
		if r.code != 0 || r.err != "" || !regexp.MustCompile(c.want).MatchString(r.out) {
			t.Errorf("orbit-migrate %s --set guard = %+v, want code 0 and %s", c.args, r, c.want)
		}
	}
	for _, command := range []string{"up", "status", "version"} {
		r := call(t, on(db), command)
		if r.code != 2 || !strings.Contains(r.err, "set server has no steps for postgres") || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("%s of set server = %+v, want code 2 and one line that names set and engine", command, r)
		}
	}
}

const canary = "s3cr3t-canary"

// CLI-004, CLI-017
func TestBadInputIsOneClearLineAndExitCode2(t *testing.T) {
	sqlite := map[string]string{"ORBIT_DATABASE": "sqlite:" + filepath.Join(t.TempDir(), "x.db")}
	dsn := "root:" + canary + "@tcp(127.0.0.1:1)/orbit"
	tests := []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{"no command", sqlite, nil, "say what to do: status, up or version"},
		{"unknown command", sqlite, []string{"down"}, `unknown command or argument "down"`},
		{"unknown flag", sqlite, []string{"up", "--force"}, "unknown flag: --force"},
		{"argument too many", sqlite, []string{"up", "3"}, `unknown command or argument "3"`},
		{"flag without value", sqlite, []string{"up", "--to"}, "flag needs an argument: --to"},
		{"flag that is no number", sqlite, []string{"up", "--to", "x"}, `--to "x": must be a whole number`},
		{"step zero", sqlite, []string{"up", "--to", "0"}, "--to 0: this release knows steps 1 to"},
		{"step unknown", sqlite, []string{"up", "--to", "999"}, "--to 999: this release knows steps 1 to"},
		{"set unknown", sqlite, []string{"up", "--set", "all"}, `--set: unknown set "all": want server, outbox or guard`},
		{"no environment", nil, []string{"up"}, "set ORBIT_MYSQL_DSN to a MySQL DSN"},
		{"both variables", map[string]string{"ORBIT_MYSQL_DSN": dsn, "ORBIT_DATABASE": "sqlite:x"}, []string{"status"}, "ORBIT_DATABASE and ORBIT_MYSQL_DSN are both set"},
		{"malformed DSN", map[string]string{"ORBIT_MYSQL_DSN": "root:" + canary + "@127.0.0.1/orbit"}, []string{"up"}, "not of the form user:password@tcp(host:3306)/database"},
		{"harmful DSN", map[string]string{"ORBIT_MYSQL_DSN": dsn + "?multiStatements=true"}, []string{"up"}, "must not set multiStatements"},
		{"malformed address", map[string]string{"ORBIT_DATABASE": dsn}, []string{"version"}, `must begin with "mysql:" or "sqlite:"`},
		{"malformed URL", map[string]string{"ORBIT_DATABASE": "postgres:root:" + canary + "@host/shop"}, []string{"up", "--set", "guard"}, "want postgres://user:password@host:5432/database"},
		{"unreachable PostgreSQL", map[string]string{"ORBIT_DATABASE": "postgres://root:" + canary + "@127.0.0.1:1/shop"}, []string{"up", "--set", "guard"}, "database at 127.0.0.1:1: "},
		{"unreachable database", map[string]string{"ORBIT_MYSQL_DSN": dsn}, []string{"up"}, "database at 127.0.0.1:1: "},
		{"no folder", map[string]string{"ORBIT_DATABASE": "sqlite:/no/such/folder/x.db"}, []string{"up"}, "its folder does not exist"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := call(t, test.env, test.args...)
			if r.code != 2 || !strings.Contains(r.err, test.want) || strings.Count(r.err, "\n") != 1 || r.out != "" {
				t.Errorf("result = %+v, want code 2 and one line with %q", r, test.want)
			}
			if strings.Contains(r.err, canary) {
				t.Errorf("the password is shown: %s", r.err)
			}
		})
	}
}

func TestASchemaOfALaterReleaseIsExitCode2(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		_, err := db.Write().ExecContext(t.Context(), "INSERT INTO orbit_migration (set_name, version, name, checksum, started_at, completed_at) VALUES (?, 99, ?, ?, 1, 1)",
			[]byte("guard"), []byte("later"), make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		r := call(t, on(db), "up", "--set", "guard")
		if r.code != 2 || !strings.Contains(r.err, "at version 99, newer than this program knows") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("result = %+v, want code 2 and one line that names version 99", r)
		}
		if r := call(t, on(db), "status", "--set", "guard"); r.code != 0 || !strings.Contains(r.out, "000099_later") {
			t.Errorf("status = %+v, want the unknown step listed", r)
		}
	}, migrations.Guard)
}

func TestAWaitingUpSaysForWhom(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		if r := call(t, on(db), "up", "--to", "1"); r.code != 0 {
			t.Fatalf("up --to 1 = %+v", r)
		}
		set := func(holder string, until string) {
			if _, err := db.Write().ExecContext(t.Context(), "UPDATE orbit_migration_lock SET holder = ?, lease_until = "+until, []byte(holder)); err != nil {
				t.Fatal(err)
			}
		}
		set("other host process 1", db.Dialect().Clock+" + 3600000000")
		var out firstLine
		out.then = func() { set("", "0") }
		var err bytes.Buffer
		env := cli.Environment{Get: func(name string) string { return on(db)[name] }, Out: &out, Err: &err}
		code := program.Run(t.Context(), []string{"up", "--to", "2"}, env)
		if code != 0 || !strings.HasPrefix(out.String(), "waiting for other host process 1, which holds the migration lock\n000002_task applied") {
			t.Errorf("up while another runs = %d, %q, %q", code, out.String(), err.String())
		}
	})
}

// A firstLine does something once its first line is written.
type firstLine struct {
	bytes.Buffer
	then func()
}

func (w *firstLine) Write(p []byte) (int, error) {
	if w.Len() == 0 {
		defer w.then()
	}
	return w.Buffer.Write(p)
}

func TestHelpAndVersionNeedNoDatabase(t *testing.T) {
	for args, want := range map[string]string{"--help": "ORBIT_DATABASE", "--version": "orbit-migrate ", "up --help": "--set"} {
		if r := call(t, nil, strings.Fields(args)...); r.code != 0 || !strings.Contains(r.out, want) || r.err != "" {
			t.Errorf("orbit-migrate %s = %+v, want %q", args, r, want)
		}
	}
}

func TestACanceledUpIsNoUsageError(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, err bytes.Buffer
	env := cli.Environment{Get: func(name string) string { return on(db)[name] }, Out: &out, Err: &err}
	if code := program.Run(ctx, []string{"up"}, env); code == 0 || out.Len() > 0 {
		t.Errorf("canceled up = %d, %q, want a failure", code, out.String())
	}
}

// CLI-001, CLI-009: the very command of the documents, from the repository's root.
func TestGoRunUpFromTheRoot(t *testing.T) {
	cmd := exec.Command("go", "run", "./cmd/orbit-migrate", "up")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "ORBIT_MYSQL_DSN=", "ORBIT_DATABASE=sqlite:"+filepath.Join(t.TempDir(), "orbit.db"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "set server: ") {
		t.Errorf("go run ./cmd/orbit-migrate up = %v\n%s", err, out)
	}
}

// A mistyped path is no empty database.
func TestOnlyUpMakesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mistyped.db")
	env := map[string]string{"ORBIT_DATABASE": "sqlite:" + path}
	for _, command := range []string{"status", "version"} {
		r := call(t, env, command)
		if r.code != 2 || !strings.Contains(r.err, "there is no "+path) || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("%s = %+v, want code 2 and one line that names the file", command, r)
		}
		if _, err := os.Stat(path); err == nil {
			t.Fatalf("%s made the file", command)
		}
	}
	if r := call(t, env, "up"); r.code != 0 {
		t.Fatalf("up = %+v", r)
	}
	if r := call(t, env, "status"); r.code != 0 {
		t.Errorf("status after up = %+v", r)
	}
}

func TestAResumedStepSaysWhatIsLeft(t *testing.T) {
	for statement, want := range map[int]string{
		3: "000004_x was half applied, going on at statement 3 of 8\n",
		9: "000004_x: all statements were applied, closing the step\n",
	} {
		var out bytes.Buffer
		report(&out, migrations.Event{Kind: migrations.StepResumed, Step: "000004_x", Statement: statement, Statements: 8})
		if out.String() != want {
			t.Errorf("report at statement %d = %q, want %q", statement, out.String(), want)
		}
	}
}

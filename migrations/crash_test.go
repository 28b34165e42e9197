package migrations_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
)

// A child process runs Up until a statement is about to run, says so, and then goes on
// only if its standard input is closed.
const (
	childAddress   = "ORBIT_MIGRATIONS_CHILD"
	childStep      = "ORBIT_MIGRATIONS_STEP"
	childStatement = "ORBIT_MIGRATIONS_STATEMENT"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childAddress); address != "" {
		if err := runChild(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(address string) error {
	ctx := context.Background()
	db, err := drivers.OpenForMigration(ctx, address)
	if err != nil {
		return err
	}
	defer db.Close()
	report := func(e migrations.Event) {
		if e.Kind == migrations.StatementRunning && e.Step == os.Getenv(childStep) && fmt.Sprint(e.Statement) == os.Getenv(childStatement) {
			fmt.Println("ready")
			_, _ = bufio.NewReader(os.Stdin).ReadByte()
		}
	}
	_, err = migrations.Up(ctx, db, migrations.Server, migrations.Options{Lease: time.Second, Report: report})
	return err
}

// A child is a migration in another process, halted before a statement.
type child struct {
	*exec.Cmd
	goOn func()
}

func startChild(t *testing.T, db *dbtest.DB, step string, statement int) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childAddress+"="+db.Address, childStep+"="+step, childStatement+"="+fmt.Sprint(statement))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: cmd, goOn: func() { in.Close() }}
	t.Cleanup(c.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("child said %q, %v, want ready", line, err)
	}
	return c
}

// kill ends the child with SIGKILL and waits for its end.
func (c *child) kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// MIG-014: killed for real, between statements of every kind.
func TestUpGoesOnAfterItsProcessWasKilledBetweenStatements(t *testing.T) {
	points := []struct {
		step      string
		statement int
	}{{"000001_identity", 1}, {"000003_execution", 3}, {"000005_safe_retry", 3}, {"000010_application_quota", 2}}
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		var resumed []string
		for _, p := range points {
			startChild(t, db, p.step, p.statement).kill()
		}
		_, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{Report: func(e migrations.Event) {
			if e.Kind == migrations.StepResumed {
				resumed = append(resumed, fmt.Sprint(e.Step, e.Statement))
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"000010_application_quota2"}; !slices.Equal(resumed, want) {
			t.Errorf("resumed %q, want %q", resumed, want)
		}
		equal(t, "definition of", schema(t, db), schema(t, dbtest.Open(t, db.Engine, migrations.Server)))
		if v, err := migrations.Version(t.Context(), db.DB, migrations.Server); err != nil || v != latest(t, db, migrations.Server) {
			t.Errorf("Version = %d, %v, want the newest", v, err)
		}
	})
}

// MIG-014: killed while the server is at work on an ALTER. The server may finish it when
// nobody waits for it any more; the next runner waits for it and finds it done.
func TestUpGoesOnAfterItsProcessWasKilledInsideAnAlter(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			migrate(t, db, 2)
			reader, err := db.Write().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Rollback()
			// Its metadata lock keeps the ALTER at the server's door.
			if _, err := reader.ExecContext(t.Context(), "SELECT COUNT(*) FROM task"); err != nil {
				t.Fatal(err)
			}
			c := startChild(t, db, "000003_execution", 3)
			c.goOn()
			db.AwaitStatement(t, "ALTER TABLE task", "metadata lock")
			c.kill()

			done := make(chan error, 1)
			go func() {
				_, err := migrations.Up(t.Context(), db.Reopen(t).DB, migrations.Server, migrations.Options{})
				done <- err
			}()
			waitForLock(t, db, c.Process.Pid)
			if err := reader.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatalf("Up after the kill: %v", err)
			}
			equal(t, "definition of", schema(t, db), schema(t, dbtest.Open(t, engine, migrations.Server)))
		})
	}
}

// A meanwhile lets something happen between the first question to the database and the second.
type meanwhile struct {
	sqldb.Querier
	asked int
	then  func()
}

func (m *meanwhile) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if m.asked++; m.asked == 2 {
		m.then()
	}
	return m.Querier.QueryRowContext(ctx, query, args...)
}

// MIG-014: a statement that the server ends while the next runner looks for it is done: it
// was nowhere at the first question and is there at the others.
func TestAStatementThatEndsWhileItIsLookedForIsDone(t *testing.T) {
	const alter = "ALTER TABLE task ADD COLUMN a INT NULL, ADD COLUMN b INT NULL, ADD COLUMN c INT NULL"
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine, migrations.Server)
			q := &meanwhile{Querier: db.Write(), then: func() {
				if _, err := db.Write().ExecContext(t.Context(), alter); err != nil {
					t.Fatal(err)
				}
			}}
			if whole, err := migrations.SeenWhole(t.Context(), q, db.Dialect(), alter); err != nil || !whole {
				t.Errorf("seen whole: %v, %v, want true", whole, err)
			}
		})
	}
}

// waitForLock waits until a runner other than the process pid holds the lock.
func waitForLock(t *testing.T, db *dbtest.DB, pid int) {
	t.Helper()
	waitUntil(t, "the next runner to take the lock", func() bool {
		return number(t, db, "SELECT COUNT(*) FROM orbit_migration_lock WHERE lease_until > "+db.Dialect().Clock+" AND holder NOT LIKE ?", fmt.Sprintf("%%process %d %%", pid)) > 0
	})
}

func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// begin makes the books say that a statement of the next step was begun, as a crash leaves
// it.
func begin(t *testing.T, db *dbtest.DB, step string, statement int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := migrations.Up(ctx, db.DB, migrations.Server, migrations.Options{Report: func(e migrations.Event) {
		if e.Kind == migrations.StatementRunning && e.Step == step && e.Statement == statement {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Up to the statement = %v, want it canceled", err)
	}
	execute(t, db, "INSERT INTO orbit_migration_statement (set_name, version, ordinal, begun_at) VALUES (?, ?, ?, 1)",
		[]byte("server"), number(t, db, "SELECT MAX(version) FROM orbit_migration"), statement)
}

const alterTask = `ALTER TABLE task
    ADD COLUMN epoch         BIGINT     NOT NULL DEFAULT 0 COMMENT '最近一次执行的纪元',
    ADD COLUMN attempt_count INT        NOT NULL DEFAULT 0 COMMENT '执行次数',
    ADD COLUMN attempt_id    BINARY(16) NULL COMMENT '当前执行标识，空为没有'`

// MIG-014: a statement that was begun is proved by the catalogue to be in force or not.
func TestABegunStatementIsResolvedByTheCatalogue(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		for name, left := range map[string]string{"NothingIsInForce": "", "AllOfItIsInForce": alterTask} {
			t.Run(engine+"/"+name, func(t *testing.T) {
				db := dbtest.Open(t, engine)
				begin(t, db, "000003_execution", 3)
				if left != "" {
					execute(t, db, left)
				}
				migrate(t, db, 3)
				fresh := dbtest.Open(t, engine)
				migrate(t, fresh, 3)
				equal(t, "definition of", schema(t, db), schema(t, fresh))
			})
		}
	}
}

// No engine that Orbit supports leaves half of an ALTER; a person may.
func TestABegunStatementThatIsHalfInForceStopsWithInstructionsThatWork(t *testing.T) {
	const undo, finish = "undo", "finish"
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		for _, remedy := range []string{undo, finish} {
			t.Run(engine+"/"+remedy, func(t *testing.T) {
				db := dbtest.Open(t, engine)
				begin(t, db, "000003_execution", 3)
				execute(t, db, "ALTER TABLE task ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0 COMMENT '最近一次执行的纪元'")
				_, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{})
				var unresolved *migrations.UnresolvedError
				if !errors.As(err, &unresolved) {
					t.Fatalf("Up = %v, want an UnresolvedError", err)
				}
				for _, word := range []string{"statement 3", "000003_execution", "ALTER TABLE task", "column task.attempt_id"} {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("error %q does not say %q", err, word)
					}
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("error has several lines: %q", err)
				}
				follow(t, db, err.Error(), remedy == undo)
				migrate(t, db, 4)
			})
		}
	}
}

var instruction = regexp.MustCompile(`(UPDATE|DELETE FROM) orbit_migration_statement .*?ordinal = \d+`)

// follow does what the message of an UnresolvedError says.
func follow(t *testing.T, db *dbtest.DB, message string, undo bool) {
	t.Helper()
	statements := instruction.FindAllString(message, -1)
	if len(statements) != 2 {
		t.Fatalf("message has %d instructions, want 2: %s", len(statements), message)
	}
	if undo {
		execute(t, db, "ALTER TABLE task DROP COLUMN epoch")
		execute(t, db, statements[1])
		return
	}
	execute(t, db, "ALTER TABLE task ADD COLUMN attempt_count INT NOT NULL DEFAULT 0, ADD COLUMN attempt_id BINARY(16) NULL")
	execute(t, db, statements[0])
}

func TestABegunStatementWhoseEffectCannotBeReadStops(t *testing.T) {
	tree := oneSet("CREATE TABLE a (x INT);\nALTER TABLE a MODIFY COLUMN x BIGINT;\n")
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			ctx, cancel := context.WithCancel(t.Context())
			_, err := migrations.UpFiles(ctx, db.DB, tree, migrations.Server, migrations.Options{Report: func(e migrations.Event) {
				if e.Statement == 2 {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			execute(t, db, "INSERT INTO orbit_migration_statement (set_name, version, ordinal, begun_at) VALUES (?, 1, 2, 1)", []byte("server"))
			var unresolved *migrations.UnresolvedError
			if _, err := migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{}); !errors.As(err, &unresolved) || !strings.Contains(err.Error(), "cannot be read from the catalogue") {
				t.Errorf("Up = %v, want an UnresolvedError", err)
			}
		})
	}
}

// On SQLite a statement and its record are one transaction, so there is nothing between
// them.
func TestSQLiteNeverLeavesABegunStatement(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite)
	for _, statement := range []int{9, 10, 11} {
		startChild(t, db, "000005_safe_retry", statement).kill()
	}
	if n := number(t, db, "SELECT COUNT(*) FROM orbit_migration_statement WHERE done_at IS NULL"); n != 0 {
		t.Errorf("%d statements are begun only, want 0", n)
	}
	migrate(t, db, 6)
}

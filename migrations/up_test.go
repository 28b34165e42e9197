package migrations_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// count returns 1 to n.
func count(n int) []int {
	var numbers []int
	for i := range n {
		numbers = append(numbers, i+1)
	}
	return numbers
}

// MIG-001, MIG-014
func TestUpAppliesEveryStepOnceAndASecondUpChangesNothing(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		want := count(latest(t, db, migrations.Server))
		applied, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{})
		if err != nil || !slices.Equal(applied, want) {
			t.Fatalf("first Up = %v, %v, want %v", applied, err, want)
		}
		before := schema(t, db)
		books := query(t, db, "SELECT * FROM orbit_migration ORDER BY version")
		applied, err = migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{})
		if err != nil || len(applied) != 0 {
			t.Errorf("second Up = %v, %v, want no step", applied, err)
		}
		equal(t, "definition of", schema(t, db), before)
		if got := query(t, db, "SELECT * FROM orbit_migration ORDER BY version"); !slices.Equal(got, books) {
			t.Errorf("books after the second Up = %q, want %q", got, books)
		}
	})
}

func TestUpStopsAtTheStepItIsToldTo(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		for _, to := range []int{3, 3, 2, 5} { // there is no way back
			if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{To: to}); err != nil {
				t.Fatal(err)
			}
		}
		if v, err := migrations.Version(t.Context(), db.DB, migrations.Server); err != nil || v != 5 {
			t.Errorf("Version = %d, %v, want 5", v, err)
		}
		for _, to := range []int{-1, latest(t, db, migrations.Server) + 1} {
			if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{To: to}); err == nil || !strings.Contains(err.Error(), "this program knows steps 1 to") {
				t.Errorf("Up to %d = %v, want an error that names the steps known", to, err)
			}
		}
	})
}

// MIG-015
func TestSetsShareADatabaseWithoutMixingTheirBooks(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		for _, set := range migrations.Sets() {
			if v, err := migrations.Version(t.Context(), db.DB, set); err != nil || v != 0 {
				t.Errorf("Version(%s) before Up = %d, %v, want 0", set, v, err)
			}
			applied, err := migrations.Up(t.Context(), db.DB, set, migrations.Options{})
			if want := count(latest(t, db, set)); err != nil || !slices.Equal(applied, want) {
				t.Errorf("Up(%s) = %v, %v, want %v", set, applied, err, want)
			}
		}
	})
}

// MIG-014: a waiting second runner finds the work done.
func TestTwoRunnersAtOnceApplyEachStepOnce(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		var mu sync.Mutex
		var all []int
		var runners sync.WaitGroup
		for _, node := range []*dbtest.DB{db, db.Reopen(t), db.Reopen(t)} {
			runners.Go(func() {
				applied, err := migrations.Up(t.Context(), node.DB, migrations.Server, migrations.Options{})
				if err != nil {
					t.Errorf("Up: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, applied...)
			})
		}
		runners.Wait()
		slices.Sort(all)
		if want := count(latest(t, db, migrations.Server)); !slices.Equal(all, want) {
			t.Errorf("steps applied by all runners = %v, want %v", all, want)
		}
		equal(t, "definition of", schema(t, db), schema(t, dbtest.Open(t, db.Engine, migrations.Server)))
	})
}

// MIG-014: checksums.
func TestUpRefusesAStepThatWasChangedAfterItWasApplied(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 3)
		execute(t, db, "UPDATE orbit_migration SET checksum = ? WHERE version = 2", make([]byte, 32))
		applied, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{})
		var changed *migrations.ChangedError
		if !errors.As(err, &changed) || changed.Step != "000002_task" || len(applied) != 0 {
			t.Fatalf("Up = %v, %v, want a ChangedError for 000002_task", applied, err)
		}
		if v, _ := migrations.Version(t.Context(), db.DB, migrations.Server); v != 3 {
			t.Errorf("Version after the refusal = %d, want 3", v)
		}
		status, err := migrations.Status(t.Context(), db.DB, migrations.Server)
		if err != nil || status[1].State != migrations.Changed || status[2].State != migrations.Applied {
			t.Errorf("Status = %v, %v, want step 2 changed and step 3 applied", status[:3], err)
		}
	})
}

func TestUpRefusesASchemaNewerThanItKnows(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		newest := latest(t, db, migrations.Server)
		insertStep(t, db, newest+1, false, true)
		_, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{})
		var version *migrations.VersionError
		if !errors.As(err, &version) || version.Found != newest+1 || version.Max != newest {
			t.Fatalf("Up = %v, want a VersionError with %d and %d", err, newest+1, newest)
		}
		status, err := migrations.Status(t.Context(), db.DB, migrations.Server)
		if err != nil || len(status) != newest+1 || status[newest].State != migrations.Unknown {
			t.Errorf("Status = %v, %v, want an unknown step %d", status, err, newest+1)
		}
	}, migrations.Server)
}

// insertStep records a step of a later release.
func insertStep(t *testing.T, db *dbtest.DB, number int, additive, complete bool) {
	t.Helper()
	var completed any
	if complete {
		completed = 1
	}
	execute(t, db, "INSERT INTO orbit_migration (set_name, version, name, checksum, additive, started_at, completed_at) VALUES (?, ?, ?, ?, ?, 1, ?)",
		[]byte("server"), number, []byte("later"), make([]byte, 32), additive, completed)
}

func TestABooksGapIsRefused(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 3)
		execute(t, db, "DELETE FROM orbit_migration WHERE version = 2")
		_, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{})
		if err == nil || !strings.Contains(err.Error(), "list step 000003_execution but not step 000002") {
			t.Errorf("Up = %v, want an error that names the gap", err)
		}
	})
}

// oneSet returns the steps of a set for every dialect.
func oneSet(texts ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for i, text := range texts {
		name := "00000" + string(rune('1'+i)) + "_step.up.sql"
		tree["server/mysql/"+name] = &fstest.MapFile{Data: []byte(text)}
		tree["server/sqlite/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

// MIG-014: a statement that the engine refuses leaves what ran before it, and goes on
// there once its cause is gone.
func TestUpGoesOnAtTheStatementThatFailed(t *testing.T) {
	tree := oneSet("CREATE TABLE a (x INT NOT NULL PRIMARY KEY);\nINSERT INTO a (x) VALUES (1);\nINSERT INTO b (x) VALUES (1);\nCREATE TABLE c (x INT);\n")
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		applied, err := migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{})
		if err == nil || len(applied) != 0 || !strings.Contains(err.Error(), "000001_step: statement 3 of 4") {
			t.Fatalf("Up = %v, %v, want an error that names the statement", applied, err)
		}
		if v, err := migrations.Version(t.Context(), db.DB, migrations.Server); err != nil || v != 0 {
			t.Errorf("Version of a half-applied step = %d, %v, want 0", v, err)
		}
		var half *migrations.HalfAppliedError
		if err := migrations.Check(t.Context(), db.DB, migrations.Server, 1, 1); !errors.As(err, &half) || half.Step != "000001_step" {
			t.Errorf("Check = %v, want a HalfAppliedError", err)
		}
		execute(t, db, "CREATE TABLE b (x INT)")
		var resumed []migrations.Event
		applied, err = migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{Report: func(e migrations.Event) { resumed = append(resumed, e) }})
		if err != nil || !slices.Equal(applied, []int{1}) {
			t.Fatalf("Up after the mend = %v, %v, want step 1", applied, err)
		}
		if resumed[0].Kind != migrations.StepResumed || resumed[0].Statement != 3 {
			t.Errorf("first event = %+v, want the step resumed at statement 3", resumed[0])
		}
		if n := number(t, db, "SELECT COUNT(*) FROM a"); n != 1 {
			t.Errorf("rows of the second statement = %d, want 1", n)
		}
	})
}

func TestADefinitionThatFailsIsTriedAgain(t *testing.T) {
	tree := oneSet("CREATE TABLE a (x INT NOT NULL);\nCREATE UNIQUE INDEX a_x ON a (x);\n", "CREATE TABLE d (x INT);\n")
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		stop := func(e migrations.Event) {
			if e.Kind == migrations.StatementRunning && e.Statement == 2 && e.Step == "000001_step" {
				execute(t, db, "INSERT INTO a (x) VALUES (1), (1)")
			}
		}
		if _, err := migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{Report: stop}); err == nil || !db.Dialect().Refused(err) {
			t.Fatalf("Up = %v, want the engine's refusal", err)
		}
		execute(t, db, "DELETE FROM a")
		applied, err := migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{})
		if err != nil || !slices.Equal(applied, []int{1, 2}) {
			t.Errorf("Up after the mend = %v, %v, want both steps", applied, err)
		}
	})
}

// The server's refusal proves that a statement had no effect, even if the catalogue could
// not tell.
func TestARefusedStatementThatLeavesNoMarkIsTriedAgain(t *testing.T) {
	tree := oneSet("CREATE TABLE a (x INT);\nALTER TABLE a MODIFY COLUMN x TINYINT NOT NULL;\n")
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			spoil := func(e migrations.Event) {
				if e.Kind == migrations.StatementRunning && e.Statement == 2 {
					execute(t, db, "INSERT INTO a (x) VALUES (1000)")
				}
			}
			if _, err := migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{Report: spoil}); err == nil || !db.Dialect().Refused(err) {
				t.Fatalf("Up = %v, want the server's refusal", err)
			}
			execute(t, db, "DELETE FROM a")
			if applied, err := migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{}); err != nil || len(applied) != 1 {
				t.Errorf("Up after the mend = %v, %v, want the step", applied, err)
			}
		})
	}
}

// CLI-001: a table of somebody else is neither taken over nor harmed.
func TestUpRefusesADatabaseThatHasSuchATableAlready(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		execute(t, db, "CREATE TABLE task (x INT)")
		applied, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{})
		if err == nil || !strings.Contains(err.Error(), "task") || !slices.Equal(applied, []int{1}) {
			t.Fatalf("Up = %v, %v, want step 1 and an error that names the table", applied, err)
		}
		if db.Engine != dbtest.SQLite && !strings.Contains(err.Error(), "give it a database of its own") { // SQLite rolls back by itself
			t.Errorf("Up = %v, want a refusal before anything was begun", err)
		}
		if again, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{}); err == nil {
			t.Fatalf("second Up = %v, want an error again", again)
		}
		execute(t, db, "DROP TABLE task")
		if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{To: 3}); err != nil {
			t.Errorf("Up without the foreign table: %v", err)
		}
	})
}

func TestACanceledUpGoesOnLater(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop := func(e migrations.Event) {
			if e.Kind == migrations.StatementRunning && e.Step == "000003_execution" && e.Statement == 2 {
				cancel()
			}
		}
		applied, err := migrations.Up(ctx, db.DB, migrations.Server, migrations.Options{Report: stop})
		if !errors.Is(err, context.Canceled) || !slices.Equal(applied, []int{1, 2}) {
			t.Fatalf("canceled Up = %v, %v, want steps 1 and 2 and context.Canceled", applied, err)
		}
		migrate(t, db, 4)
		if n := number(t, db, "SELECT COUNT(*) FROM orbit_migration_lock WHERE holder <> x''"); n != 0 {
			t.Error("the lock is held after Up")
		}
	})
}

package dbtest_test

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/drivers/postgres"
	"github.com/orbitkit/orbit/migrations"
)

const insertApplication = "INSERT INTO application (id, name, state, created_at, updated_at) VALUES (?, ?, 1, 0, 0)"

func TestEachTestGetsAMigratedDatabaseOfItsOwn(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		want, err := migrations.Latest(migrations.Server, db.Dialect())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			own := dbtest.Open(t, db.Engine, migrations.Server)
			if err := migrations.Check(t.Context(), own.DB, migrations.Server, want, want); err != nil {
				t.Fatal(err)
			}
			if _, err := own.Write().ExecContext(t.Context(), insertApplication, make([]byte, 16), []byte("a")); err != nil {
				t.Fatalf("insert into a fresh database: %v", err)
			}
		}
	}, migrations.Server)
}

func TestReopenSeesTheSameDatabase(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		node := db.Reopen(t)
		if _, err := db.Write().ExecContext(t.Context(), insertApplication, make([]byte, 16), []byte("a")); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := node.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM application").Scan(&n); err != nil || n != 1 {
			t.Errorf("rows seen by the other node = %d, %v, want 1", n, err)
		}
	}, migrations.Server)
}

// A database made from a template is the one that migrating makes.
func TestATemplateIsWhatMigratingMakes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrated := dbtest.Open(t, db.Engine)
		for _, set := range migrations.Sets() {
			if _, err := migrations.Up(t.Context(), migrated.DB, set, migrations.Options{}); err != nil {
				t.Fatal(err)
			}
			applied, err := migrations.Up(t.Context(), db.DB, set, migrations.Options{})
			if err != nil || len(applied) > 0 {
				t.Errorf("Up(%s) on a template = %v, %v, want nothing to do", set, applied, err)
			}
		}
		if got, want := definitions(t, db), definitions(t, migrated); !maps.Equal(got, want) {
			t.Errorf("tables from the template %q, migrated %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}, migrations.Sets()...)
}

func definitions(t *testing.T, db *dbtest.DB) map[string]string {
	t.Helper()
	list := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
	if db.Engine == dbtest.SQLite {
		list = "SELECT name FROM sqlite_master WHERE sql IS NOT NULL"
	}
	rows, err := db.Read().QueryContext(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]string{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		found[name] = definition(t, db, name)
	}
	if err := rows.Err(); err != nil || len(found) < 15 {
		t.Fatalf("found %d tables, %v", len(found), err)
	}
	return found
}

func definition(t *testing.T, db *dbtest.DB, name string) (text string) {
	t.Helper()
	var err error
	if db.Engine == dbtest.SQLite {
		err = db.Read().QueryRowContext(t.Context(), "SELECT sql FROM sqlite_master WHERE name = ?", name).Scan(&text)
	} else {
		err = db.Read().QueryRowContext(t.Context(), "SHOW CREATE TABLE `"+name+"`").Scan(new(string), &text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestADatabaseGoesWithItsTest(t *testing.T) {
	for _, engine := range dbtest.GuardEngines() {
		t.Run(engine, func(t *testing.T) {
			var address string
			if !t.Run("user", func(t *testing.T) { address = dbtest.Open(t, engine, migrations.Guard).Address }) || address == "" {
				t.SkipNow() // the subtest said why
			}
			if file, ok := strings.CutPrefix(address, "sqlite:"); ok {
				if _, err := os.Stat(file); !os.IsNotExist(err) {
					t.Errorf("the file is still there: %v", err)
				}
				return
			}
			if engine == dbtest.Postgres {
				schemaIsGone(t, address)
				return
			}
			if _, err := drivers.Open(t.Context(), address); err == nil || !strings.Contains(err.Error(), "Unknown database") {
				t.Errorf("Open after the test = %v, want an unknown database", err)
			}
		})
	}
}

// schemaIsGone wants no schema under an address on PostgreSQL.
func schemaIsGone(t *testing.T, address string) {
	t.Helper()
	db, err := postgres.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var there bool
	if err := db.Read().QueryRowContext(t.Context(), "SELECT current_schema() IS NOT NULL").Scan(&there); err != nil || there {
		t.Errorf("the schema is still there: %t, %v", there, err)
	}
}

const child = "ORBIT_DBTEST_CHILD"

// CLI-012: the test that the next one runs in a process of its own.
func TestChild(t *testing.T) {
	if os.Getenv(child) == "" {
		return
	}
	dbtest.RunOn(t, dbtest.GuardEngines(), func(t *testing.T, db *dbtest.DB) {}, migrations.Guard)
}

// CLI-012: without servers the other engines are skipped with the reason, unless nothing
// may be skipped.
func TestAMissingServerSkipsOrFailsAndSaysSo(t *testing.T) {
	mysql, mariadb := os.Getenv("ORBIT_TEST_MYSQL_DSN"), os.Getenv("ORBIT_TEST_MARIADB_DSN")
	tests := []struct {
		name                string
		mysql, mariadb, all string
		fails               bool
		want                []string
	}{
		{"skips", "", "", "", false, []string{"--- PASS: TestChild/sqlite", "--- SKIP: TestChild/mysql", "ORBIT_TEST_MYSQL_DSN names no server", "--- SKIP: TestChild/mariadb", "ORBIT_TEST_MARIADB_DSN names no server", "--- SKIP: TestChild/postgres", "ORBIT_TEST_POSTGRES_DSN names no server"}},
		{"fails", "", "", "1", true, []string{"--- PASS: TestChild/sqlite", "--- FAIL: TestChild/mysql", "--- FAIL: TestChild/mariadb", "--- FAIL: TestChild/postgres", "allows no skipped engine"}},
		{"swapped", mariadb, mysql, "", true, []string{"the server for mysql is of version", "the server for mariadb is of version"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "swapped" && (mysql == "" || mariadb == "") {
				dbtest.Open(t, dbtest.MySQL) // skips or fails, as for every test
				dbtest.Open(t, dbtest.MariaDB)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			cmd.Env = append(os.Environ(), child+"=1", "ORBIT_TEST_MYSQL_DSN="+test.mysql, "ORBIT_TEST_MARIADB_DSN="+test.mariadb, "ORBIT_TEST_POSTGRES_DSN=", "ORBIT_TEST_ALL_ENGINES="+test.all)
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails {
				t.Errorf("child ended with %v, want failure %v", err, test.fails)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("child does not say %q:\n%s", want, out)
				}
			}
		})
	}
}

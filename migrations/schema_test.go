package migrations_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

func chinese(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// MIG-005, for the runner's books too; SQLite keeps no comments.
func TestEveryColumnAndTableHasAChineseComment(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine, migrations.Sets()...)
			commented := query(t, db, `SELECT table_name, column_name, column_comment FROM information_schema.columns WHERE table_schema = DATABASE()`)
			commented = append(commented, query(t, db, `SELECT table_name, '', table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'`)...)
			if len(commented) < 150 {
				t.Fatalf("found %d columns and tables, want all of them", len(commented))
			}
			for _, row := range commented {
				f := strings.SplitN(row, "|", 3)
				if !chinese(f[2]) {
					t.Errorf("comment of %s.%s = %q, want Chinese words", f[0], f[1], f[2])
				}
			}
		})
	}
}

// MIG-006, AMB-005: zero foreign keys, at every version.
// ID-011.
func TestNoVersionHasAForeignKey(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		for version := 1; version <= latest(t, db, migrations.Server); version++ {
			migrate(t, db, version)
			if n := foreignKeys(t, db); n != 0 {
				t.Errorf("version %d has %d foreign keys, want 0", version, n)
			}
		}
	}, migrations.Outbox, migrations.Guard)
}

func TestForeignKeysAreFoundWhereThereAreSome(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		execute(t, db, "CREATE TABLE parent (id INT NOT NULL PRIMARY KEY)")
		execute(t, db, "CREATE TABLE child (id INT NOT NULL PRIMARY KEY, parent_id INT, FOREIGN KEY (parent_id) REFERENCES parent (id))")
		if n := foreignKeys(t, db); n != 1 {
			t.Errorf("found %d foreign keys, want 1", n)
		}
	})
}

// MIG-003, MIG-004, AMB-004: four fields, each with a comment, and no new entity.
func TestResourceKeyStepAddsFourColumnsAndNoTable(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 10)
		tablesBefore, before := tables(t, db), columns(t, db)
		migrate(t, db, 11)
		if got := tables(t, db); !slices.Equal(got, tablesBefore) {
			t.Errorf("tables = %q, want those of version 10: %q", got, tablesBefore)
		}
		added := columns(t, db)
		maps.DeleteFunc(added, func(name string, c column) bool { return before[name] == c })
		want := []string{"attempt.concurrency_token", "task.concurrency_key", "task.concurrency_key_digest", "worker_session.concurrency_keys"}
		if got := slices.Sorted(maps.Keys(added)); !slices.Equal(got, want) {
			t.Errorf("columns added = %q, want %q", got, want)
		}
		for name, c := range added {
			if db.Engine != dbtest.SQLite && !chinese(c.Comment) {
				t.Errorf("comment of %s = %q, want Chinese words", name, c.Comment)
			}
		}
	})
}

// MIG-016, MIG-017: keys are bytes, 191 code points of four bytes fit.
func TestKeyColumnsHoldThe764BytesOfTheLongestKey(t *testing.T) {
	keys := []string{"task.business_key", "task.concurrency_key", "resource.resource_key"}
	longest := bytes.Repeat([]byte("𝒦"), 191)
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		all := columns(t, db)
		want := "varbinary(764)"
		if db.Engine == dbtest.SQLite {
			want = "BLOB"
		}
		for _, key := range keys {
			if got := all[key].Type; got != want {
				t.Errorf("type of %s = %s, want %s", key, got, want)
			}
		}
		execute(t, db, "INSERT INTO resource (digest, kind, namespace_id, resource_key, created_at) VALUES (?, 2, ?, ?, 0)", make([]byte, 32), make([]byte, 16), longest)
		var got []byte
		if err := db.Read().QueryRowContext(t.Context(), "SELECT resource_key FROM resource").Scan(&got); err != nil || !bytes.Equal(got, longest) {
			t.Errorf("key read back = %d bytes, %v, want %d", len(got), err, len(longest))
		}
	}, migrations.Server)
}

// MIG-016: no two keys that differ in bytes are one, whatever a text collation thinks.
func TestKeysAreComparedAsBytes(t *testing.T) {
	alike := []string{"k", "K", "k ", "k\x00", "ｋ", "é", "e\u0301", "ß", "ss", "𝒦"}
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		for i, key := range alike {
			id := bytes.Repeat([]byte{byte(i + 1)}, 16)
			insertTask(t, db, taskRow{id: id, state: waiting, key: key})
		}
		for _, key := range alike {
			if n := number(t, db, "SELECT COUNT(*) FROM task WHERE business_key = ?", []byte(key)); n != 1 {
				t.Errorf("tasks found for key %q = %d, want 1", key, n)
			}
		}
	}, migrations.Server)
}

// SUB-027: no column re-formats the JSON that it holds.
func TestJSONIsStoredAsBytes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		all := columns(t, db)
		for _, name := range []string{"task.payload", "task.result", "attempt.result", "evidence.body", "idempotency.receipt"} {
			if got := strings.ToLower(all[name].Type); !strings.HasSuffix(got, "blob") {
				t.Errorf("type of %s = %q, want one of bytes", name, got)
			}
		}
		for name, c := range all {
			if strings.Contains(strings.ToLower(c.Type), "json") {
				t.Errorf("%s has the type %s", name, c.Type)
			}
		}
	}, migrations.Server)
}

// MOD-009: the same code runs on all engines, so the schemas must be one.
func TestAllEnginesHaveTheSameTablesColumnsAndIndexes(t *testing.T) {
	want := dbtest.Open(t, dbtest.SQLite, migrations.Sets()...)
	wantColumns, wantIndexes, wantKeys := nullability(columns(t, want)), indexes(t, want), primaryKeys(t, want)
	if len(wantColumns) < 150 || len(wantIndexes) < 20 || len(wantKeys) < 15 {
		t.Fatalf("found %d columns, %d indexes, %d tables on SQLite, want all of them", len(wantColumns), len(wantIndexes), len(wantKeys))
	}
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine, migrations.Sets()...)
			equal(t, "column may be NULL", nullability(columns(t, db)), wantColumns)
			equal(t, "index", indexes(t, db), wantIndexes)
			equal(t, "primary key of", primaryKeys(t, db), wantKeys)
		})
	}
}

func nullability(all map[string]column) map[string]bool {
	found := map[string]bool{}
	for name, c := range all {
		found[name] = c.Nullable
	}
	return found
}

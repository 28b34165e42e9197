package sqldb_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

func makeThings(t *testing.T, db *dbtest.DB) {
	t.Helper()
	text := "LONGBLOB"
	if db.Engine == dbtest.SQLite {
		text = "BLOB"
	}
	mustExec(t, db.Write(), "CREATE TABLE thing (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, body "+text+" NOT NULL)")
}

// Values of one statement must never be read as a part of another, whatever they hold.
func TestWritesKeepTheirOrderAndTheirValues(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		makeThings(t, db)
		bodies := [][]byte{
			[]byte(`'); DELETE FROM thing; -- ?`), []byte("\\'; ? \x00 \x1a \n\" /* "), {}, []byte("é\xff\xfe;"),
			bytes.Repeat([]byte("'\\;?"), 400<<10), bytes.Repeat([]byte{0, '\''}, 300<<10), []byte("last"),
		}
		err := db.Tx(t.Context(), func(tx *sqldb.Tx) error {
			w := tx.Writes()
			for i, body := range bodies {
				w.Add("insert a thing", "INSERT INTO thing (id, n, body) VALUES (?, ?, ?)", i, 1, body)
				w.AddMatching(i+1, "count", "UPDATE thing SET n = n * 2 + 1 WHERE id <= ?", i)
			}
			if err := w.Run(t.Context()); err != nil {
				return err
			}
			return w.Run(t.Context()) // of nothing
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range bodies {
			var (
				n    int
				body []byte
			)
			if err := db.Read().QueryRow("SELECT n, body FROM thing WHERE id = ?", i).Scan(&n, &body); err != nil {
				t.Fatal(err)
			}
			if updates := len(bodies) - i; n != 2<<updates-1 || !bytes.Equal(body, want) {
				t.Errorf("thing %d has n = %d and %d bytes, want %d and the %d that were written", i, n, len(body), 2<<updates-1, len(want))
			}
		}
	})
}

func TestWritesThatFailLeaveNothing(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		makeThings(t, db)
		insert := "INSERT INTO thing (id, n, body) VALUES (?, 1, ?)"
		mustExec(t, db.Write(), insert, 9, []byte{1})
		run := func(add func(*sqldb.Writes)) error {
			return db.Tx(t.Context(), func(tx *sqldb.Tx) error {
				w := tx.Writes()
				w.Add("insert 1", insert, 1, []byte{1})
				add(w)
				w.Add("insert 2", insert, 2, []byte{2})
				return w.Run(t.Context())
			})
		}
		var mismatch *sqldb.MismatchError
		err := run(func(w *sqldb.Writes) { w.AddMatching(2, "raise both", "UPDATE thing SET n = n + 1 WHERE id = 1") })
		if !errors.As(err, &mismatch) || mismatch.What != "raise both" {
			t.Errorf("Run = %v, want the update that matched one row for two", err)
		}
		if err := run(func(w *sqldb.Writes) { w.Add("insert 9", insert, 9, []byte{9}) }); !db.Dialect().Duplicate(err) {
			t.Errorf("Run = %v, want a duplicate", err)
		}
		if err := run(func(w *sqldb.Writes) { w.Add("nonsense", "NONSENSE") }); !db.Dialect().Refused(err) {
			t.Errorf("Run = %v, want the engine's refusal", err)
		}
		var n int
		if err := db.Read().QueryRow("SELECT COUNT(*) FROM thing").Scan(&n); err != nil || n != 1 {
			t.Errorf("%d things are there (%v), want the one from before", n, err)
		}
	})
}

// Statements that travel together cost one round trip on servers.
func TestWritesTravelTogether(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		makeThings(t, db)
		faults := dbfault.Open(t, db)
		if err := faults.DB.Tx(t.Context(), func(*sqldb.Tx) error { return nil }); err != nil { // connects
			t.Fatal(err)
		}
		before := faults.Calls()
		err := faults.DB.Tx(t.Context(), func(tx *sqldb.Tx) error {
			w := tx.Writes()
			for i := range 20 {
				w.Add("insert a thing", "INSERT INTO thing (id, n, body) VALUES (?, 1, ?)", i, []byte{byte(i)})
			}
			return w.Run(t.Context())
		})
		want := 2 // and the COMMIT
		if db.Engine == dbtest.SQLite {
			want = 22 // each, BEGIN and COMMIT
		}
		if calls := faults.Calls() - before; err != nil || calls != want {
			t.Errorf("20 statements took %d calls, want %d (%v)", calls, want, err)
		}
	})
}

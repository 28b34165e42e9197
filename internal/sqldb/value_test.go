package sqldb_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/orbitkit/orbit/internal/sqldb"
)

func TestParseIDRefusesAllButLowerCaseHex(t *testing.T) {
	id := sqldb.NewID()
	if got, err := sqldb.ParseID(id.String()); err != nil || got != id {
		t.Fatalf("ParseID(%s) = %v, %v", id, got, err)
	}
	for _, s := range []string{"", "0", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdeg", "0123456789abcdef0123456789abcdef0"} {
		if _, err := sqldb.ParseID(s); err == nil {
			t.Errorf("ParseID(%q) passed", s)
		}
	}
}

func TestUint64SurvivesEachDialectsForm(t *testing.T) {
	for _, v := range []uint64{0, 1, 1 << 53, 1<<53 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		for _, d := range []*sqldb.Dialect{sqldb.MySQL, sqldb.SQLite, sqldb.PostgreSQL} {
			var got uint64
			if err := d.ScanUint64(&got).Scan(d.Uint64(v)); err != nil || got != v {
				t.Errorf("%s: %d came back as %d, %v", d, v, got, err)
			}
		}
	}
	var got uint64
	if err := sqldb.MySQL.ScanUint64(&got).Scan([]byte("18446744073709551615")); err != nil || got != math.MaxUint64 {
		t.Errorf("text protocol: %d, %v", got, err)
	}
	for _, bad := range []any{nil, int64(-1), "5", []byte("x"), 1.5} {
		if err := sqldb.MySQL.ScanUint64(&got).Scan(bad); err == nil {
			t.Errorf("Scan(%v) passed", bad)
		}
	}
}

func TestUint64BytesSortLikeNumbers(t *testing.T) {
	small, large := sqldb.SQLite.Uint64(math.MaxInt64).([]byte), sqldb.SQLite.Uint64(math.MaxInt64+1).([]byte)
	if bytes.Compare(small, large) >= 0 {
		t.Fatalf("%x is not below %x", small, large)
	}
}

func TestPlaceholdersAreNumberedForPostgreSQLAlone(t *testing.T) {
	const query = "UPDATE a SET b = ?, c = ? WHERE d IN (?,?)"
	if got, want := sqldb.PostgreSQL.Bind(query), "UPDATE a SET b = $1, c = $2 WHERE d IN ($3,$4)"; got != want {
		t.Errorf("Bind = %q, want %q", got, want)
	}
	for _, d := range []*sqldb.Dialect{sqldb.MySQL, sqldb.SQLite} {
		if got := d.Bind(query); got != query {
			t.Errorf("Bind of %s = %q, want the query as it is", d, got)
		}
	}
	if got := "FROM a" + sqldb.PostgreSQL.ByIndex("b"); got != "FROM a" {
		t.Errorf("hint = %q, want none", got)
	}
}

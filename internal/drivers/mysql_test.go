package drivers_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
)

var mysqlEngines = []string{dbtest.MySQL, dbtest.MariaDB}

// Every connection of the pool, not only the first, runs at READ COMMITTED: a second read
// in one transaction sees what was committed in between.
func TestEveryConnectionRunsAtReadCommitted(t *testing.T) {
	for _, engine := range mysqlEngines {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			if _, err := db.Write().ExecContext(t.Context(), "CREATE TABLE seen (x INT NOT NULL PRIMARY KEY)"); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				tx, err := db.Write().BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback() // at the end, so that the next one takes another connection
				count := func() (n int) {
					if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM seen").Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n
				}
				before := count()
				if _, err := db.Write().ExecContext(t.Context(), "INSERT INTO seen (x) VALUES (?)", i); err != nil {
					t.Fatal(err)
				}
				if after := count(); after != before+1 {
					t.Errorf("connection %d sees %d rows, want %d: not READ COMMITTED", i, after, before+1)
				}
			}
		})
	}
}

// A transaction begins with its first statement, sees what others commit meanwhile, and
// leaves none behind, whether it ends well or not.
func TestTransactionsBeginByThemselvesAndEnd(t *testing.T) {
	for _, engine := range mysqlEngines {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			if _, err := db.Write().ExecContext(t.Context(), "CREATE TABLE seen (x INT NOT NULL PRIMARY KEY)"); err != nil {
				t.Fatal(err)
			}
			broken := errors.New("broken")
			for i, end := range []error{nil, broken, nil, broken, nil} {
				var connection, before, after, open int
				err := db.Tx(t.Context(), func(tx *sqldb.Tx) error {
					for _, step := range []struct {
						query string
						into  *int
					}{{"SELECT CONNECTION_ID()", &connection}, {"SELECT COUNT(*) FROM seen", &before}} {
						if err := tx.QueryRowContext(t.Context(), step.query).Scan(step.into); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := db.Write().ExecContext(t.Context(), "INSERT INTO seen (x) VALUES (?)", 2*i); err != nil {
						t.Fatal(err)
					}
					if _, err := tx.ExecContext(t.Context(), "INSERT INTO seen (x) VALUES (?)", 2*i+1); err != nil {
						t.Fatal(err)
					}
					if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM seen").Scan(&after); err != nil {
						t.Fatal(err)
					}
					return end
				})
				if err != end || after != before+2 {
					t.Errorf("transaction %d ended with %v, and saw %d and then %d rows, want %v and 2 more", i, err, before, after, end)
				}
				err = db.Read().QueryRow("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ?", connection).Scan(&open)
				if err != nil || open != 0 {
					t.Errorf("transaction %d left %d transactions open (%v)", i, open, err)
				}
			}
			var n int
			if err := db.Read().QueryRow("SELECT COUNT(*) FROM seen").Scan(&n); err != nil || n != 5+3 {
				t.Errorf("%d rows are in force (%v), want 5 of others and 3 of the transactions that ended well", n, err)
			}
		})
	}
}

// Several statements at once are for those who say so. What else is sent as one and is
// several, as an injection would be, fails with its transaction.
func TestSeveralStatementsAreNotTakenForOne(t *testing.T) {
	for _, engine := range mysqlEngines {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			if _, err := db.Write().ExecContext(t.Context(), "CREATE TABLE thing (x INT NOT NULL PRIMARY KEY)"); err != nil {
				t.Fatal(err)
			}
			const two = "INSERT INTO thing (x) VALUES (1); INSERT INTO thing (x) VALUES (2)"
			err := db.Tx(t.Context(), func(tx *sqldb.Tx) error {
				_, err := tx.ExecContext(t.Context(), two)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "several statements") {
				t.Errorf("two statements in a transaction = %v, want them refused", err)
			}
			err = db.Tx(t.Context(), func(tx *sqldb.Tx) error {
				var one int
				return tx.QueryRowContext(t.Context(), "SELECT 1; INSERT INTO thing (x) VALUES (3)").Scan(&one)
			})
			if err == nil || !strings.Contains(err.Error(), "several statements") {
				t.Errorf("a query and another statement in a transaction = %v, want them refused", err)
			}
			if _, err := db.Write().ExecContext(t.Context(), two); err == nil {
				t.Error("two statements were carried out where each is sent alone")
			}
			var n int
			if err := db.Read().QueryRow("SELECT COUNT(*) FROM thing").Scan(&n); err != nil || n != 0 {
				t.Errorf("%d rows were written (%v), want none", n, err)
			}
		})
	}
}

func TestConnectionsAreStrictAndInUTC(t *testing.T) {
	for _, engine := range mysqlEngines {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			var zone, mode string
			if err := db.Write().QueryRowContext(t.Context(), "SELECT @@SESSION.time_zone, @@SESSION.sql_mode").Scan(&zone, &mode); err != nil {
				t.Fatal(err)
			}
			if zone != "+00:00" || !strings.Contains(mode, "STRICT_ALL_TABLES") {
				t.Errorf("zone %q, mode %q, want +00:00 and strict", zone, mode)
			}
			if _, err := db.Write().ExecContext(t.Context(), "CREATE TABLE short (x VARBINARY(3))"); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Write().ExecContext(t.Context(), "INSERT INTO short (x) VALUES (?)", []byte("four")); err == nil {
				t.Error("a value that does not fit was cut and stored")
			}
		})
	}
}

// Values are written into the statement by the driver: bytes and numbers of any kind must
// come through unharmed.
func TestInterpolatedValuesComeBackAsTheyWere(t *testing.T) {
	var every []byte
	for i := range 256 {
		every = append(every, byte(i))
	}
	for _, engine := range mysqlEngines {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			if _, err := db.Write().ExecContext(t.Context(), "CREATE TABLE v (b VARBINARY(300), u BIGINT UNSIGNED, n BIGINT)"); err != nil {
				t.Fatal(err)
			}
			const top uint64 = 1<<64 - 1
			const low int64 = -1 << 63
			if _, err := db.Write().ExecContext(t.Context(), "INSERT INTO v (b, u, n) VALUES (?, ?, ?)", every, top, low); err != nil {
				t.Fatal(err)
			}
			var b []byte
			var u uint64
			var n int64
			if err := db.Read().QueryRowContext(t.Context(), "SELECT b, u, n FROM v WHERE b = ?", every).Scan(&b, &u, &n); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b, every) || u != top || n != low {
				t.Errorf("read back %x, %d, %d", b, u, n)
			}
		})
	}
}

const canary = "s3cr3t-canary"

func TestHarmfulParametersAreRefusedByName(t *testing.T) {
	tests := map[string]string{
		"allowAllFiles=true":                      "allowAllFiles",
		"allowOldPasswords=true":                  "allowOldPasswords",
		"clientFoundRows=true":                    "clientFoundRows",
		"columnsWithAlias=true":                   "columnsWithAlias",
		"multiStatements=true":                    "multiStatements",
		"maxAllowedPacket=4194304":                "maxAllowedPacket is 4194304",
		"rejectReadOnly=true":                     "rejectReadOnly",
		"transaction_isolation='REPEATABLE-READ'": "transaction_isolation",
		"tx_isolation='REPEATABLE-READ'":          "tx_isolation",
		"sql_mode=''":                             "sql_mode",
		"time_zone='%2B02:00'":                    "time_zone",
		"autocommit=0":                            "autocommit",
		"strict=true":                             "strict",
		"readTimeout=soon":                        "readTimeout",
		"parseTime=perhaps":                       "parseTime",
	}
	for parameter, want := range tests {
		t.Run(want, func(t *testing.T) {
			_, err := drivers.Open(t.Context(), "mysql:root:"+canary+"@tcp(127.0.0.1:1)/orbit?timeout=1s&"+parameter)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Open = %v, want an error that names %s", err, want)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("error shows the password: %v", err)
			}
		})
	}
}

// CLI-017: whatever is wrong with an address, the password does not appear.
func TestABadAddressNamesTheRuleAndNeverThePassword(t *testing.T) {
	tests := []struct{ address, want string }{
		{"", `must begin with "mysql:" or "sqlite:"`},
		{"postgres://root:" + canary + "@host/db", `must begin with "mysql:" or "sqlite:"`},
		{"root:" + canary + "@tcp(127.0.0.1:1)/orbit", `must begin with "mysql:" or "sqlite:"`},
		{"mysql://root:" + canary + "@127.0.0.1:1/orbit", "user:password@tcp(host:3306)/database"},
		{"mysql:root:" + canary + "@127.0.0.1:1/orbit", "user:password@tcp(host:3306)/database"},
		{"mysql:root:" + canary, "missing the slash"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1", "missing the slash"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1/orbit", "not terminated"},
		{"mysql:root:" + canary + "/orbit", "user:password@tcp(host:3306)/database"},
		{"mysql:tcp(root:" + canary + "@127.0.0.1:1)/orbit", "user:password@tcp(host:3306)/database"},
		{"mysql:root:x@" + canary + "(127.0.0.1:1)/orbit", "tcp, tcp6 or unix"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1)/", "names no database"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1)/orbit?charset=gbk", "charset must be one of utf8mb4"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1)/orbit?charset=utf8mb4,gbk", "charset must be one of utf8mb4"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1)/orbit?collation=latin1_bin", "collation must be one of utf8mb4"},
		{"mysql:root:a/" + canary + "?timeout=" + canary, "parameter timeout is not valid"},
		{"mysql:root:a/b?" + canary + "=%zz", "user:password@tcp(host:3306)/database"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1)/orbit%zz" + canary, "user:password@tcp(host:3306)/database"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1)/orbit?tls=" + canary, "parameter tls is not valid"},
		{"mysql:root:" + canary + "@tcp(127.0.0.1:1)/orbit", "127.0.0.1:1"},
	}
	for _, test := range tests {
		t.Run(strings.ReplaceAll(test.address, canary, "***"), func(t *testing.T) {
			_, err := drivers.Open(t.Context(), test.address)
			if err == nil {
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("Open = %q, want it to say %q", err, test.want)
			}
			if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error shows the password or has several lines: %q", err)
			}
		})
	}
}

// The server's own words about a refused login, and about a variable that is none.
func TestAServersRefusalNeverShowsThePassword(t *testing.T) {
	for _, engine := range mysqlEngines {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			at := db.Address[strings.LastIndex(db.Address, "@"):]
			for _, address := range []string{
				"mysql:nobody:" + canary + at,
				"mysql:" + canary + ":" + canary + at, // it quotes the user
			} {
				_, err := drivers.Open(t.Context(), address)
				if err == nil || !strings.Contains(err.Error(), "Access denied") || strings.Contains(err.Error(), canary) {
					t.Errorf("Open = %v, want a refusal without the password", err)
				}
			}
			if _, err := drivers.Open(t.Context(), db.Address+"&no_such_variable=1"); err == nil || !strings.Contains(err.Error(), "no_such_variable") {
				t.Errorf("Open = %v, want the server's word about the variable", err)
			}
		})
	}
}

func TestOpenStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := drivers.Open(ctx, "mysql:root@tcp(192.0.2.1:3306)/orbit?timeout=1h"); err == nil {
		t.Error("Open succeeded")
	}
}

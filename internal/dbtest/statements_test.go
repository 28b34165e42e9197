package dbtest_test

import (
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
)

// A statement is found while another connection of the server runs one whose text is no
// UTF-8.
func TestAwaitStatementBearsBinaryStatements(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db, other := dbtest.Open(t, engine), dbtest.Open(t, engine)
			end := make(chan error, 2)
			for d, query := range map[*dbtest.DB]string{db: "SELECT SLEEP(2)", other: "SELECT SLEEP(2), _binary'\xA2)u\x94'"} {
				go func() {
					_, err := d.Read().ExecContext(t.Context(), query)
					end <- err
				}()
			}
			other.AwaitStatement(t, "SELECT SLEEP(2), _binary", "")
			db.AwaitStatement(t, "SELECT SLEEP(2)", "")
			for range 2 {
				if err := <-end; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

package drivers

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A saidConn notes what it is told, and answers with err.
type saidConn struct {
	mysqlConn
	said   []string
	result driver.Result
	err    error
}

func (c *saidConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	c.said = append(c.said, query)
	return c.result, c.err
}

func (c *saidConn) IsValid() bool { return true }

// Without autocommit a statement outside of a transaction would begin one that nobody ends.
func TestAConnectionForTransactionsTakesNothingElse(t *testing.T) {
	inner := &saidConn{}
	c := &manualConn{mysqlConn: inner}
	if _, err := c.ExecContext(t.Context(), "DELETE FROM task", nil); !errors.Is(err, errOutside) {
		t.Errorf("ExecContext = %v, want %v", err, errOutside)
	}
	if _, err := c.QueryContext(t.Context(), "SELECT 1", nil); !errors.Is(err, errOutside) {
		t.Errorf("QueryContext = %v, want %v", err, errOutside)
	}
	if _, err := c.PrepareContext(t.Context(), "SELECT 1"); !errors.Is(err, errOutside) {
		t.Errorf("PrepareContext = %v, want %v", err, errOutside)
	}
	if _, err := c.BeginTx(t.Context(), driver.TxOptions{ReadOnly: true}); err == nil {
		t.Error("BeginTx took options that it does not have")
	}
	if len(inner.said) > 0 {
		t.Errorf("the server was told %q", inner.said)
	}
}

// A result of two statements.
type twoResults struct{ driver.Result }

func (twoResults) AllRowsAffected() []int64  { return []int64{1, 1} }
func (twoResults) AllLastInsertIds() []int64 { return []int64{0, 0} }

// Should a value ever end its statement and begin another, the transaction fails.
func TestOneStatementThatIsAnsweredTwiceFails(t *testing.T) {
	c := &manualConn{mysqlConn: &saidConn{result: twoResults{}}, inside: true}
	if _, err := c.ExecContext(t.Context(), "UPDATE task SET state = ?", nil); !errors.Is(err, errSeveral) {
		t.Errorf("ExecContext = %v, want %v", err, errSeveral)
	}
	var affected sqldb.Affected
	c.affected = &affected
	if _, err := c.ExecContext(t.Context(), "UPDATE task SET state = 1;UPDATE task SET state = 2", nil); err != nil || len(affected) != 2 {
		t.Errorf("ExecContext = %v with %v rows, want both statements answered", err, affected)
	}
}

// Whoever gets the connection next would be in the transaction that did not end.
func TestAConnectionWhoseTransactionDidNotEndIsDropped(t *testing.T) {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		t.Run(end, func(t *testing.T) {
			inner := &saidConn{}
			c := &manualConn{mysqlConn: inner}
			tx, err := c.BeginTx(t.Context(), driver.TxOptions{})
			if err != nil || c.IsValid() {
				t.Fatalf("BeginTx = %v, and the connection is free (%v) for others", err, c.IsValid())
			}
			inner.err = errors.New("refused")
			finish := tx.Commit
			if end == "ROLLBACK" {
				finish = tx.Rollback
			}
			if err := finish(); !errors.Is(err, inner.err) || c.IsValid() {
				t.Errorf("%s = %v, valid %v; want the server's refusal, and the connection dropped", end, err, c.IsValid())
			}
		})
	}
}

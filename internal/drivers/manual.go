package drivers

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A manualConn runs transactions only, in few round trips: autocommit is off, so that one
// begins by itself with its first statement, and it takes several statements at once.
type manualConn struct {
	mysqlConn
	inside   bool            // a transaction of database/sql is open
	doubt    bool            // whether its end took place
	affected *sqldb.Affected // of the next statements
}

// mysqlConn is what the driver's connection offers and database/sql asks for.
type mysqlConn interface {
	driver.Conn
	driver.Pinger
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.NamedValueChecker
	driver.SessionResetter
	driver.Validator
}

const autocommitOff = ", SESSION autocommit = 0"

var (
	errOutside = errors.New("a statement on a connection for transactions is outside of one")
	errJoined  = errors.New("a text holds several statements, and nobody asked for them")
	// errSeveral rolls back what nobody has meant, should a value ever end its statement.
	errSeveral = errors.New("a statement was carried out as several")
)

// BeginTx implements [driver.ConnBeginTx].
func (c *manualConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts != (driver.TxOptions{}) {
		return nil, errors.New("a transaction of Orbit's own has no options: its session has them")
	}
	if !c.IsValid() {
		return nil, driver.ErrBadConn
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.inside = true
	return c, nil
}

// Commit implements [driver.Tx].
func (c *manualConn) Commit() error { return c.end("COMMIT") }

// Rollback implements [driver.Tx].
func (c *manualConn) Rollback() error { return c.end("ROLLBACK") }

// end has the pool drop a connection that did not end its transaction: the next one would
// be a part of it.
func (c *manualConn) end(statement string) error {
	c.inside = false
	_, err := c.mysqlConn.ExecContext(context.Background(), statement, nil)
	c.doubt = err != nil
	return err
}

// IsValid implements [driver.Validator].
func (c *manualConn) IsValid() bool { return !c.inside && !c.doubt && c.mysqlConn.IsValid() }

// check looks at a text without its values.
func (c *manualConn) check(query string) error {
	switch {
	case !c.inside:
		return errOutside
	case strings.Contains(query, ";"):
		return errJoined
	}
	return nil
}

// ExecContext implements [driver.ExecerContext].
func (c *manualConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	affected := c.affected
	c.affected = nil
	if err := c.check(query); err != nil && (err != errJoined || affected == nil) {
		return nil, err
	}
	result, err := c.mysqlConn.ExecContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	each := result.(mysql.Result).AllRowsAffected()
	switch {
	case affected != nil:
		*affected = each
	case len(each) > 1:
		return nil, errSeveral
	}
	return result, nil
}

// CheckNamedValue implements [driver.NamedValueChecker].
func (c *manualConn) CheckNamedValue(v *driver.NamedValue) error {
	if affected, ok := v.Value.(*sqldb.Affected); ok {
		c.affected = affected
		return driver.ErrRemoveArgument
	}
	return c.mysqlConn.CheckNamedValue(v)
}

// QueryContext implements [driver.QueryerContext].
func (c *manualConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.check(query); err != nil {
		return nil, err
	}
	return c.mysqlConn.QueryContext(ctx, query, args)
}

// PrepareContext implements [driver.ConnPrepareContext].
func (c *manualConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.check(query); err != nil {
		return nil, err
	}
	return c.mysqlConn.PrepareContext(ctx, query)
}

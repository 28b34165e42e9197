package dbfault

import (
	"context"
	"database/sql/driver"
)

// Through returns a connector that opens dsn with a database/sql driver and hands every
// statement, and every COMMIT under the text "COMMIT", to run. What run returns is what the
// caller sees: call carries the statement out, and run may fail before, after or instead.
func Through(d driver.Driver, dsn string, run func(statement string, call func() error) error) driver.Connector {
	return &throughConnector{driver: d, dsn: dsn, run: run}
}

type throughConnector struct {
	driver driver.Driver
	dsn    string
	run    func(statement string, call func() error) error
}

func (c *throughConnector) Connect(context.Context) (driver.Conn, error) {
	inner, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &throughConn{Conn: inner, c: c}, nil
}

func (c *throughConnector) Driver() driver.Driver { return c.driver }

type throughConn struct {
	driver.Conn
	c *throughConnector
}

func (c *throughConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (res driver.Result, err error) {
	err = c.c.run(query, func() error {
		res, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return res, err
}

func (c *throughConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.c.run(query, func() error {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	if err != nil && rows != nil {
		rows.Close()
		rows = nil
	}
	return rows, err
}

func (c *throughConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &throughTx{Tx: tx, c: c.c}, nil
}

// CheckNamedValue leaves it to the driver what it binds.
func (c *throughConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// ResetSession and IsValid let the pool drop a connection that the driver gives up.
func (c *throughConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *throughConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

type throughTx struct {
	driver.Tx
	c *throughConnector
}

func (x *throughTx) Commit() error { return x.c.run("COMMIT", x.Tx.Commit) }

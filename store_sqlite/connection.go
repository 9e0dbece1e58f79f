//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/mattn/go-sqlite3"
)

// query is one statement. Statements are told apart by address, so each is a
// variable of its package.
type query struct {
	sql string
	// apart says that it looks at neither events nor deliveries, so it may run
	// while some of these are still to be inserted.
	apart bool
}

// row is one row of a result. It is only valid until the next.
type row = []driver.Value

// runner runs statements inside one transaction.
type runner interface {
	// run runs a statement to its end and calls each, unless nil, for every
	// row. Its errors are the database's.
	run(q *query, each func(row), args ...driver.Value) error
}

// connection is the store's connection to write with. It is used by one
// goroutine at a time and goes to the driver directly: the hand-over in
// database/sql costs more than most statements.
type connection struct {
	conn     *sqlite3.SQLiteConn
	prepared map[*query]*prepared
	release  func() // gives the connection back, or closes it
}

type prepared struct {
	stmt *sqlite3.SQLiteStmt
	args []driver.NamedValue
	row  row
}

func newConnection(conn *sqlite3.SQLiteConn, release func()) *connection {
	return &connection{conn: conn, prepared: map[*query]*prepared{}, release: release}
}

func (c *connection) close() {
	for _, p := range c.prepared {
		_ = p.stmt.Close()
	}
	c.release()
}

func (c *connection) prepare(q *query) (*prepared, error) {
	stmt, err := c.conn.Prepare(q.sql)
	if err != nil {
		return nil, err
	}
	s, ok := stmt.(*sqlite3.SQLiteStmt)
	if !ok {
		return nil, fmt.Errorf("the driver prepared a %T", stmt)
	}
	p := &prepared{stmt: s, args: make([]driver.NamedValue, s.NumInput())}
	for i := range p.args {
		p.args[i].Ordinal = i + 1
	}
	c.prepared[q] = p
	return p, nil
}

// forever is the context of the driver's statements. For one that can end the
// driver starts a goroutine each time, and to interrupt a statement would roll
// the whole transaction back.
var forever = context.Background()

// run implements runner. Every statement goes through the driver's Query, which
// binds and steps in one crossing to C.
func (c *connection) run(q *query, each func(row), args ...driver.Value) (err error) {
	p := c.prepared[q]
	if p == nil {
		if p, err = c.prepare(q); err != nil {
			return err
		}
	}
	if len(args) != len(p.args) {
		return fmt.Errorf("%d arguments for %d parameters of %q", len(args), len(p.args), q.sql)
	}
	for i, v := range args {
		p.args[i].Value = v
	}
	rows, err := p.stmt.QueryContext(forever, p.args)
	for i := range p.args {
		p.args[i].Value = nil
	}
	if err != nil {
		return err
	}
	// The error of Close is that of the last step, which Next returned.
	defer func() { _ = rows.Close() }()
	if p.row == nil {
		p.row = make(row, len(rows.Columns()))
	}
	for {
		if err := rows.Next(p.row); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if each != nil {
			each(p.row)
		}
	}
}

// pragma runs a PRAGMA and returns the first value it gives.
func pragma(c *sqlite3.SQLiteConn, statement string) (driver.Value, error) {
	var v driver.Value
	err := once(c, statement, func(r row) {
		if v == nil {
			v = r[0]
		}
	})
	return v, err
}

// execute runs statements without arguments.
func execute(c *sqlite3.SQLiteConn, statements string) error {
	_, err := c.Exec(statements, nil)
	return classify(err)
}

// once runs a statement that is not worth keeping prepared.
func once(c *sqlite3.SQLiteConn, statement string, each func(row), args ...driver.Value) error {
	brief := newConnection(c, func() {})
	defer brief.close()
	return classify(brief.run(&query{sql: statement}, each, args...))
}

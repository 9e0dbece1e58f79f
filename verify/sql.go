package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Placeholder is how a database's driver marks the arguments of a statement.
type Placeholder byte

// The placeholder styles.
const (
	Question Placeholder = '?' // ?, ?, ?: SQLite
	Dollar   Placeholder = '$' // $1, $2, $3: PostgreSQL
)

// DefaultTable is the table of a SQL that is given no other.
const DefaultTable = "webhook_seen"

// SQL is a [Seen] in a table, shared by all processes that use it. It speaks
// the SQL that SQLite (3.24 and later) and PostgreSQL have in common. The table
// is the receiver's: [SQL.Schema] says how to make it.
type SQL struct {
	db                                       Conn
	create, index, insert, who, set, del, gc string
}

// Conn is what SQL needs of a *sql.DB, *sql.Conn or *sql.Tx.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Table names go into the statements as they are, so they can be nothing but
// names. The longest leaves room for "_expires" in PostgreSQL's 63 bytes.
var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,54}$`)

// NewSQL uses that table of db; "" is [DefaultTable]. It does not touch the
// database yet.
func NewSQL(db Conn, style Placeholder, table string) (*SQL, error) {
	if db == nil {
		return nil, errors.New("verify: no database")
	}
	if style != Question && style != Dollar {
		return nil, errors.New("verify: the placeholder style is neither Question nor Dollar")
	}
	if table == "" {
		table = DefaultTable
	}
	if !tableName.MatchString(table) {
		return nil, errors.New("verify: a table name has 1 to 55 letters, digits and _, and begins with no digit")
	}
	// Every ? below becomes the style's, every @ the table.
	text := func(query string) string {
		var b strings.Builder
		n := 0
		for _, c := range query {
			switch {
			case c == '?' && style == Dollar:
				n++
				b.WriteString("$" + strconv.Itoa(n))
			case c == '@':
				b.WriteString(table)
			default:
				b.WriteRune(c)
			}
		}
		return b.String()
	}
	const upsert = `INSERT INTO @ (id, holder, expires_at) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at`
	return &SQL{
		db: db,
		create: text(`CREATE TABLE IF NOT EXISTS @ (
	id         TEXT   NOT NULL PRIMARY KEY,
	holder     TEXT   NOT NULL,
	expires_at BIGINT NOT NULL
)`),
		index:  text(`CREATE INDEX IF NOT EXISTS @_expires ON @ (expires_at)`),
		insert: text(upsert + ` WHERE @.expires_at <= ? OR @.holder = excluded.holder`),
		who:    text(`SELECT holder FROM @ WHERE id = ?`),
		set:    text(upsert),
		del:    text(`DELETE FROM @ WHERE id = ? AND holder = ?`),
		gc:     text(`DELETE FROM @ WHERE id IN (SELECT id FROM @ WHERE expires_at <= ? LIMIT 1000) AND expires_at <= ?`),
	}, nil
}

// Schema returns the statements that make the table, for the receiver's own
// migrations. They do nothing where it exists.
func (s *SQL) Schema() []string { return []string{s.create, s.index} }

// Create runs the Schema.
func (s *SQL) Create(ctx context.Context) error {
	for _, statement := range s.Schema() {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	return nil
}

// In returns the same set as seen and changed within a transaction: what it
// remembers is remembered if that commits. See [Once.First].
func (s *SQL) In(tx Conn) *SQL {
	bound := *s
	bound.db = tx
	return &bound
}

// Hold is [Seen.Hold]. Inside a transaction, PostgreSQL has it wait for another
// transaction that holds the key, and SQLite for any other that writes.
func (s *SQL) Hold(ctx context.Context, key, holder string, d time.Duration) (string, error) {
	now := time.Now()
	res, err := s.db.ExecContext(ctx, s.insert, key, holder, now.Add(d).UnixMilli(), now.UnixMilli())
	if err != nil {
		return "", fmt.Errorf("verify: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return holder, err
	}
	var current string
	err = s.db.QueryRowContext(ctx, s.who, key).Scan(&current)
	if err != nil && !errors.Is(err, sql.ErrNoRows) { // no row: freed a moment ago
		return "", fmt.Errorf("verify: %w", err)
	}
	return current, nil
}

// Set is [Seen.Set].
func (s *SQL) Set(ctx context.Context, key, holder string, d time.Duration) error {
	if _, err := s.db.ExecContext(ctx, s.set, key, holder, time.Now().Add(d).UnixMilli()); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// Free is [Seen.Free].
func (s *SQL) Free(ctx context.Context, key, holder string) error {
	if _, err := s.db.ExecContext(ctx, s.del, key, holder); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// Prune deletes rows whose time is over, a thousand a statement, and returns
// how many. Nothing else does: call it now and then, say once an hour.
func (s *SQL) Prune(ctx context.Context) (int64, error) {
	var total int64
	for {
		now := time.Now().UnixMilli()
		res, err := s.db.ExecContext(ctx, s.gc, now, now)
		if err != nil {
			return total, fmt.Errorf("verify: %w", err)
		}
		n, err := res.RowsAffected()
		if err != nil || n == 0 {
			return total, err
		}
		total += n
	}
}

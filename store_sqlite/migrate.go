//go:build cgo

package sqlitestore

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mattn/go-sqlite3"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one step of the schema. Steps are never changed once released.
type migration struct {
	version int
	name    string
	sql     string
}

// tables are all that migrations make.
var tables = []string{
	"webhook_attempts", "webhook_counter", "webhook_deliveries", "webhook_endpoints", "webhook_events",
	"webhook_idempotency", "webhook_lanes", "webhook_subscriptions",
}

// migrations returns the steps in order. Their files are named 0001_name.sql.
func migrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var list []migration
	for i, file := range names {
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
		if version, err := strconv.Atoi(number); err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s is not number %d", file, i+1)
		}
		text, err := migrationFiles.ReadFile(file)
		if err != nil {
			return nil, err
		}
		list = append(list, migration{i + 1, name, string(text)})
	}
	return list, nil
}

// schemaVersion returns how many migrations the database has had. It changes
// nothing. A schema that is not a beginning of ours is ErrSchema.
func schemaVersion(c *sqlite3.SQLiteConn) (int, error) {
	known, err := migrations()
	if err != nil {
		return 0, err
	}
	var found []string
	recorded := false
	err = once(c, `SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view')`, func(r row) {
		switch name := text(r[0]); {
		case name == "webhook_migrations":
			recorded = true
		case slices.Contains(tables, name):
			found = append(found, name)
		}
	})
	if err != nil {
		return 0, err
	}
	if !recorded {
		if len(found) > 0 {
			return 0, fmt.Errorf("%w: there is %s but no webhook_migrations", ErrSchema, found[0])
		}
		return 0, nil
	}
	var applied []migration
	err = once(c, `SELECT version, name FROM main.webhook_migrations ORDER BY version`, func(r row) {
		applied = append(applied, migration{version: int(integer(r[0])), name: text(r[1])})
	})
	if code(err) == sqlite3.ErrError {
		return 0, fmt.Errorf("%w: webhook_migrations: %w", ErrSchema, err)
	}
	if err != nil {
		return 0, err
	}
	for i, m := range applied {
		if i >= len(known) {
			return 0, fmt.Errorf("%w: it is at version %d, and the newest known is %d", ErrSchema, m.version, len(known))
		}
		if m.version != known[i].version || m.name != known[i].name {
			return 0, fmt.Errorf("%w: migration %d is %q, not %q", ErrSchema, m.version, m.name, known[i].name)
		}
	}
	if len(applied) == len(known) && len(found) != len(tables) {
		return 0, fmt.Errorf("%w: of the %d tables there are %d", ErrSchema, len(tables), len(found))
	}
	return len(applied), nil
}

// migrate brings the schema up to date and sets where delivery ids start. It
// takes the write lock only if there is something to do.
func migrate(c *sqlite3.SQLiteConn, firstDeliveryID int64) error {
	known, err := migrations()
	if err != nil {
		return err
	}
	if done, err := upToDate(c, known, firstDeliveryID); done || err != nil {
		return err
	}
	if err := execute(c, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = migrateLocked(c, known, firstDeliveryID)
	if err == nil {
		err = execute(c, "COMMIT")
	}
	if err != nil && !c.AutoCommit() {
		err = errors.Join(err, execute(c, "ROLLBACK"))
	}
	return err
}

func upToDate(c *sqlite3.SQLiteConn, known []migration, firstDeliveryID int64) (bool, error) {
	version, err := schemaVersion(c)
	if err != nil || version < len(known) {
		return false, err
	}
	var last int64
	err = once(c, `SELECT delivery FROM main.webhook_counter WHERE id = 1`, func(r row) { last = integer(r[0]) })
	return last >= firstDeliveryID-1, err
}

func migrateLocked(c *sqlite3.SQLiteConn, known []migration, firstDeliveryID int64) error {
	version, err := schemaVersion(c)
	if err != nil {
		return err
	}
	if version == 0 {
		err := execute(c, `CREATE TABLE IF NOT EXISTS webhook_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL)`)
		if err != nil {
			return err
		}
	}
	for _, m := range known[version:] {
		if err := execute(c, m.sql); err != nil {
			return err
		}
		err := once(c, `INSERT INTO webhook_migrations (version, name) VALUES (?, ?)`, nil, int64(m.version), m.name)
		if err != nil {
			return err
		}
	}
	return once(c, `UPDATE webhook_counter SET delivery = max(delivery, ?) WHERE id = 1`, nil, firstDeliveryID-1)
}

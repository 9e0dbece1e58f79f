//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jmoiron/sqlx"

	"github.com/elido-app/webhook/store"
)

// limit returns a LIMIT, where not positive means none.
func limit(n int) int64 {
	if n <= 0 {
		return -1
	}
	return int64(n)
}

// read runs one SELECT, which sees the database as of one moment. It calls
// again before each try and each for every row.
func (s *Store) read(ctx context.Context, what, statement string, again func(), each func(row), args ...any) error {
	return s.reading(ctx, what, func(db *sqlx.DB) error {
		again()
		rows, err := db.QueryxContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			values, err := rows.SliceScan()
			if err != nil {
				return err
			}
			r := make(row, len(values))
			for i, v := range values {
				r[i] = v
			}
			each(r)
		}
		return rows.Err()
	})
}

// reading calls f, again for as long as somebody holds a lock it needs, and
// sorts out its errors. sql.ErrNoRows is returned as it is.
func (s *Store) reading(ctx context.Context, what string, f func(*sqlx.DB) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.checkOpen(); err != nil {
		return err
	}
	err := untilFree(ctx, func() error {
		err := f(s.readers)
		if err == nil || errors.Is(err, sql.ErrNoRows) || ctx.Err() != nil {
			return err
		}
		return classify(err)
	})
	switch {
	case err == nil, errors.Is(err, sql.ErrNoRows):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case s.isClosed():
		return store.ErrClosed
	}
	return describe(what, err)
}

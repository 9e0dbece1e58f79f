package postgresstore

import (
	"context"
	"time"
)

const selectNow = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// Now returns the time of the server's clock, to the microsecond. It implements
// store.Clock: the Dispatcher compares its own clock with it. Nothing that is
// stored comes from it.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.read(ctx, "clock", func(tx *transaction) error {
		var us int64
		tx.queue(selectNow).Query(each(func() error { return nil }, &us))
		err := tx.send()
		now = time.UnixMicro(us).UTC()
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	return now, nil
}

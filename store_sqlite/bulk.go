//go:build cgo

package sqlitestore

import (
	"database/sql/driver"
	"encoding/json"
	"strconv"
	"strings"
)

// To begin a statement costs as much as to change a row or two: SQLite opens the
// table and each of its indexes, the driver binds. So where rows come in numbers
// one statement takes many: for inserts a list of rows, for changes that are all
// alike a JSON array of ids.

// bulkSizes are how many rows one INSERT takes, the largest first.
var bulkSizes = [...]int{128, 32, 8, 1}

// bulk is an INSERT that takes many rows.
type bulk struct {
	queries [len(bulkSizes)]*query
	columns int
}

// newBulk makes a bulk of a statement up to VALUES.
func newBulk(insert string, columns int) *bulk {
	b := &bulk{columns: columns}
	row := "(" + strings.Repeat("?, ", columns-1) + "?)"
	for i, n := range bulkSizes {
		b.queries[i] = &query{sql: insert + " VALUES " + strings.Repeat(row+", ", n-1) + row, apart: true}
	}
	return b
}

// inserter gathers the rows of a bulk.
type inserter struct {
	tx   *transaction
	bulk *bulk
	args []driver.Value
}

// add inserts a row, now or by the next flush.
func (in *inserter) add(row ...driver.Value) error {
	in.tx.writes++
	in.args = append(in.args, row...)
	if len(in.args) < bulkSizes[0]*in.bulk.columns {
		return nil
	}
	return in.flush()
}

// flush inserts what add has not.
func (in *inserter) flush() error {
	args := in.args
	for i, size := range bulkSizes {
		for n := size * in.bulk.columns; len(args) >= n; args = args[n:] {
			if err := in.tx.run(in.bulk.queries[i], nil, args[:n]...); err != nil {
				return err
			}
		}
	}
	clear(in.args)
	in.args = in.args[:0]
	return nil
}

// idList is a JSON array of ids.
type idList []byte

func (l idList) add(id int64) idList {
	if len(l) == 0 {
		l = append(l, '[')
	} else {
		l = append(l, ',')
	}
	return strconv.AppendInt(l, id, 10)
}

func (l idList) value() driver.Value { return string(l) + "]" }

// headerDocument returns headers as a JSON object, as document does. It runs for
// every attempt.
func headerDocument(headers map[string]string) driver.Value {
	if headers == nil {
		return nil
	}
	b := make([]byte, 0, 512)
	b = append(b, '{')
	for name, value := range headers {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendText(b, name)
		b = append(b, ':')
		b = appendText(b, value)
	}
	return string(append(b, '}'))
}

// appendText appends s as a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			quoted, _ := json.Marshal(s) // a string always can be
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

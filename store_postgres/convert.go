package postgresstore

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// moment returns an instant as it is stored, NULL for the zero Time.
func moment(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// instant returns what moment stored.
func instant(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return at(*ms)
}

// at returns an instant that is never left out.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// whole returns an instant as a store keeps it.
func whole(t time.Time) time.Time { return instant(moment(t)) }

// document returns a map or list as JSON, NULL for nil. Only maps with string
// keys and strings get here, which always can be encoded.
func document[T map[string]string | []string](v T) []byte {
	if v == nil {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// parse reads what document wrote.
func parse[T map[string]string | []string](b []byte) (T, error) {
	var out T
	if b == nil {
		return out, nil
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, &fault{ErrCorrupt, err}
	}
	return out, nil
}

// array returns numbers as the text of a PostgreSQL array, for a parameter that
// holds several of them: unnest would make one list of a list of lists.
func array(list []int64) string {
	b := make([]byte, 0, 2+20*len(list))
	b = append(b, '{')
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, '}'))
}

// bound returns a LIMIT, where not positive means none.
func bound(n int) *int64 {
	if n <= 0 {
		return nil
	}
	b := int64(n)
	return &b
}

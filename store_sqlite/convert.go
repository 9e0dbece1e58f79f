//go:build cgo

package sqlitestore

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"time"
)

// integer returns an INTEGER column, zero for NULL.
func integer(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

// text returns a TEXT column, empty for NULL.
func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

// orNull returns a text as it is stored where it may be left out.
func orNull(s string) driver.Value {
	if s == "" {
		return nil
	}
	return s
}

// blob returns a BLOB column, nil for NULL.
func blob(v driver.Value) []byte {
	b, _ := v.([]byte)
	return b
}

// real returns a REAL column, zero for NULL.
func real(v driver.Value) float64 {
	f, _ := v.(float64)
	return f
}

// flag returns an INTEGER column that holds a truth value.
func flag(v driver.Value) bool { return integer(v) != 0 }

// moment returns an instant as it is stored, NULL for the zero Time.
func moment(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// instant returns what moment stored.
func instant(v driver.Value) time.Time {
	ms, ok := v.(int64)
	if !ok {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// whole returns an instant as a store keeps it.
func whole(t time.Time) time.Time { return instant(moment(t)) }

// at returns an instant that is never left out.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// number returns a truth value as it is stored.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// document returns a map or list as JSON text, NULL for nil. Only maps with
// string keys, strings and numbers get here, which always can be encoded.
func document[T map[string]string | []string | []int64](v T) driver.Value {
	if v == nil {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// parse reads what document wrote.
func parse[T map[string]string | []string | []int64](v driver.Value) (T, error) {
	var out T
	s, ok := v.(string)
	if !ok {
		return out, nil
	}
	err := json.Unmarshal([]byte(s), &out)
	return out, err
}

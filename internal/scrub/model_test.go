package scrub_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// secretNames are those of secrets, for strings.EqualFold.
var secretNames = []string{"password_hash", "token", "s"}

// model does what scrub.Object does by way of encoding/json: it returns valid
// JSON without white space and without secret members, everything else as it
// is spelled.
func model(t *testing.T, value []byte) string {
	value = bytes.Trim(value, " \t\r\n")
	dec := json.NewDecoder(bytes.NewReader(value))
	switch value[0] {
	case '{':
		var members []string
		next(t, dec)
		for dec.More() {
			from := dec.InputOffset()
			name := next(t, dec).(string)
			spelled := bytes.Trim(value[from:dec.InputOffset()], " \t\r\n,")
			var raw json.RawMessage
			require.NoError(t, dec.Decode(&raw))
			if !secretName(name) {
				members = append(members, string(spelled)+":"+model(t, raw))
			}
		}
		return "{" + strings.Join(members, ",") + "}"
	case '[':
		var elements []string
		next(t, dec)
		for dec.More() {
			var raw json.RawMessage
			require.NoError(t, dec.Decode(&raw))
			elements = append(elements, model(t, raw))
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
	return string(value)
}

func next(t *testing.T, dec *json.Decoder) json.Token {
	token, err := dec.Token()
	require.NoError(t, err)
	return token
}

func secretName(name string) bool {
	for _, secret := range secretNames {
		if strings.EqualFold(name, secret) {
			return true
		}
	}
	return false
}

func compact(t *testing.T, data []byte) string {
	var buf bytes.Buffer
	require.NoError(t, json.Compact(&buf, data))
	return buf.String()
}

// depth returns how deeply valid JSON nests.
func depth(t *testing.T, data []byte) int {
	dec := json.NewDecoder(bytes.NewReader(data))
	deepest, at := 0, 0
	for {
		token, err := dec.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			at++
			deepest = max(deepest, at)
		case json.Delim('}'), json.Delim(']'):
			at--
		}
	}
}

// subsequence reports whether data has all of part, in order.
func subsequence(part, data []byte) bool {
	for _, c := range data {
		if len(part) > 0 && part[0] == c {
			part = part[1:]
		}
	}
	return len(part) == 0
}

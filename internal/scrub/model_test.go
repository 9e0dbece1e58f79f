package scrub_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// secretNames are those of secrets, for strings.EqualFold.
var secretNames = []string{"password_hash", "token", "s"}

// model does what scrub.Object does by way of encoding/json: it returns valid
// JSON without white space and without members of these names, everything else
// as it is spelled.
func model(t *testing.T, value []byte, names []string) string {
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
			if !secretName(name, names) {
				members = append(members, string(spelled)+":"+model(t, raw, names))
			}
		}
		return "{" + strings.Join(members, ",") + "}"
	case '[':
		var elements []string
		next(t, dec)
		for dec.More() {
			var raw json.RawMessage
			require.NoError(t, dec.Decode(&raw))
			elements = append(elements, model(t, raw, names))
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

func secretName(name string, names []string) bool {
	return slices.ContainsFunc(names, func(secret string) bool { return strings.EqualFold(name, secret) })
}

// requireNone looks for secret members in what encoding/json decoded.
func requireNone(t *testing.T, decoded any, names []string) {
	switch v := decoded.(type) {
	case map[string]any:
		for name, member := range v {
			require.False(t, secretName(name, names), "%q is left", name)
			requireNone(t, member, names)
		}
	case []any:
		for _, element := range v {
			requireNone(t, element, names)
		}
	}
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

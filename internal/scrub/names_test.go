package scrub

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNamesZero(t *testing.T) {
	for _, names := range []Names{{}, NewNames()} {
		require.False(t, names.has(nil, true))
		out, err := Object([]byte(`{"":1}`), names)
		require.NoError(t, err)
		require.Equal(t, `{"":1}`, string(out))
	}
}

func TestNamesAtTheEdges(t *testing.T) {
	long := strings.Repeat("k", 63)
	names := NewNames("", long, "\U00010400", "\ufffd")
	for _, name := range []string{"", strings.ToUpper(long), strings.Repeat("\u212a", 63), "\U00010428", "\ufffd"} {
		require.True(t, hasSpelled(names, name, false), name)
	}
	require.True(t, names.has([]byte(`\ud801\udc28`), false), "a surrogate pair")
	require.True(t, names.has([]byte(`\ud801`), false), "a lone surrogate is U+FFFD")
	require.False(t, names.has([]byte(`\ud801\ud801\udc28`), false), "one more than a pair")
	require.False(t, hasSpelled(names, long+"k", false))
	require.False(t, hasSpelled(names, long[1:], false))
}

// Whatever the spelling, a name is in the set exactly if strings.EqualFold
// finds it.
func TestNamesFoldLikeStrings(t *testing.T) {
	letters := rapid.SampledFrom([]rune("aAkK\u212asS\u017f\u03c3\u03c2\u03a3\u01c5\u01c6\u1e9e\u00df\u0130i\u0131I_\n\"\\\U00010400\U00010428"))
	text := rapid.StringOfN(letters, 0, 5, -1)
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SliceOfN(text, 0, 3).Draw(t, "set")
		name := text.Draw(t, "name")
		want := false
		for _, s := range set {
			want = want || strings.EqualFold(s, name)
		}
		require.Equal(t, want, hasSpelled(NewNames(set...), name, rapid.Bool().Draw(t, "escaped")))
	})
}

// hasSpelled asks for a name as JSON spells it.
func hasSpelled(names Names, name string, escaped bool) bool {
	spelled, err := json.Marshal(name)
	if err != nil {
		return false
	}
	inner := spelled[1 : len(spelled)-1]
	if escaped {
		inner = escapeAll(name)
	}
	s := scanner{data: append(append([]byte{}, inner...), '"')}
	end, plain, err := s.text(0)
	return err == nil && end == len(s.data) && names.has(inner, plain)
}

// escapeAll spells every character as \u escapes.
func escapeAll(name string) []byte {
	var b []byte
	for _, unit := range utf16.Encode([]rune(name)) {
		b = fmt.Appendf(b, `\u%04x`, unit)
	}
	return b
}

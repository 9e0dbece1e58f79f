package dashboard

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain ünïcode 日本\n\ttext": "plain ünïcode 日本\n\ttext", "a\x00b\x1b[31m": `a\u{0}b\u{1B}[31m`, "\xff\xfe": "\ufffd",
		"evil\u202egpj.exe": `evil\u{202E}gpj.exe`, "a\u2066b\u2069\u200e": `a\u{2066}b\u{2069}\u{200E}`, "\u2028\u2029": `\u{2028}\u{2029}`, "\ufeffx": `\u{FEFF}x`,
		"\u0085\u009b": `\u{85}\u{9B}`, "\ufdd0\U0010ffff": `\u{FDD0}\u{10FFFF}`, "👩\u200d🚀": "👩\u200d🚀", "<b>&": "<b>&",
	} {
		require.Equal(t, want, printable([]byte(in)), "%q", in)
	}
}

func joined(list []token) string {
	var out strings.Builder
	for _, t := range list {
		out.WriteString(t.Text)
	}
	return out.String()
}

func TestDocument(t *testing.T) {
	require.Nil(t, document(nil))
	require.Equal(t, []token{
		{"", "{\n  "}, {"k", `"a"`}, {"", ": "}, {"n", "-1.50e+9"}, {"", ",\n  "}, {"k", `"b\"c"`}, {"", ": [\n    "}, {"l", "true"}, {"", ",\n    "}, {"l", "null"},
		{"", ",\n    "}, {"s", `"<i>:"`}, {"", "\n  ]\n}"},
	}, document([]byte(`{"a":-1.50e+9,"b\"c":[true,null,"<i>:"]}`)))
	require.Equal(t, []token{{"", "no json <b>"}}, document([]byte("no json <b>")))
	large := []byte(`{"a":"` + strings.Repeat("x", documentMost) + `"}`)
	require.Equal(t, []token{{"", string(large)}}, document(large))
	// Indentation would make gigabytes of this.
	deep := []byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
	require.True(t, json.Valid(deep))
	require.Equal(t, []token{{"", string(deep)}}, document(deep))
	require.Len(t, document([]byte(`{"a":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}`)), 5, "brackets in strings are no depth")
}

// FuzzDocument: whatever it is, nothing of it is lost, and nothing invisible left.
func FuzzDocument(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x"]}`, `"\`, "{", "\xff", `{"a":"\u202e"}`, "[\"\u202e\"]", "nul", `-`, `{"":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		text := joined(document(b))
		require.True(t, utf8.ValidString(text))
		require.False(t, strings.ContainsFunc(text, invisible))
		if json.Valid(b) && text != printable(b) {
			var indented bytes.Buffer
			require.NoError(t, json.Indent(&indented, b, "", "  "))
			require.Equal(t, printable(indented.Bytes()), text)
		}
	})
}

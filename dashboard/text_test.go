package dashboard

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

// TestDocumentLosesNothing: whatever it is, nothing of it is lost, and nothing
// invisible left.
func TestDocumentLosesNothing(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune("ab\"\\{}[]:,-+.eE019 \n\t<>&\u202e\x00äß日")))
	value := anyJSON(text)
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(text.Draw(t, "text"))
		if rapid.Bool().Draw(t, "JSON") {
			b, _ = json.Marshal(value.Draw(t, "value"))
		}
		if cut := rapid.IntRange(0, 2).Draw(t, "cut"); cut < len(b) {
			b = b[:len(b)-cut]
		}
		shown := joined(document(b))
		require.True(t, utf8.ValidString(shown))
		require.False(t, strings.ContainsFunc(shown, invisible))
		want := b
		var indented bytes.Buffer
		if json.Indent(&indented, b, "", "  ") == nil && len(b) > 0 {
			want = indented.Bytes()
		}
		require.Equal(t, printable(want), shown)
	})
}

func anyJSON(text *rapid.Generator[string]) *rapid.Generator[any] {
	value := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(text) })
	return rapid.OneOf(
		text.AsAny(), rapid.Float64Range(-1e9, 1e9).AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
		rapid.SliceOfN(value, 0, 3).AsAny(), rapid.MapOfN(text, value, 0, 3).AsAny(),
	)
}

package scrub_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/scrub"
)

var secrets = scrub.NewNames("password_hash", "token", "s")

func TestObjectRemovesMembers(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"every spelling and level",
			`{"id":12345678901234567890,"Password_Hash":"a","pass\u0077ord_hash":"b","nested":[{"password_hash":"c"}],"x":1.0,"y":49.50,"dup":1,"dup":2,"html":"<&>"}`,
			`{"id":12345678901234567890,"nested":[{}],"x":1.0,"y":49.50,"dup":1,"dup":2,"html":"<&>"}`},
		{"only", `{"s":1}`, `{}`},
		{"only, white space", " {\t\"s\" : 1\r\n} ", " {\t\r\n} "},
		{"first", `{"s":1,"a":2}`, `{"a":2}`},
		{"first, white space", `{ "s" : 1 , "a" : 2 }`, `{ "a" : 2 }`},
		{"middle", `{"a":1,"s":2,"b":3}`, `{"a":1,"b":3}`},
		{"middle, white space after commas", `{"a":1, "s":2, "b":3}`, `{"a":1, "b":3}`},
		{"middle, white space everywhere", `{ "a" : 1 , "s" : 2 , "b" : 3 }`, `{ "a" : 1  , "b" : 3 }`},
		{"last", `{"a":1,"s":2}`, `{"a":1}`},
		{"last, white space", `{ "a": 1, "s": 2 }`, `{ "a": 1 }`},
		{"adjacent, first", `{"s":1,"token":2,"a":3}`, `{"a":3}`},
		{"adjacent, middle", `{"a":1,"s":2,"token":3,"b":4}`, `{"a":1,"b":4}`},
		{"adjacent, last", `{"a":1,"s":2,"token":3}`, `{"a":1}`},
		{"all", `{"s":1,"token":2,"s":3}`, `{}`},
		{"all, white space", `{ "s": 1, "token": 2 }`, `{  }`},
		{"first and last", `{"s":1,"a":2,"s":3}`, `{"a":2}`},
		{"alternating", `{"s":0,"a":1,"s":2,"b":3,"s":4}`, `{"a":1,"b":3}`},
		{"indented", "{\n  \"s\": 1,\n  \"a\": 2,\n  \"s\": 3,\n  \"b\": 4,\n  \"s\": 5\n}", "{\n  \"a\": 2,\n  \"b\": 4\n}"},
		{"repeated", `{"token":1,"a":2,"token":3}`, `{"a":2}`},
		{"nested", `{"a":{"b":{"s":1,"c":2},"s":3},"d":4}`, `{"a":{"b":{"c":2}},"d":4}`},
		{"in arrays", `{"a":[{"s":1},[{"s":2,"b":3}],"s",4]}`, `{"a":[{},[{"b":3}],"s",4]}`},
		{"first, beside an object that keeps its first", `{"a":[{"b":1},{"s":2,"c":3},{"d":4,"s":5}]}`, `{"a":[{"b":1},{"c":3},{"d":4}]}`},
		{"after a nested object", `{"a":{"b":1},"s":2}`, `{"a":{"b":1}}`},
		{"first, before a nested object", `{"s":{"x":1},"a":{"s":2,"b":[]}}`, `{"a":{"b":[]}}`},
		{"secrets in a secret", `{"a":1,"s":{"s":1,"b":[{"s":2},{"token":3}],"s":4},"c":5}`, `{"a":1,"c":5}`},
		{"a secret that is an array", `{"s":[1,{"a":2},[]],"a":3}`, `{"a":3}`},
		{"a secret that is empty", `{"s":{},"token":[],"a":3}`, `{"a":3}`},
		{"quotes and braces in a secret", `{"s":"\"},{","a":"\"s\":1"}`, `{"a":"\"s\":1"}`},
		{"every kind of value", `{"s":null,"s":true,"s":false,"s":-1.5e+3,"s":"","a":0}`, `{"a":0}`},
		{"upper case", `{"TOKEN":1,"a":2}`, `{"a":2}`},
		{"upper-case escape digits", `{"\u0054OKEN":1,"\u006F":2}`, `{"\u006F":2}`},
		{"all escaped", `{"\u0074\u006f\u006b\u0065\u006e":1}`, `{}`},
		{"Kelvin sign", "{\"to\u212Aen\":1}", `{}`},
		{"Kelvin sign escaped", `{"to\u212aen":1}`, `{}`},
		{"long s", "{\"pa\u017F\u017Fword_ha\u017Fh\":1}", `{}`},
		{"long s escaped", `{"pa\u017f\u017Fword_ha\u017fh":1,"\u017F":2}`, `{}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := []byte(test.in)
			out, err := scrub.Object(in, secrets)
			require.NoError(t, err)
			require.Equal(t, test.want, string(out))
			require.Equal(t, test.in, string(in), "the input was changed")
			require.True(t, json.Valid(out))
		})
	}
}

func TestObjectKeepsTheRest(t *testing.T) {
	for _, in := range []string{
		`{}`,
		" \t\r\n{ } \n",
		`{"a":1,"a":1}`,
		`{"tokens":1,"toke":2,"_token":3,"":4,"passwordhash":5}`,
		`{"t\\u006fken":1,"to\/ken":2,"to\u0000ken":3,"token\n":4}`,
		`{"a":"token","b":["token"],"c":{"d":"password_hash"}}`,
		`{"n":[0,-0,1,-1,10,1.0,49.50,1e5,1E+5,1e-05,0.0e0,12345678901234567890,1e999]}`,
		`{"e":"\"\\\/\b\f\n\r\t\u0041\uABCD\uabcd\ud83d\ude00"}`,
		"{\"u\":\"\u00e9\u20ac\U0001F600\u2028\x7f\"}",
		`{"lone":"\ud800","\udc00":1,"\ud800\ud800\udc00":2,"\ud800A":3}`,
		`{"l":[true,false,null,[],{},""]}`,
		`{"long":"` + strings.Repeat("x", 10_000) + `","` + strings.Repeat("k", 10_000) + `":1}`,
		nested(scrub.MaxDepth),
	} {
		out, err := scrub.Object([]byte(in), secrets)
		require.NoError(t, err, in)
		require.Equal(t, in, string(out))
	}
}

func TestObjectReturnsItsInput(t *testing.T) {
	in := []byte(` {"a":[1,{"b":"c\n"}]} `)
	var out []byte
	var err error
	allocs := testing.AllocsPerRun(100, func() { out, err = scrub.Object(in, secrets) })
	require.NoError(t, err)
	require.Same(t, &in[0], &out[0])
	require.Len(t, out, len(in))
	require.Zero(t, allocs)
}

func TestObjectRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", "", "no object at byte 0"},
		{"white space", " \n", "no object at byte 2"},
		{"byte order mark", "\xef\xbb\xbf{}", "byte order mark at byte 0"},
		{"UTF-16", "\xff\xfe{\x00}\x00", "not an object at byte 0"},
		{"array", "[]", "not an object at byte 0"},
		{"string", ` "a"`, "not an object at byte 1"},
		{"number", "1", "not an object at byte 0"},
		{"null", "null", "not an object at byte 0"},
		{"form feed", "\f{}", "not an object at byte 0"},
		{"trailing object", "{} {}", "data after the object at byte 3"},
		{"trailing comma", "{},", "data after the object at byte 2"},
		{"trailing brace", "{}}", "data after the object at byte 2"},
		{"trailing NUL", "{}\x00", "data after the object at byte 2"},
		{"unclosed", "{", "unexpected end at byte 1"},
		{"unclosed after a value", `{"a":1`, "unexpected end at byte 6"},
		{"unclosed string", `{"a`, "unexpected end at byte 3"},
		{"unclosed array", `{"a":[1,`, "unexpected end at byte 8"},
		{"no colon", `{"a"}`, "expected a colon at byte 4"},
		{"no value", `{"a":}`, "expected a value at byte 5"},
		{"no name", `{1:2}`, "expected a member name at byte 1"},
		{"single quotes", `{'a':2}`, "expected a member name at byte 1"},
		{"comma at the end of an object", `{"a":1,}`, "expected a member name at byte 7"},
		{"comma at the end of an object, removed", `{"s":1,}`, "expected a member name at byte 7"},
		{"comma at the end of an array", `{"a":[1,]}`, "expected a value at byte 8"},
		{"comma alone", `{,}`, "expected a member name at byte 1"},
		{"two commas", `{"a":1,,"b":2}`, "expected a member name at byte 7"},
		{"two commas, removed", `{"s":1,,"b":2}`, "expected a member name at byte 7"},
		{"no comma", `{"a":1 "b":2}`, "expected a comma or the end of the object or array at byte 7"},
		{"no comma, removed", `{"s":1 "b":2}`, "expected a comma or the end of the object or array at byte 7"},
		{"wrong bracket", `{"a":[1}`, "expected a comma or the end of the object or array at byte 7"},
		{"wrong brace", `{"a":1]`, "expected a comma or the end of the object or array at byte 6"},
		{"NUL between", "{\"a\":1\x00}", "expected a comma or the end of the object or array at byte 6"},
		{"comment", `{/**/}`, "expected a member name at byte 1"},
		{"literal", `{"a":nul}`, "malformed literal at byte 8"},
		{"literal cut off", `{"a":tru`, "unexpected end at byte 8"},
		{"literal with more", `{"a":truer}`, "expected a comma or the end of the object or array at byte 9"},
		{"literal in upper case", `{"a":True}`, "expected a value at byte 5"},
		{"NaN", `{"a":NaN}`, "expected a value at byte 5"},
		{"leading zero", `{"a":01}`, "malformed number at byte 5"},
		{"leading zero, negative", `{"a":-00}`, "malformed number at byte 6"},
		{"plus sign", `{"a":+1}`, "expected a value at byte 5"},
		{"minus alone", `{"a":-}`, "malformed number at byte 6"},
		{"no digit before the point", `{"a":.5}`, "expected a value at byte 5"},
		{"no digit after the point", `{"a":1.}`, "malformed number at byte 7"},
		{"no exponent", `{"a":1e}`, "malformed number at byte 7"},
		{"no exponent after the sign", `{"a":1e+}`, "malformed number at byte 8"},
		{"number cut off", `{"a":1.`, "unexpected end at byte 7"},
		{"hexadecimal", `{"a":0x1}`, "expected a comma or the end of the object or array at byte 6"},
		{"unknown escape", `{"a":"\x"}`, "malformed escape at byte 7"},
		{"escaped quote mark", `{"a":"\'"}`, "malformed escape at byte 7"},
		{"short \\u", `{"a":"\u12"}`, "malformed escape at byte 10"},
		{"\\u without digits", `{"\uXYZW":1}`, "malformed escape at byte 4"},
		{"\\U", `{"a":"\U0041"}`, "malformed escape at byte 7"},
		{"escape cut off", `{"a":"\`, "unexpected end at byte 7"},
		{"\\u cut off", `{"a":"\u00`, "unexpected end at byte 10"},
		{"line feed in a string", "{\"a\":\"\n\"}", "unescaped control character in a string at byte 6"},
		{"NUL in a string", "{\"a\":\"12345678\x00\"}", "unescaped control character in a string at byte 14"},
		{"tab in a name", "{\"a\t\":1}", "unescaped control character in a string at byte 3"},
		{"stray continuation byte", "{\"a\":\"\x80\"}", "invalid UTF-8 at byte 6"},
		{"cut rune", "{\"a\":\"\xe2\x82\"}", "invalid UTF-8 at byte 6"},
		{"overlong", "{\"a\":\"\xc0\xaf\"}", "invalid UTF-8 at byte 6"},
		{"surrogate in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "invalid UTF-8 at byte 6"},
		{"beyond U+10FFFF", "{\"a\":\"\xf4\x90\x80\x80\"}", "invalid UTF-8 at byte 6"},
		{"invalid UTF-8 in a name", "{\"\xff\":1}", "invalid UTF-8 at byte 2"},
		{"invalid UTF-8 in a secret", "{\"s\":\"\xff\"}", "invalid UTF-8 at byte 6"},
		{"invalid UTF-8 outside strings", "{\xff}", "expected a member name at byte 1"},
		{"malformed secret", `{"s":[}`, "expected a value at byte 6"},
		{"too deep", nested(scrub.MaxDepth + 1), "nested too deeply at byte 1004"},
		{"10,000 brackets", `{"a":` + strings.Repeat("[", 10_000), "nested too deeply at byte 1004"},
		{"10,000 brackets in a secret", `{"s":` + strings.Repeat("[", 10_000), "nested too deeply at byte 1004"},
		{"10,000 brackets alone", strings.Repeat("[", 10_000), "not an object at byte 0"},
		{"10,000 braces", strings.Repeat(`{"a":`, 10_000), "nested too deeply at byte 5000"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := scrub.Object([]byte(test.in), secrets)
			require.EqualError(t, err, test.want)
			require.ErrorAs(t, err, new(*scrub.SyntaxError))
			require.Nil(t, out)
		})
	}
}

func TestValid(t *testing.T) {
	require.NoError(t, scrub.Valid([]byte(` {"token":1} `)))
	require.NoError(t, scrub.Valid([]byte(nested(scrub.MaxDepth+16))))
	require.EqualError(t, scrub.Valid([]byte(nested(scrub.MaxDepth+17))), "nested too deeply at byte 1020")
	require.EqualError(t, scrub.Valid([]byte(`[]`)), "not an object at byte 0")
}

// A broken byte at every place of a long string is found at that place,
// whatever its distance from the eight bytes looked at together.
func TestObjectFindsTheByte(t *testing.T) {
	const head = `{"a":"`
	for _, bad := range []byte{0, 1, 0x1f, 0x80, 0xff} {
		for at := range 40 {
			for _, fill := range []string{" ", "!", "#", "[", "]", "~", "\x7f"} {
				text := []byte(strings.Repeat(fill, 40))
				text[at] = bad
				_, err := scrub.Object([]byte(head+string(text)+`"}`), secrets)
				syntax := new(scrub.SyntaxError)
				require.ErrorAs(t, err, &syntax)
				require.Equal(t, len(head)+at, syntax.Offset)
			}
		}
	}
}

// nested returns an object with arrays in it, depth levels in all.
func nested(depth int) string {
	return `{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
}

// FuzzObject compares with two readings by way of encoding/json: one that says
// what is left, byte for byte, and one that looks for secrets in what a receiver
// decodes. The host names secrets of its own, too.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{"id":12345678901234567890,"Password_Hash":"a","pass\u0077ord_hash":"b","nested":[{"password_hash":"c"}],"x":1.0,"y":49.50,"dup":1,"dup":2,"html":"<&>"}`,
		`{ "s" : 1 , "a" : [ { "token" : { } } , 2 ] , "s" : "\ud800" }`,
		"{\"to\u212Aen\":\"\\\"\",\"\\u017f\":[[],{}],\"b\":-1.5e+3}",
		`{"a":{"s":{"s":1},"b":[true,false,null]}}`,
		`{"previous":{"tok\u0065n":1},"iban":"\"iban\":","\u0069BAN":{"a":[{"IBAN":0,"b":"iban"}]},"\ud83d\ude00":1,"":2}`,
		"\xef\xbb\xbf{}", "{\"a\":\"\xff\"}", `{"a":01}`, `[]`, ``, `{"a":1} {"s":2}`, strings.Repeat(`{"s":`, 1001), strings.Repeat("[", 10_000),
	} {
		for _, own := range []string{"iban", "", "\U0001f600", "\xff", "\"", strings.Repeat("k", 64)} {
			f.Add([]byte(seed), own)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, own string) {
		names := append([]string{own}, secretNames...)
		before := string(in)
		out, err := scrub.Object(in, scrub.NewNames(names...))
		require.Equal(t, before, string(in), "the input was changed")

		acceptable := json.Valid(in) && utf8.Valid(in) && strings.HasPrefix(strings.TrimLeft(before, " \t\r\n"), "{")
		if err != nil {
			syntax := new(scrub.SyntaxError)
			require.ErrorAs(t, err, &syntax)
			require.LessOrEqual(t, syntax.Offset, len(in))
			tooDeep := strings.HasPrefix(syntax.Rule, "nested too deeply")
			require.True(t, !acceptable || tooDeep && depth(t, in) > scrub.MaxDepth, "refused: %v", err)
			return
		}
		require.True(t, acceptable, "accepted")
		require.LessOrEqual(t, depth(t, in), scrub.MaxDepth)

		require.True(t, json.Valid(out), "%s", out)
		require.Equal(t, model(t, in, names), compact(t, out))
		require.True(t, subsequence(out, in), "%s", out)
		var decoded any
		require.NoError(t, json.Unmarshal(out, &decoded))
		requireNone(t, decoded, names)

		again, err := scrub.Object(out, scrub.NewNames(names...))
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

func BenchmarkObject(b *testing.B) {
	const link = `{"id":91834,"workspace_id":42,"domain_id":7,"slug":"spring-sale",` +
		`"destination_url":"https://shop.example.com/spring?ref=mail&lang=en","title":"Spring sale","tags":["spring","mail"],` +
		`"status":"active","abuse_status":"unchecked","expires_at":"2026-10-31T22:00:00Z","max_clicks":50000,` +
		`"redirect_status":302,"created_by_user_id":1187,"created_at":"2026-09-21T09:14:02.481375Z",` +
		`"updated_at":"2026-09-21T09:14:02.481375Z","targeting_rules":[{"country":"DE","destination_url":"https://shop.example.com/de"}]`
	for _, bench := range []struct{ name, data string }{
		{"kept", link + `}`},
		{"removed", link + `,"password_hash":"$argon2id$v=19$m=65536"}`},
		{"256KiB", `{"a":"` + strings.Repeat("x", 256<<10) + `"}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			data := []byte(bench.data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := scrub.Object(data, secrets); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("json.Valid", func(b *testing.B) {
		data := []byte(link + `}`)
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if !json.Valid(data) {
				b.Fatal("invalid")
			}
		}
	})
}

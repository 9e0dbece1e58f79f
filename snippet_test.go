package webhook

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCover(t *testing.T) {
	u, err := url.Parse("https://example.com/hooks/T0k3n%2Fa/catch-all?key=v4lue+x&plain=words&s%3dcret1")
	require.NoError(t, err)
	signature := "v1=" + strings.Repeat("0f", 32)
	c := confidences{}.addURL(u).addHeader(signature).addHeader("Bearer abc/def+ghi==").
		addHeader("Basic "+base64.StdEncoding.EncodeToString([]byte("user:hunter2"))).
		addHeader("t=1790000000,v1="+strings.Repeat("9a", 32)).add("whsec_AbC+/123=", "AbC+/123=", "short")
	for body, want := range map[string]string{
		"":   "",
		"ok": "ok",
		"Cannot POST /hooks/elsewhere, user short, words, catch-all, 1790000000":               "Cannot POST /hooks/elsewhere, user short, words, catch-all, 1790000000",
		"POST " + u.RequestURI() + " HTTP/1.1":                                                 "POST [redacted] HTTP/1.1",
		`{"url":"https:\/\/example.com` + strings.ReplaceAll(u.RequestURI(), "/", `\/`) + `"}`: `{"url":"https:\/\/example.com[redacted]"}`,
		"no T0k3n/a here, nor T0k3n%2fa or T0k3n%252Fa.":                                       "no [redacted] here, nor [redacted] or [redacted].",
		"args: v4lue+x, s=cret1":                                                               "args: [redacted], [redacted]",
		"got " + signature + ", wanted v1=aa":                                                  "got [redacted], wanted v1=aa",
		"got " + signature[3:] + "!":                                                           "got [redacted]!",
		"got v1&#x3D;" + signature[3:]:                                                         "got [redacted]",
		"got v1%3D" + signature[3:]:                                                            "got [redacted]",
		"auth abc/def+ghi, <b>abc&#x2F;def&#43;ghi&#61;&#61;</b>":                              "auth [redacted], <b>[redacted]&#61;&#61;</b>",
		`"abc\/def\u002bghi"`:                                                                  `"[redacted]"`,
		"login as user:hunter2 or hunter2":                                                     "login as [redacted] or [redacted]",
		"signed with whsec_AbC+/123=; AbC+/123":                                                "signed with [redacted]=; [redacted]",
		"T0k3n/aT0k3n/a":                                                                       "[redacted]",
		"\xff\x00\x1b[31mT0k3n/a\x1b[0m%\\&#;\xfe":                                             "\xff\x00\x1b[31m[redacted]\x1b[0m%\\&#;\xfe",
		"100% \\ & &amp; %2 \\u12 &#x; &nothing; %zz \\q &#300; \\u2028":                       "100% \\ & &amp; %2 \\u12 &#x; &nothing; %zz \\q &#300; \\u2028",
	} {
		for _, cut := range []bool{false, true} {
			got, nowCut := c.cover([]byte(body), cut)
			require.Equal(t, want, string(got))
			require.Equal(t, cut, nowCut)
		}
	}
	// What runs into the end of a cut answer.
	for body, want := range map[string]string{
		"got v1=0f0":         "got [redacted]",
		"got v1=0":           "got v1=0",
		"auth abc/def":       "auth [redacted]",
		`auth abc\/def\u00`:  "auth [redacted]",
		"auth abc&#x2F;def&": "auth [redacted]",
		"AbC+/1":             "[redacted]",
	} {
		got, cut := c.cover([]byte(body), true)
		require.Equal(t, want, string(got))
		require.True(t, cut)
		got, cut = c.cover([]byte(body), false)
		require.Equal(t, body, string(got), "the whole answer")
		require.False(t, cut)
	}
	// Covering does not make an answer longer than what is kept.
	got, cut := c.cover([]byte(strings.Repeat("hunter2 ", snippetMost/8)), false)
	require.Len(t, got, snippetMost)
	require.True(t, cut)

	root, err := url.Parse("https://example.com/")
	require.NoError(t, err)
	require.Empty(t, confidences{}.addURL(root))
	got, _ = confidences{}.cover([]byte("Cannot POST /"), false)
	require.Equal(t, "Cannot POST /", string(got))
}

// Whatever a confidence is, and however it is escaped, it does not get through,
// and what stands around it does.
func TestCoverFindsEveryEscape(t *testing.T) {
	escapes := map[string]func(string) string{
		"none":  func(s string) string { return s },
		"JSON":  func(s string) string { b, _ := json.Marshal(s); return string(b) },
		"PHP":   func(s string) string { b, _ := json.Marshal(s); return strings.ReplaceAll(string(b), "/", `\/`) },
		"Go":    func(s string) string { return fmt.Sprintf("%q", s) },
		"query": func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") },
		"path":  url.PathEscape,
		"HTML":  html.EscapeString,
		"\\u":   func(s string) string { return each(s, `\u%04x`) },
		"\\x":   func(s string) string { return each(s, `\x%02X`) },
		"%":     func(s string) string { return each(s, "%%%02x") },
		"&#":    func(s string) string { return each(s, "&#%d;") },
		"&#x":   func(s string) string { return each(s, "&#x%X;") },
	}
	names := make([]string, 0, len(escapes))
	for name := range escapes {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[!-~]{1,20}[A-Za-z0-9/+]{6,40}`).Draw(t, "text")
		c := confidences{}.add(text)
		if len(c) == 0 {
			t.Skip("the text is an escape itself, and short")
		}
		inner := escapes[rapid.SampledFrom(names).Draw(t, "inner")](text)
		written := inner
		if rapid.Bool().Draw(t, "twice") {
			written = escapes[rapid.SampledFrom(names).Draw(t, "outer")](inner)
		}
		before, after := rapid.StringMatching(`[ -~]{0,3}[<>: ]`).Draw(t, "before"), rapid.StringMatching(`[<>: ][ -~]{0,3}`).Draw(t, "after")
		got, _ := c.cover([]byte(before+written+after), false)
		require.Contains(t, string(got), redacted)
		require.True(t, strings.HasPrefix(string(got), before), "%q", got)
		require.True(t, strings.HasSuffix(string(got), after), "%q", got)
		plain, _ := unescape(string(got))
		require.NotContains(t, plain, c[0].Reveal())

		// Cut anywhere, it leaves less than what is worth anything.
		at := rapid.IntRange(0, len(written)).Draw(t, "cut at")
		got, _ = c.cover([]byte(before+written[:at]), true)
		plain, _ = unescape(string(got))
		secret := c[0].Reveal()
		require.NotContains(t, plain, secret[:min(len(secret), confidenceLeast+1)]) // one may be of an escape that was cut
	})
}

func each(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func BenchmarkCover(b *testing.B) {
	u, _ := url.Parse("https://example.com/hooks/T0k3n/catch?key=v4lue")
	c := confidences{}.addURL(u).addHeader("v1="+strings.Repeat("0f", 32)).add("whsec_"+strings.Repeat("Ab", 22), strings.Repeat("Ab", 22))
	for _, size := range []int{20, snippetMost} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body := []byte(strings.Repeat(`{"status":"ok"} `, size/16+1)[:size])
			b.ReportAllocs()
			for b.Loop() {
				c.cover(body, true)
			}
		})
	}
}

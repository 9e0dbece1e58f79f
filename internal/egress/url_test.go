package egress

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// brokenURLs is by rule.
var brokenURLs = map[string][]string{
	ruleLength: {"", "https://example.com/" + strings.Repeat("a", maxURL)},
	ruleASCII: {
		"http://①②⑦.⓪.⓪.①/", "https://bücher.example/", "https://example.com/ü", "https://example.com/?q=ü",
		"https://example.com/\u00a0", "https://example.com\u2028/", "https://exam\u00adple.com/", "https://example。com/", "https://example.com/\xff",
	},
	ruleEncode: {
		"https://example.com/\r\nX: y", "https://example.com/\n", "https://example.com/\x00", "https://example.com/a b",
		" https://example.com/", "https://example.com/ ", "https://example.com/\t", "https://example.com/\x7f", "https://example.com/?a=b c",
		"https://exa mple.com/", "https://example.com\\@evil.example/", `https://example.com\evil`, `https://example.com/"`, "https://example.com/{id}",
		"https://example.com/?a|b", "https://example.com/^", "https://example.com/`", "https://example.com/<b>",
	},
	ruleFragment: {"https://example.com/#a", "https://example.com#", "https://example.com/?a#b", "#"},
	ruleScheme: {
		"ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "data:,x", "gopher://example.com/", "example.com", "//example.com/",
		"/path", "https:example.com", "https:/example.com", "https", "ws://example.com/", "httpss://example.com/", "unix:///run/x.sock", "://example.com/",
	},
	ruleUserinfo: {
		"https://user:password@example.com/", "https://user@example.com/", "https://@example.com/", "https://:@example.com/",
		"https://a@b@example.com/", "https://example.com:443@evil.example/", "https://example.com%40@evil.example",
	},
	ruleNoHost: {"https://", "https:///x", "http:///x", "https://?x", "https://:443/", "https://::1]/"},
	rulePort: {
		"https://example.com:0/", "https://example.com:99999/", "https://example.com:65536/", "https://example.com:/", "https://example.com:-1/",
		"https://example.com:+1/", "https://example.com:0443/", "https://example.com:4a/", "https://example.com:1:2/", "https://8.8.8.8:0",
		"https://[2606:4700:4700::1111]:0/", "https://[2606:4700:4700::1111]:/", "https://example.com:184467440737095516160/",
	},
	ruleHost: {
		"https://a..b/", "https://-a.com/", "https://a-.com/", "https://.example.com/", "https://example.com./", "http://localhost./",
		"https://localhost./", "https://127.0.0.1./", "https://exa%6dple.com/", "https://a,b/", "https://a!b/", "https://*.example.com/",
		"https://" + strings.Repeat("a", 64) + ".com/", "https://" + strings.Repeat("a.", 127) + "com/", "https://[fe80::1%25eth0]/", "https://[::1%lo]/",
		"https://[::1/", "https://[]/", "https://[127.0.0.1]/", "https://[v1.a]/", "https://[::1]a/", "https://[[::1]]/", "https://[example.com]/",
		"https://a&b/", "https://$/", "https://~/",
	},
	ruleNumeric: {
		"https://127.1/", "https://%31%32%37.0.0.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://0/", "https://0X7F.1/", "https://1.2.3/",
		"https://1.2.3.4.5/", "https://256.0.0.1/", "https://127.0.0.0x1/", "https://example.1/", "https://08.8.8.8/", "https://0x/", "https://a.0x/",
		"https://127.0.0.1.0xff/", "https://00000000000000000000000000000177.1/",
	},
	ruleLocal:   {"https://foo.localhost/", "https://a.b.LOCALHOST/"},
	rulePercent: {"https://example.com/%", "https://example.com/%zz", "https://example.com/%2"},
	ruleHTTP: {
		"http://example.com/", "HTTP://example.com", "http://8.8.8.8/", "http://127.0.0.2/", "http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:0:0:1]/",
		"http://localhost.example.com/", "http://foo.localhost.example.com/", "http://10.0.0.1/",
	},
	ruleLoopback: {
		"http://localhost/", "http://localhost:8080/a", "http://127.0.0.1/", "http://[::1]:80/", "https://localhost/", "https://LOCALHOST/",
		"https://127.0.0.1/", "https://127.9.9.9/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]:8443/", "https://[0:0:0:0:0:0:0:1]/",
	},
	ruleAddress: {
		"https://10.0.0.1/", "https://169.254.169.254/latest/meta-data/", "https://[fd00:ec2::254]/", "https://0.0.0.0/", "https://[::]/",
		"https://[::ffff:10.0.0.1]/", "https://[64:ff9b::a9fe:a9fe]/", "https://[2002:7f00:1::1]/", "https://255.255.255.255", "https://[::127.0.0.1]/",
		"https://168.63.129.16:32526/", "https://[FE80::1]/",
	},
}

func TestBrokenURLs(t *testing.T) {
	for rule, urls := range brokenURLs {
		for _, raw := range urls {
			normalized, err := CheckURL(raw, Options{})
			require.Empty(t, normalized)
			require.Equal(t, &RuleError{rule}, err, "%q", raw)
			u, err := ParseURL(raw, Options{})
			require.Nil(t, u)
			require.ErrorContains(t, err, rule)
		}
	}
}

func TestRefusedLiterals(t *testing.T) {
	for text := range strings.FieldsSeq(refusedAddresses) {
		host := text
		if addr, err := netip.ParseAddr(text); err == nil && addr.Is6() {
			host = "[" + text + "]"
		}
		_, err := CheckURL("https://"+host+"/", Options{})
		require.Error(t, err, text)
	}
}

func TestSoundURLs(t *testing.T) {
	loopback := Options{AllowLoopback: true}
	internal := Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
	for _, test := range []struct {
		raw, normalized string
		options         Options
	}{
		{"HTTPS://EXAMPLE.com/A", "https://example.com/A", Options{}},
		{"https://example.com", "https://example.com", Options{}},
		{"https://example.com?A=b", "https://example.com?A=b", Options{}},
		{"https://Example.COM:8443/a//b/../c/./?a[]=1&b=%zz@:/?&c", "https://example.com:8443/a//b/../c/./?a[]=1&b=%zz@:/?&c", Options{}},
		{"https://example.com//evil.example/x@y:z", "https://example.com//evil.example/x@y:z", Options{}},
		{"https://example.com/%0d%0a%2F%e2%82%ac", "https://example.com/%0d%0a%2F%e2%82%ac", Options{}},
		{"https://example.com/bot1:AA-b_c/~x!$&'()*+,;=[y]", "https://example.com/bot1:AA-b_c/~x!$&'()*+,;=[y]", Options{}},
		{"https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/", Options{}},
		{"https://my_app.example.com/", "https://my_app.example.com/", Options{}},
		{"https://r3---sn.example.com/", "https://r3---sn.example.com/", Options{}},
		{"https://1.example.com/", "https://1.example.com/", Options{}},
		{"https://0xab.example/", "https://0xab.example/", Options{}},
		{"https://intranet:443/", "https://intranet:443/", Options{}},
		{"https://notlocalhost/", "https://notlocalhost/", Options{}},
		{"https://8.8.8.8:65535/", "https://8.8.8.8:65535/", Options{}},
		{"https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]/", Options{}},
		{"https://[2606:4700:4700::ABCD]:1/X", "https://[2606:4700:4700::abcd]:1/X", Options{}},
		{"https://[::ffff:8.8.8.8]/", "https://[::ffff:8.8.8.8]/", Options{}},
		{"https://" + strings.Repeat("a", 63) + ".com/", "https://" + strings.Repeat("a", 63) + ".com/", Options{}},
		{"https://example.com/" + strings.Repeat("a", maxURL-20), "https://example.com/" + strings.Repeat("a", maxURL-20), Options{}},
		{"http://LocalHost:8080/A", "http://localhost:8080/A", loopback},
		{"http://127.0.0.1:8080", "http://127.0.0.1:8080", loopback},
		{"http://[::1]:8080/", "http://[::1]:8080/", loopback},
		{"https://localhost/", "https://localhost/", loopback},
		{"https://127.1.2.3/", "https://127.1.2.3/", loopback},
		{"https://10.0.0.1:8443/a", "https://10.0.0.1:8443/a", internal},
		{"https://[::ffff:10.0.0.1]/", "https://[::ffff:10.0.0.1]/", internal},
		{"https://[::1]/", "https://[::1]/", internal},
	} {
		normalized, err := CheckURL(test.raw, test.options)
		require.NoError(t, err, test.raw)
		require.Equal(t, test.normalized, normalized)
		u, err := ParseURL(test.raw, test.options)
		require.NoError(t, err)
		require.Empty(t, checkTarget(u, &test.options))
		requireTarget(t, normalized, u)
	}
	// What an option allows is only what it says.
	for raw, options := range map[string]Options{
		"http://example.com/": loopback, "http://127.0.0.2/": loopback, "https://10.0.0.1/": loopback, "http://foo.localhost/": loopback,
		"http://10.0.0.1/": internal, "http://[::1]/": internal, "https://127.0.0.1/": internal, "https://192.168.0.1/": internal,
	} {
		_, err := CheckURL(raw, options)
		require.Error(t, err, raw)
	}
}

// requireTarget checks that the request target on the wire is the path and
// query as written.
func requireTarget(t *testing.T, normalized string, u *url.URL) {
	t.Helper()
	_, rest, _ := strings.Cut(normalized, "://")
	authority, target := rest, "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, target = rest[:i], rest[i:]
		if target[0] == '?' {
			target = "/" + target
		}
	}
	require.Equal(t, authority, u.Host)
	require.Equal(t, target, u.RequestURI())
}

func TestDoChecksURL(t *testing.T) {
	for _, test := range []struct {
		rule string
		url  *url.URL
	}{
		{ruleNoHost, nil},
		{ruleScheme, &url.URL{}},
		{ruleNoHost, &url.URL{Scheme: "https"}},
		{ruleNoHost, &url.URL{Scheme: "https", Opaque: "//example.com/"}},
		{ruleNoHost, &url.URL{Scheme: "https", Host: "example.com", Path: "a"}},
		{ruleScheme, &url.URL{Scheme: "ftp", Host: "example.com", Path: "/"}},
		{ruleUserinfo, &url.URL{Scheme: "https", Host: "example.com", User: url.User("a")}},
		{ruleFragment, &url.URL{Scheme: "https", Host: "example.com", Fragment: "a"}},
		{ruleEncode, &url.URL{Scheme: "https", Host: "example.com", RawQuery: "a b"}},
		{ruleHTTP, &url.URL{Scheme: "http", Host: "example.com"}},
		{ruleAddress, &url.URL{Scheme: "https", Host: "10.0.0.1"}},
		{ruleLoopback, &url.URL{Scheme: "https", Host: "[::1]:443"}},
		{ruleHost, &url.URL{Scheme: "https", Host: "a..b"}},
		{rulePort, &url.URL{Scheme: "https", Host: "a.example:0"}},
	} {
		c, err := New(Options{})
		require.NoError(t, err)
		a := c.Do(t.Context(), Request{URL: test.url}, func() { t.Error("answered") })
		require.Equal(t, &RuleError{test.rule}, a.Err)
		require.True(t, a.Final)
		require.False(t, a.TimedOut)
		require.Equal(t, test.rule == ruleAddress || test.rule == ruleLoopback, a.Refused)
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, urls := range brokenURLs {
		for _, raw := range urls {
			f.Add(raw, false)
			f.Add(raw, true)
		}
	}
	for _, raw := range []string{
		"HTTPS://EXAMPLE.com/A", "https://example.com?x", "http://localhost:80/%0d%0a", "https://[::ffff:8.8.8.8]/a%2fb",
		"https://[::ffff:127.0.0.1]/", "https://127.255.255.255/", "https://[0:0:0:0:0:0:0:1]/", "http://127.0.0.1", "https://1.example.0x/", "https://a.0xg/",
		"https://example.com/%", "https://example.com/?%", "https://example.com:65535/[a]?b[]=/?", "https://_/", "https://a.localhost/",
	} {
		f.Add(raw, false)
		f.Add(raw, true)
	}
	f.Fuzz(func(t *testing.T, raw string, allowLoopback bool) {
		options := Options{AllowLoopback: allowLoopback}
		normalized, err := CheckURL(raw, options)
		require.Equal(t, naiveSound(raw, allowLoopback), err == nil, "%q: %v", raw, err)
		if err != nil {
			require.Empty(t, normalized)
			require.IsType(t, &RuleError{}, err)
			require.Contains(t, brokenURLs, err.Error(), "not one of the fixed texts")
			return
		}
		require.True(t, strings.EqualFold(raw, normalized))
		again, err := CheckURL(normalized, options)
		require.NoError(t, err)
		require.Equal(t, normalized, again)

		u, err := url.Parse(normalized)
		require.NoError(t, err)
		require.Nil(t, u.User)
		require.Empty(t, u.Fragment)
		require.NotEmpty(t, u.Hostname())
		require.NotContains(t, normalized, "#")
		require.NotContains(t, u.Host, "@")
		require.True(t, u.Scheme == "https" || u.Scheme == "http" && allowLoopback)
		require.Empty(t, checkTarget(u, &options))
		requireTarget(t, normalized, u)
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			require.True(t, options.Allowed(addr))
		}
	})
}

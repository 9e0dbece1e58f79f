package egress

import (
	"bufio"
	"bytes"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The URL and header rules once more, as regular expressions written from RFC
// 3986 §3 and RFC 9110 §5, without looking at the code that they judge.
var (
	naiveURL = regexp.MustCompile(`\A(?i:(https?))://` + // scheme
		`(?:([A-Za-z0-9_.-]+)|\[([0-9A-Fa-f:.]+)\])` + // host, address in brackets
		`(?::([1-9][0-9]{0,4}))?` + // port
		`((?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/\[\]-]|%[0-9A-Fa-f]{2})*)?)` + // path
		`(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%\[\]-]*)?\z`) // query
	naiveLabel  = regexp.MustCompile(`\A[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\z`)
	naiveOctet  = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])`
	naiveQuad   = regexp.MustCompile(`\A` + naiveOctet + `\.` + naiveOctet + `\.` + naiveOctet + `\.` + naiveOctet + `\z`)
	naiveNumber = regexp.MustCompile(`\A([0-9]+|0x[0-9a-f]*)\z`)
)

// naiveSound reports whether raw may be an endpoint's URL.
func naiveSound(raw string, allowLoopback bool) bool {
	m := naiveURL.FindStringSubmatch(raw)
	if m == nil || len(raw) > 2048 {
		return false
	}
	https, name, literal, port := strings.EqualFold(m[1], "https"), strings.ToLower(m[2]), m[3], m[4]
	if len(port) == 5 && port > "65535" {
		return false
	}
	if name == "localhost" || name == "127.0.0.1" || literal == "::1" {
		return allowLoopback
	}
	if !https {
		return false
	}
	if literal != "" {
		addr, err := netip.ParseAddr(literal)
		return err == nil && addr.Is6() && naiveAllowed(addr, allowLoopback)
	}
	labels := strings.Split(name, ".")
	last := labels[len(labels)-1]
	switch {
	case naiveQuad.MatchString(name):
		return naiveAllowed(netip.MustParseAddr(name), allowLoopback)
	case naiveNumber.MatchString(last), len(name) > 253, len(labels) > 1 && last == "localhost":
		return false
	}
	for _, label := range labels {
		if !naiveLabel.MatchString(label) {
			return false
		}
	}
	return true
}

// naiveAllowed leaves IPv6 to TestPublic, and asks the second opinion about
// every IPv4 address, whatever it is written as.
func naiveAllowed(addr netip.Addr, allowLoopback bool) bool {
	addr = addr.Unmap()
	if !addr.Is4() {
		return Public(addr) || allowLoopback && addr == netip.IPv6Loopback()
	}
	b := addr.As4()
	return secondOpinion(uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3])) || allowLoopback && b[0] == 127
}

// naiveReserved are the headers that belong to the library, to net/http or to
// the connection, or that tell a receiver where a request came from. Behind CGI
// and its heirs an underscore is a hyphen.
var naiveReserved = regexp.MustCompile(`(?i)\A(` +
	`(x[-_])?(elido|webhook)[-_].*|(content|proxy|x[-_]forwarded)[-_].*|(x[-_])?idempotency[-_]key|` +
	`accept[-_]encoding|connection|cookie2?|date|expect|forwarded|host|http2[-_]settings|keep[-_]alive|te|trailer|` +
	`transfer[-_]encoding|upgrade|user[-_]agent|via|x[-_]real[-_]ip)\z`)

var (
	naiveToken = regexp.MustCompile(`\A[!#$%&'*+.^_|~0-9A-Za-z` + "`" + `-]{1,128}\z`)
	naiveValue = regexp.MustCompile(`\A([!-~]([ -~]*[!-~])?)?\z`)
)

// FuzzCheckHeaders compares the rules for extra headers with the naive ones, and
// holds those that pass against the wire: a receiver gets them, and nothing that
// they smuggled in.
func FuzzCheckHeaders(f *testing.F) {
	for _, name := range []string{
		"Authorization", "X-Api-Key", "x-tenant", "", "a b", "a:", "a\r\nb", "ü", "a\x00", "(a)", "\u212aey", "Host", "HOST", "host ", "Content-Length",
		"content-type", "Transfer-Encoding", "TE", "Connection", "Proxy-Authorization", "Idempotency-Key", "X-Idempotency-Key", "x-idempotency-key", "Expect",
		"X-Elido-Signature", "x-elido-", "X-Elido", "Elido-Signature", "webhook-id", "X-Webhook-Timestamp", "X-Forwarded-For", "Cookie", "Date", "Via",
		"Accept", "Referer", "X-Real-IP", "Upgrade", "X_Elido_Signature", "x_forwarded-for", "transfer_encoding", "X_Api_Key", strings.Repeat("a", 128), strings.Repeat("a", 129),
	} {
		f.Add(name, "Bearer abc==", "X-B", "")
		f.Add("X-Other", "a  b", name, "~")
	}
	for _, value := range []string{"", " a", "a ", "a\r\nHost: evil", "a\nb", "a\x00", "\ta", "a\tb", "ü", "\x7f", strings.Repeat("v", 4093), strings.Repeat("v", 4094)} {
		f.Add("X-A", value, "x-a", value)
		f.Add("X-A", value, "X-B", value)
	}
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		h := map[string]string{name1: value1, name2: value2}
		sound := len(h) == 1 || !strings.EqualFold(name1, name2)
		for name, value := range h {
			sound = sound && naiveToken.MatchString(name) && !naiveReserved.MatchString(name) &&
				naiveValue.MatchString(value) && len(name)+len(value) <= 4096
		}
		before := maps.Clone(h)
		err := CheckHeaders(h)
		require.Equal(t, before, h)
		if !sound {
			require.IsType(t, &RuleError{}, err)
			for _, value := range h {
				if len(value) > 8 && !strings.Contains(name1+name2, value) {
					require.NotContains(t, err.Error(), value)
				}
			}
			for _, r := range err.Error() {
				require.True(t, r >= ' ' && r <= '~', "%q", err.Error())
			}
			return
		}
		require.NoError(t, err)

		req := &http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "https", Host: "example.com", Path: "/"}, Header: http.Header{"User-Agent": {"u"}}}
		want := http.Header{"User-Agent": {"u"}, "Content-Length": {"0"}}
		for name, value := range h {
			name = http.CanonicalHeaderKey(name)
			req.Header[name], want[name] = []string{value}, []string{value}
		}
		var wire bytes.Buffer
		require.NoError(t, req.Write(&wire))
		got, err := http.ReadRequest(bufio.NewReader(&wire))
		require.NoError(t, err)
		require.Equal(t, want, got.Header)
		require.Equal(t, "example.com", got.Host)
		require.Zero(t, got.ContentLength)
		require.Empty(t, got.TransferEncoding)
		require.False(t, got.Close)
	})
}

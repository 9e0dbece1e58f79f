package channel_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/channel"
)

// TestVerdicts: what of the answers of each vendor is final. The vendors' servers
// give them in their own words.
func TestVerdicts(t *testing.T) {
	final := map[string][]int{
		channel.Discord:  {401, 403, 404},
		channel.Telegram: {400, 401, 403, 404},
		channel.Sentry:   {400, 401, 403, 404, 413},
	}
	for kind, list := range final {
		c := open(t, kind)
		isFinal := make(map[int]bool)
		for _, status := range list {
			isFinal[status] = true
		}
		for status := 100; status < 600; status++ {
			a := c.Answer(status, http.Header{}, nil)
			assert.Equal(t, status >= 200 && status <= 299, a.Delivered, "%s %d", kind, status)
			assert.Equal(t, isFinal[status], a.Final, "%s %d", kind, status)
		}
		assert.False(t, c.Answer(0, nil, nil).Delivered)
	}
}

func TestReasons(t *testing.T) {
	for _, test := range []struct {
		kind   string
		break_ func(v *vendors, c *http.Request)
		reason string
		final  bool
	}{
		{channel.Discord, func(_ *vendors, r *http.Request) { r.URL.Path = "/api/webhooks/9/abc" }, "Unknown Webhook (code 10015)", true},
		{channel.Discord, func(_ *vendors, r *http.Request) { r.URL.Path = "/api/webhooks/" + discordID + "/abc" }, "Invalid Webhook Token (code 50027)", true},
		{channel.Discord, func(_ *vendors, r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, "Invalid Form Body (code 50035)", false},
		{channel.Discord, func(_ *vendors, r *http.Request) { r.Header.Del("User-Agent") }, "", true},
		{channel.Telegram, func(_ *vendors, r *http.Request) { r.URL.Path = "/bot1:x/sendMessage" }, "Unauthorized", true},
		{channel.Telegram, func(_ *vendors, r *http.Request) { r.Header.Del("Content-Type") }, "message text is empty", true},
		{channel.Telegram, func(v *vendors, _ *http.Request) { v.telegram.Refuse(403, "Forbidden: bot was blocked by the user") }, "bot was blocked by the user", true},
		{channel.Telegram, func(v *vendors, _ *http.Request) { v.telegram.Refuse(500, "Internal Server Error: restart") }, "restart", false},
		{channel.Sentry, func(_ *vendors, r *http.Request) { r.Header.Del("X-Sentry-Auth") }, "missing authorization information", true},
		{channel.Sentry, func(_ *vendors, r *http.Request) { r.URL.Path = "/api/43/envelope/" }, "event submission rejected with_reason: ProjectId", true},
		{channel.Sentry, func(v *vendors, _ *http.Request) {
			v.sentry.Refuse(403, "event submission rejected with_reason: ProjectState")
		}, "event submission rejected with_reason: ProjectState", false},
		{channel.Sentry, func(_ *vendors, r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, "invalid event envelope: unexpected content type", true},
		{channel.Sentry, func(v *vendors, _ *http.Request) { v.sentry.Break(502) }, "", false},
	} {
		v, c := newVendors(), open(t, test.kind)
		r := httptest.NewRequest(http.MethodPost, c.URL(), strings.NewReader(string(c.Message(link(t, map[string]any{"slug": "s"}), sent))))
		r.Header = c.Header().Clone()
		test.break_(v, r)
		w := httptest.NewRecorder()
		v.handler(test.kind).ServeHTTP(w, r)
		a := c.Answer(w.Code, w.Header(), w.Body.Bytes())
		assert.False(t, a.Delivered)
		assert.Equal(t, test.reason, a.Reason, "%s: %s", test.kind, w.Body)
		assert.Equal(t, test.final, a.Final, "%s: %s", test.kind, w.Body)
	}
}

func TestTelegramNotOK(t *testing.T) {
	c := open(t, channel.Telegram)
	a := c.Answer(200, nil, []byte(`{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`))
	assert.Equal(t, channel.Answer{Reason: "Bad Request: chat not found"}, a, "failed, and to be tried again")
	long := []byte(`{"ok":false,"description":"` + strings.Repeat("x", 20_000) + `"}`)
	assert.False(t, c.Answer(200, nil, long[:16<<10]).Delivered, "also if only the beginning of it was kept")
	for _, body := range []string{``, `{}`, `{"ok":true`, `{"ok":"false"}`, `<html>`, `{"ok":true,"result":{}}`} {
		assert.True(t, c.Answer(200, nil, []byte(body)).Delivered, "any other 2xx is delivered: %s", body)
	}
	a = c.Answer(400, nil, []byte(`{"ok":false,"description":"Bad Request: group chat was upgraded to a supergroup chat","parameters":{"migrate_to_chat_id":-1009}}`))
	assert.Equal(t, "group chat was upgraded to a supergroup chat; its chat_id is -1009 now", a.Reason)
}

// TestWait: how long each vendor asks to wait.
func TestWait(t *testing.T) {
	day := 24 * time.Hour
	numbers := map[string]time.Duration{
		`0.5`: 500 * time.Millisecond, `64.57`: 64570 * time.Millisecond, `30`: 30 * time.Second, `1e3`: 1000 * time.Second,
		`86400`: day, `86401`: day, `1e300`: day, `1e400`: day, `99999999999999999999`: day,
		`0`: 0, `-1`: 0, `-1e400`: 0, `"NaN"`: 0, `"Infinity"`: 0, `null`: 0, `true`: 0, `[30]`: 0, `{}`: 0, `NaN`: 0, `0.0000000001`: 1,
	}
	for number, want := range numbers {
		body := []byte(`{"message":"You are being rate limited.","retry_after":` + number + `,"global":false}`)
		assert.Equal(t, want, open(t, channel.Discord).Answer(429, nil, body).Wait, number)
		body = []byte(`{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":` + number + `}}`)
		assert.Equal(t, want, open(t, channel.Telegram).Answer(429, nil, body).Wait, number)
	}
	for limits, want := range map[string]time.Duration{
		"2700:default;error;security:organization":                     2700 * time.Second,
		"60:transaction:key, 2700:default;error;security:organization": 2700 * time.Second,
		"60::organization, 2700.5::organization":                       2700500 * time.Millisecond,
		"60:transaction:key":                                           time.Minute, // not for us: as where nothing is said
		"30":                                                           30 * time.Second,
		"1e300:error":                                                  day,
		"NaN:error, inf:error, -5:error, :error, x":                    time.Minute,
		"": time.Minute,
	} {
		h := http.Header{}
		h.Set("X-Sentry-Rate-Limits", limits)
		assert.Equal(t, want, open(t, channel.Sentry).Answer(429, h, nil).Wait, limits)
	}
	h := http.Header{"Retry-After": {"10"}}
	assert.Zero(t, open(t, channel.Sentry).Answer(429, h, nil).Wait, "the header is read elsewhere")
	assert.Zero(t, open(t, channel.Sentry).Answer(503, http.Header{}, nil).Wait)
}

// TestRateLimits: what the servers say is understood.
func TestRateLimits(t *testing.T) {
	for _, kind := range kinds {
		v, c := newVendors(), open(t, kind)
		v.discord.RateLimit(90 * time.Second)
		v.telegram.RateLimit(90 * time.Second)
		v.sentry.RateLimit(90 * time.Second)
		a, _ := post(c, v.handler(kind), c.Message(link(t, map[string]any{"slug": "s"}), sent))
		assert.Equal(t, 90*time.Second, a.Wait, kind)
		assert.False(t, a.Final)
	}
}

// TestRedact: a server that gives back what it got gives no credential away,
// however it spells it.
func TestRedact(t *testing.T) {
	secrets := map[string][]string{
		channel.Discord:  {discordToken},
		channel.Telegram: {botToken, strings.SplitN(botToken, ":", 2)[1]},
		channel.Sentry:   {sentryKey},
	}
	for kind, list := range secrets {
		c := open(t, kind)
		for _, secret := range list {
			forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), fmt.Sprintf("%q", secret),
				hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))}
			for before := range 4 {
				text := []byte(strings.Repeat("x", before) + secret + strings.Repeat("y", before))
				forms = append(forms, base64.StdEncoding.EncodeToString(text), base64.URLEncoding.EncodeToString(text))
			}
			for _, form := range forms {
				got := string(c.Redact([]byte("you sent " + form + " to us, " + form)))
				require.Contains(t, got, "[redacted]")
				_, part, ok := strings.Cut(secret, ":") // what is before the colon is no secret
				if !ok {
					part = secret
				}
				assertNothingOf(t, got, part)
			}
			for n := 8; n < len(secret); n++ { // the answer ends in the middle of it
				got := string(c.Redact([]byte("you sent " + secret[:n])))
				assert.NotContains(t, got, secret[:8])
			}
		}
		assert.Equal(t, `{"ok":true}`, string(c.Redact([]byte(`{"ok":true}`))))
		assert.Empty(t, c.Redact(nil))
	}
}

// TestReasonsAreRedacted: before they are cut, or a part of a credential would be
// left at their end.
func TestReasonsAreRedacted(t *testing.T) {
	for kind, secret := range map[string]string{channel.Discord: discordToken, channel.Telegram: botToken, channel.Sentry: sentryKey} {
		for _, before := range []int{0, 200, 250, 290, 295, 299, 400} {
			var escaped strings.Builder // as JSON may have it
			for _, c := range secret {
				fmt.Fprintf(&escaped, `\u%04x`, c)
			}
			for _, text := range []string{secret, escaped.String()} {
				text = strings.Repeat("x", before) + text + " not found"
				body := fmt.Sprintf(`{"ok":false,"message":"%s","description":"%s","detail":"%s"}`, text, text, text)
				h := http.Header{"X-Sentry-Error": {text}}
				for _, body := range []string{body, ""} {
					reason := open(t, kind).Answer(404, h, []byte(body)).Reason
					assert.NotContains(t, reason, secret[10:20])
					assert.LessOrEqual(t, len(reason), 310)
				}
			}
		}
	}
}

// assertNothingOf checks that a text has no part of a secret, in clear, hex or
// base64.
func assertNothingOf(t *testing.T, text, secret string) {
	t.Helper()
	const part = 9
	decoded := []string{text}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(` ,"`, r) }) {
		if b, err := hex.DecodeString(word); err == nil {
			decoded = append(decoded, string(b))
		}
		for skip := range 4 {
			if skip < len(word) {
				b, _ := base64.RawURLEncoding.DecodeString(strings.TrimRight(word[skip:], "="))
				decoded = append(decoded, string(b))
				b, _ = base64.RawStdEncoding.DecodeString(strings.TrimRight(word[skip:], "="))
				decoded = append(decoded, string(b))
			}
		}
	}
	for _, s := range decoded {
		for i := 0; i+part <= len(secret); i++ {
			if strings.Contains(s, secret[i:i+part]) {
				t.Fatalf("%q has %q", text, secret[i:i+part])
			}
		}
	}
}

package channeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The servers are there to refuse: each rule is broken once here.

func send(h http.Handler, url, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, url, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestDiscordIsStrict(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	fields := func(n int, field string) string { return strings.TrimSuffix(strings.Repeat(field+",", n), ",") }
	post := func(d *Discord, body string) *httptest.ResponseRecorder {
		return send(d, "https://discord.com/api/webhooks/1/token", body, "Content-Type", "application/json", "User-Agent", "DiscordBot (https://x, 1)")
	}
	for body, problem := range map[string]string{
		`{`:                                `50109`,
		`{"content":"a"} {}`:               `50109`,
		`{"contents":"a"}`:                 `50109`,
		`{"username":"a"}`:                 `50006`,
		`{"content":"` + long(2001) + `"}`: `2000 or fewer`,
		`{"content":"a","username":""}`:    `between 1 and 80`,
		`{"content":"a","username":"Discord Bot"}`:                                               `cannot contain`,
		`{"embeds":[{}]}`:                                                                        `BASE_TYPE_REQUIRED`,
		`{"embeds":[{"title":"` + long(257) + `"}]}`:                                             `256 or fewer`,
		`{"embeds":[{"title":"` + strings.Repeat("😀", 129) + `"}]}`:                              `256 or fewer`,
		`{"embeds":[{"description":"` + long(4097) + `"}]}`:                                      `4096 or fewer`,
		`{"embeds":[{"title":"a","fields":[` + fields(26, `{"name":"a","value":"b"}`) + `]}]}`:   `25 or fewer`,
		`{"embeds":[{"title":"a","fields":[{"name":"a"}]}]}`:                                     `required`,
		`{"embeds":[{"title":"a","fields":[{"name":" ","value":"b"}]}]}`:                         `required`,
		`{"embeds":[{"title":"a","fields":[{"name":"` + long(257) + `","value":"b"}]}]}`:         `256 or fewer`,
		`{"embeds":[{"title":"a","fields":[{"name":"a","value":"` + long(1025) + `"}]}]}`:        `1024 or fewer`,
		`{"embeds":[{"title":"a","footer":{}}]}`:                                                 `required`,
		`{"embeds":[{"title":"a","footer":{"text":"` + long(2049) + `"}}]}`:                      `2048 or fewer`,
		`{"embeds":[{"title":"a","author":{"name":"` + long(257) + `"}}]}`:                       `256 or fewer`,
		`{"embeds":[{"title":"a","url":"javascript:alert(1)"}]}`:                                 `URL`,
		`{"embeds":[{"title":"a","url":"ftp://a.example/"}]}`:                                    `Scheme`,
		`{"embeds":[{"title":"a","timestamp":"yesterday"}]}`:                                     `ISO8601`,
		`{"embeds":[{"title":"a","color":16777216}]}`:                                            `16777215`,
		`{"embeds":[{"description":"` + long(3000) + `"},{"description":"` + long(3001) + `"}]}`: `6000`,
		`{"embeds":[` + fields(11, `{"title":"a"}`) + `]}`:                                       `10 or fewer`,
		`{"content":"a","allowed_mentions":{"parse":["all"]}}`:                                   `must be one of`,
	} {
		d := NewDiscord("1", "token")
		w := post(d, body)
		assert.Equal(t, http.StatusBadRequest, w.Code, body)
		assert.Contains(t, w.Body.String(), problem, body)
		assert.Empty(t, d.Messages())
		assert.Equal(t, 1, d.Requests())
	}

	d := NewDiscord("1", "token")
	assert.Equal(t, http.StatusNoContent, post(d, `{"content":"a @everyone <@1>"}`).Code)
	assert.Equal(t, []string{"@everyone", "<@1>"}, d.Messages()[0].Pings, "without allowed_mentions")
	w := send(d, "https://discord.com/api/v10/webhooks/1/token?wait=true", `{"embeds":[{"title":"a"}],"allowed_mentions":{"parse":[]}}`,
		"Content-Type", "application/json; charset=utf-8", "User-Agent", "DiscordBot (https://x, 1)")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Empty(t, d.Messages()[1].Markup)
	assert.Equal(t, http.StatusForbidden, send(d, "https://discord.com/api/webhooks/1/token", `{}`, "User-Agent", "curl/8").Code)
}

func TestMarkdownIsRead(t *testing.T) {
	for _, markup := range []string{
		"**a**", "*a*", "_a_", "__a__", "~~a~~", "`a`", "||a||", "[a](b)", "https://a.example", "<https://a.example>", "<@1>", "<@&1>", "<#1>",
		"<:a:1>", "<a:a:1>", "<t:1>", "</a:1>", "@everyone", "@here", ":smile:", "# a", "### a", "-# a", "> a", "- a", "+ a", "1. a", "12) a", "a\n# b",
	} {
		_, links, found := readMarkdown(markup)
		assert.NotEmpty(t, found, markup)
		assert.Empty(t, links)
	}
	text, links, found := readMarkdown(`\*\*a\*\* \[b\](c) \\ \a 09:14 a-b 3.5 \@everyone`)
	assert.Empty(t, found)
	assert.Empty(t, links)
	assert.Equal(t, `**a** [b](c) \ \a 09:14 a-b 3.5 @everyone`, text)

	text, links, found = readMarkdown("a\n[Open page](https://a.example/b_c*?d=e%29) f")
	assert.Empty(t, found)
	assert.Equal(t, []DiscordLink{{"Open page", "https://a.example/b_c*?d=e%29"}}, links)
	assert.Equal(t, "a\nOpen page f", text)
	for _, markup := range []string{
		"[Open @here](https://a.example)", "[Open https://b.example](https://a.example)", "[a](https://a.example/(b))", "[a](ftp://a.example)", "[a](https://a.example b)",
	} {
		_, links, found := readMarkdown(markup)
		assert.NotEmpty(t, found, markup)
		assert.Empty(t, links, markup)
	}
}

func TestTelegramIsStrict(t *testing.T) {
	post := func(s *Telegram, body string) *httptest.ResponseRecorder {
		return send(s, "https://api.telegram.org/bot1:a/sendMessage", body, "Content-Type", "application/json")
	}
	message := func(text string) string {
		b, err := json.Marshal(text)
		require.NoError(t, err)
		return `{"chat_id":7,"parse_mode":"HTML","text":` + string(b) + `}`
	}
	for body, problem := range map[string]string{
		`{`:                        "parameters JSON object",
		`{"chat_id":7,"txt":"a"}`:  "parameters JSON object",
		`{"text":"a"}`:             "chat_id is empty",
		`{"chat_id":8,"text":"a"}`: "chat not found",
		`{"chat_id":7,"text":" "}`: "message text is empty",
		`{"chat_id":7,"text":"a","parse_mode":"BBCode"}`: "unsupported parse_mode",
		message(strings.Repeat("a", 4097)):               "message is too long",
		message(strings.Repeat("😀", 2049)):               "message is too long",
		message("<b></b>"):                               "message text is empty",
		message("<script>a</script>"):                    "Unsupported start tag",
		message("<b>a"):                                  "Can't find end tag",
		message("a</b>"):                                 "Unexpected end tag",
		message("<b><i>a</b></i>"):                       "Unmatched end tag",
		message("<b a"):                                  "Unclosed start tag",
		message("a & b"):                                 "Unescaped &",
		message("a &nbsp; b"):                            "Unescaped &",
		message("a &am"):                                 "Unescaped &",
		message("a > b"):                                 "Unescaped >",
		message("<b><code>a</code></b>"):                 "must not be in",
		message("<b onclick=\"x\">a</b>"):                "Unexpected attribute",
		message("<a>a</a>"):                              "Unexpected attribute",
		message(strings.Repeat("<b>a</b>", 101)):         "too many entities",
	} {
		s := NewTelegram("1:a", "7")
		w := post(s, body)
		assert.Equal(t, http.StatusBadRequest, w.Code, body)
		assert.Contains(t, w.Body.String(), `"ok":false`)
		var answer struct{ Description string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		assert.Contains(t, answer.Description, problem, body)
		assert.Empty(t, s.Messages())
	}
	s := NewTelegram("1:a", "7")
	assert.Equal(t, http.StatusOK, post(s, message(strings.Repeat("&lt;", 4096))).Code, "counted without its markup")
	assert.Equal(t, http.StatusOK, post(s, message(`@durov <code>@quiet</code> a@b.example <a href="https://a.example/?b&amp;c">x</a>`)).Code)
	m := s.Messages()[1]
	assert.Equal(t, []string{"durov"}, m.Mentions)
	assert.Equal(t, "https://a.example/?b&c", m.Entities[1].URL)
	assert.True(t, m.Preview)
	assert.Equal(t, http.StatusNotFound, send(s, "https://api.telegram.org/", `{}`).Code)
	assert.Equal(t, http.StatusUnauthorized, send(s, "https://api.telegram.org/bot1:b/sendMessage", `{}`).Code)
	assert.Equal(t, http.StatusNotFound, send(s, "https://api.telegram.org/bot1:a/sendMail", `{}`).Code)
}

const sentryID = "0123456789ab4def8123456789abcdef"

// sentryEnvelope makes an envelope, changed in one place.
func sentryEnvelope(from, to string) string {
	event := `{"event_id":"` + sentryID + `","timestamp":"2026-09-21T09:14:02Z","platform":"other","level":"info","logentry":{"formatted":"a"},"tags":{"a":"b"},"extra":{"a":1}}`
	event = strings.Replace(event, from, to, 1)
	return strings.Replace(`{"event_id":"`+sentryID+`","sent_at":"2026-09-21T09:14:03Z"}`+"\n"+
		fmt.Sprintf(`{"type":"event","length":%d}`, len(event))+"\n"+event+"\n", from, to, 1)
}

func TestSentryIsStrict(t *testing.T) {
	const auth = "Sentry sentry_version=7, sentry_client=a/1, sentry_key=key"
	post := func(s *Sentry, body string, header ...string) *httptest.ResponseRecorder {
		header = append([]string{"Content-Type", "application/x-sentry-envelope", "X-Sentry-Auth", auth}, header...)
		return send(s, "https://o1.ingest.sentry.io/api/42/envelope/", body, header...)
	}
	good := sentryEnvelope("", "")
	for body, status := range map[string]int{
		"": 400, "{}": 400, "{}\n": 400,
		strings.Replace(good, "{", " {", 1):                                        400,
		strings.Replace(good, `"sent_at"`, `"dsn":"https://key@h/1","sent_at"`, 1): 400,
		strings.Replace(good, "09:14:03Z", "09:14:03+02:00", 1):                    400,
		strings.Replace(good, `"length":`, `"length":1`, 1):                        400,
		strings.Replace(good, `"type":"event"`, `"type":"attachment"`, 1):          400,
		strings.Replace(good, `,"length"`, `,"size"`, 1):                           400,
		good + "\n": 400,
		good + "x":  400,
		strings.Replace(good, sentryID, "1123456789ab4def8123456789abcdef", 1): 400, // of the header alone
		strings.Replace(good, "\n{\"event_id\"", "\n\n{\"event_id\"", 1):       400,
	} {
		s := NewSentry("", "42", "key")
		w := post(s, body)
		assert.Equal(t, status, w.Code, body)
		assert.Contains(t, w.Body.String(), `"detail"`)
		assert.Empty(t, s.Events())
	}
	for from, to := range map[string]string{
		`"platform"`:                         `"platforms"`,
		`:"other"`:                           `:"elido"`,
		`"info"`:                             `"notice"`,
		`:"a"}`:                              `:""}`,
		`"formatted":"a"`:                    `"formatted":"` + strings.Repeat("a", 8193) + `"`,
		`"timestamp":"2026-09-21T09:14:02Z"`: `"timestamp":"now"`,
		`{"a":"b"}`:                          `{"a":"` + strings.Repeat("b", 200) + `"}`,
		`{"a":1}`:                            `{"a":"` + strings.Repeat("b", 16<<10) + `"}`,
		`"a":1`:                              `"a":` + strings.Repeat("[", 9) + strings.Repeat("]", 9),
		`"other"`:                            `"other","fingerprint":["a","{{ default }}"]`,
	} {
		s := NewSentry("", "42", "key")
		w := post(s, sentryEnvelope(from, to))
		assert.Equal(t, http.StatusBadRequest, w.Code, to)
		assert.Empty(t, s.Events())
	}
	s := NewSentry("/sentry", "42", "key")
	assert.Equal(t, http.StatusNotFound, post(s, good).Code)
	s = NewSentry("", "42", "key")
	large := sentryEnvelope(`{"a":1}`, `{"a":"`+strings.Repeat("b", 1<<20)+`"}`)
	assert.Equal(t, http.StatusRequestEntityTooLarge, post(s, large).Code)
	for header, status := range map[string]int{
		"": 401, "Bearer x": 401, "Sentry sentry_key": 401, "Sentry sentry_version=7": 401,
		"Sentry sentry_version=6, sentry_client=a/1, sentry_key=key": 400,
		"Sentry sentry_version=7, sentry_key=key":                    400,
		"Sentry sentry_version=7, sentry_client=a/1, sentry_key=yek": 403,
	} {
		assert.Equal(t, status, post(s, good, "X-Sentry-Auth", header).Code, header)
	}
	assert.Equal(t, http.StatusBadRequest, post(s, good, "Content-Type", "application/json").Code)
	require.Empty(t, s.Events())
	for range 2 {
		assert.Equal(t, http.StatusOK, post(s, good).Code)
	}
	assert.Len(t, s.Events(), 1)
	assert.Equal(t, 1, s.Repeats())
}

func TestTold(t *testing.T) {
	s := NewTelegram("1:a", "7")
	s.Break(http.StatusBadGateway)
	s.RateLimit(1500 * time.Millisecond)
	assert.Equal(t, http.StatusBadGateway, send(s, "https://api.telegram.org/", "").Code)
	w := send(s, "https://api.telegram.org/", "")
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "2", w.Header().Get("Retry-After"))
	assert.JSONEq(t, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 2","parameters":{"retry_after":2}}`, w.Body.String())
	assert.Equal(t, http.StatusNotFound, send(s, "https://api.telegram.org/", "").Code, "once each")
}

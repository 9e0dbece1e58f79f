package channel_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/internal/channel"
)

// deliver sends an event to the strict server of a kind, which must take it, and
// returns what is to be seen there.
func deliver(t testing.TB, kind string, e channel.Event) (*vendors, []byte) {
	t.Helper()
	v := newVendors()
	c := open(t, kind)
	body := c.Message(e, sent)
	require.True(t, utf8.Valid(body))
	answer, w := post(c, v.handler(kind), body)
	require.True(t, answer.Delivered, "%s\n%s", w.Body, body)
	return v, body
}

func link(t testing.TB, members map[string]any) channel.Event {
	t.Helper()
	data, err := json.Marshal(members)
	require.NoError(t, err)
	return event(t, sample{Type: "link.created", Data: data})
}

// hostile is text that is markup in one place or another.
var hostile = []string{
	`@everyone <@1> [x](javascript:1) <b>`,
	`**bold** __under__ ~~gone~~ ||spoiler|| ` + "`code` ```block```",
	`*i* _i_ \*not\* \`,
	`<@&42> <#42> <:party:1> <a:party:1> <t:1:R> </do:1> <id:home> <https://evil.example>`,
	`https://evil.example/a_b_c :smile: :100: @here`,
	`1:100:2`, `09:14:02`, `# header`, `## header`, `-# small`, `> quote`, `>>> quote`, `- item`, `* item`, `+ item`, `1. item`, `12) item`,
	`</code></b><a href="https://evil.example">x</a>`, `&lt;b&gt; &amp; &#60; &quot;`, `"quoted" 'single'`,
	`@durov and @someone_else, /start@bot #tag $USD`,
	`{} {} {}`, `%s %d`, "\u202etxt.exe", "a\u0000b\u001b[31mc\r\nd\te", "\ufeffbom",
}

// TestTextStaysText: whatever comes with an event is shown as it is, and does
// nothing.
func TestTextStaysText(t *testing.T) {
	for _, text := range hostile {
		e := link(t, map[string]any{"slug": text, "title": text, "tags": []string{text}, "created_by": text, "destination_url": text})
		// As it is, but for white space, control characters, what turns the direction
		// of writing, and what cannot be seen.
		want := strings.Join(strings.FieldsFunc(strings.NewReplacer("\u202e", "", "\ufeff", "").Replace(text), func(r rune) bool { return r <= ' ' }), " ")

		v, _ := deliver(t, channel.Discord, e)
		m := v.discord.Messages()[0]
		assert.Empty(t, m.Markup, text)
		assert.Empty(t, m.Pings, text)
		assert.Equal(t, want+" was created", m.Embeds[0].Title)
		assert.Equal(t, want, m.Embeds[0].Fields[0].Value)

		v, _ = deliver(t, channel.Telegram, e)
		tm := v.telegram.Messages()[0]
		assert.Empty(t, tm.Mentions, text)
		assert.True(t, strings.HasPrefix(tm.Text, want+" was created\n"), tm.Text)
		for _, entity := range tm.Entities {
			assert.Contains(t, []string{"bold", "code", "italic"}, entity.Type, text)
			if entity.Type != "code" {
				assert.NotContains(t, entity.Text, want, "our words alone")
			}
		}

		v, _ = deliver(t, channel.Sentry, e)
		assert.Equal(t, want+" was created", v.sentry.Events()[0].Title)
	}
}

// TestAllowedMentionsIsEmpty looks at the bytes: the member must be there, and its
// list empty and not null.
func TestAllowedMentionsIsEmpty(t *testing.T) {
	_, body := deliver(t, channel.Discord, link(t, map[string]any{"slug": "@everyone"}))
	assert.Contains(t, string(body), `"allowed_mentions":{"parse":[]}`)
}

// TestLimits: texts of every length and alphabet fit, and are cut between two
// characters.
func TestLimits(t *testing.T) {
	alphabets := map[string]string{
		"ascii": "a", "umlaut": "ä", "emoji": "😀", "family": "👨\u200d👩\u200d👧 ", "escaped": "_", "html": "&<>", "quote": `"\`, "space": " a",
	}
	for name, unit := range alphabets {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 119, 120, 121, 256, 257, 1001} {
				text := strings.Repeat(unit, n)
				members := map[string]any{"slug": text, "title": text, "destination_url": text, "created_by": text, "domain": text, "status": text, "expires_at": text, "max_clicks": text}
				for _, kind := range kinds {
					_, body := deliver(t, kind, link(t, members))
					assert.NotContains(t, string(body), "\uFFFD", "a character was cut in two")
				}
				if n != 120 {
					continue
				}
				many := map[string]any{}
				for i := range 30 {
					many["member_"+strings.Repeat("x", i)] = strings.Repeat(text, 3)
				}
				data, err := json.Marshal(many)
				require.NoError(t, err)
				for _, kind := range kinds {
					deliver(t, kind, event(t, sample{Type: "order.paid", Data: data}))
				}
			}
		})
	}
}

// TestTelegramUsesWhatItMay: the limit is in UTF-16 units, and the link and the
// last line are there however long the rest is.
func TestTelegramUsesWhatItMay(t *testing.T) {
	many := map[string]any{"name": "x"}
	for _, c := range "abcdefghijklmnopqrst" {
		many[string(c)] = strings.Repeat("😀", 400)
	}
	data, err := json.Marshal(many)
	require.NoError(t, err)
	v, _ := deliver(t, channel.Telegram, event(t, sample{Type: "order.paid", Data: data}))
	text := v.telegram.Messages()[0].Text
	n := len(utf16.Encode([]rune(text)))
	assert.LessOrEqual(t, n, 4096)
	assert.Greater(t, n, 4000)
	assert.Contains(t, text, "…\n\nOrder paid · workspace #42 · 21 Sep 2026, 09:14 UTC")

	long := strings.Repeat("😀", 2000)
	e := link(t, map[string]any{"slug": "s", "short_url": "https://go.acme.example/s", "title": long, "destination_url": long, "domain": long, "status": long, "created_by": long})
	v, _ = deliver(t, channel.Telegram, e)
	m := v.telegram.Messages()[0]
	assert.Contains(t, m.Text, "Open short link")
	assert.Equal(t, "https://go.acme.example/s", m.Entities[len(m.Entities)-2].URL)
}

// TestOddData: whatever shape the data has, there is a message, and it says what
// it can.
func TestOddData(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 2000) + `1` + strings.Repeat(`}`, 2000)
	datas := []string{
		`{}`, `{"slug":null}`, `{"slug":["a"]}`, `{"slug":{"a":1}}`, `{"slug":true}`, `{"slug":1e999}`, `{"slug":""}`, `{"slug":"  "}`,
		`{"link":null}`, `{"link":[]}`, `{"link":{}}`, `{"link":{"slug":7},"previous":[]}`, `{"link":{"slug":"a"},"previous":{"slug":{}}}`,
		`{"tags":"spring"}`, `{"tags":[null,1,{"a":1},["b"]]}`, `{"expires_at":"tomorrow"}`, `{"expires_at":12}`, `{"changes":[]}`,
		`{"changes":{"a":{"old":[1],"new":null},"b":1,"":{}}}`, `{"created_by":{"id":7}}`, `{"created_by":{}}`, `{"created_by":"17"}`,
		`{"amount":1.10,"currency":null}`, `{"\ud800":"\ud800\udc00\ud800"}`, `{"id":12345678901234567890}`,
		`{"a":1,"a":2}`, `{"":"x"," ":"y","_":"z"}`, `{"message":{}}`, `{"a":` + deep + `}`,
	}
	names := make([]string, 0, 64)
	for _, s := range samples(t) {
		names = append(names, s.Type)
	}
	names = append(names, "order.paid", "link.painted", "", "_", "a.b.c", "{}.{}", strings.Repeat("long_", 40))
	for i, data := range datas {
		if len(data) > 1000 {
			names = []string{"link.created", "order.paid"}
		}
		payloads := []string{
			`{"type":"x","workspace_id":42,"data":` + data + `,"timestamp":"2026-09-21T09:14:02Z"}`,
			`{"id":"evt_1","type":"x","created_at":"2026-09-21T09:14:02.000Z","data":` + data + `,"workspace_id":"ws_42"}`,
			data,
		}
		for j, name := range names {
			payload := payloads[(i+j)%len(payloads)]
			for _, kind := range kinds {
				deliver(t, kind, channel.Event{DeliveryID: 1, ID: "evt_1", Type: name, WorkspaceID: 42, Payload: []byte(payload), CreatedAt: published})
			}
		}
	}
	for _, payload := range []string{"", "null", "[]", `"x"`, "{", "\xff", `{"data":"x"}`, `{"data":{"slug":"` + "\xff" + `"}}`} {
		for _, kind := range kinds {
			deliver(t, kind, channel.Event{DeliveryID: 1, Type: "link.created", WorkspaceID: 42, Payload: []byte(payload), CreatedAt: published})
		}
	}
}

// TestEnvelopes: the time is the event's in both envelopes, and that of the
// publishing in a host's own, whose data is found where it can be.
func TestEnvelopes(t *testing.T) {
	at := time.Date(2026, 9, 21, 9, 14, 2, 0, time.UTC)
	fields := webhook.EnvelopeFields{ID: "evt_1", Type: "link.created", WorkspaceID: 42, Data: json.RawMessage(`{"slug":"spring-sale","created_at":"2020-01-01T00:00:00Z"}`), Time: at}
	v1, err := webhook.EnvelopeV1(fields)
	require.NoError(t, err)
	extended, err := webhook.EnvelopeExtended(fields)
	require.NoError(t, err)
	for payload, want := range map[string]time.Time{
		string(v1):          at,
		string(extended):    at,
		string(fields.Data): published,
		`{"event":"link.created","data":{"slug":"spring-sale"}}`:                            published,
		`{"data":{"slug":"spring-sale"},"timestamp":"yesterday"}`:                           published,
		`{"data":{"slug":"spring-sale"},"timestamp":5,"created_at":"0001-01-01T00:00:00Z"}`: published,
	} {
		v, _ := deliver(t, channel.Discord, channel.Event{DeliveryID: 1, Type: "link.created", WorkspaceID: 42, Payload: []byte(payload), CreatedAt: published})
		embed := v.discord.Messages()[0].Embeds[0]
		assert.Equal(t, "spring-sale was created", embed.Title, payload)
		assert.True(t, want.Equal(embed.Time), "%s: %s", payload, embed.Time)
	}
}

// TestLinks: only what a person may be sent to is linked to.
func TestLinks(t *testing.T) {
	for url, want := range map[string]string{
		"https://shop.example.com/a?b=c&d=e":                    "https://shop.example.com/a?b=c&d=e",
		"http://shop.example.com":                               "http://shop.example.com",
		"https://shop.example.com/späti":                        "https://shop.example.com/sp%C3%A4ti",
		"javascript:alert(1)":                                   "",
		"https://user:pass@shop.example.com":                    "",
		"https://localhost/x":                                   "",
		"https://späti.example/":                                "",
		"//shop.example.com":                                    "",
		"https://shop.example.com/" + strings.Repeat("a", 3000): "",
		"tg://user?id=1":                                        "",
		"":                                                      "",
	} {
		e := link(t, map[string]any{"slug": "s", "destination_url": url})
		v, _ := deliver(t, channel.Discord, e)
		assert.Equal(t, want, v.discord.Messages()[0].Embeds[0].URL, url)
		v, _ = deliver(t, channel.Telegram, e)
		assert.Equal(t, want != "", strings.Contains(v.telegram.Messages()[0].Text, "Open destination"), url)
	}
}

// TestSentryEventID: the same for every attempt, another for another delivery or
// another store's.
func TestSentryEventID(t *testing.T) {
	c, v := open(t, channel.Sentry), newVendors()
	e := event(t, sample{Type: "link.broken", Data: json.RawMessage(`{"slug":"spring-sale","link_id":7}`)})
	for i := range 3 { // attempts
		answer, _ := post(c, v.sentry, c.Message(e, sent.Add(time.Duration(i)*time.Hour)))
		require.True(t, answer.Delivered)
	}
	require.Len(t, v.sentry.Events(), 1)
	assert.Equal(t, 2, v.sentry.Repeats())
	assert.Equal(t, []string{"elido", "link.broken", "workspace 42", "of 7"}, v.sentry.Events()[0].Fingerprint)

	other := e
	other.DeliveryID++
	post(c, v.sentry, c.Message(other, sent))
	other = e
	other.ID = "evt_another"
	post(c, v.sentry, c.Message(other, sent))
	assert.Len(t, v.sentry.Events(), 3)
}

// TestSentryLevel: what is broken is an error, all else is not.
func TestSentryLevel(t *testing.T) {
	for _, s := range samples(t) {
		v, _ := deliver(t, channel.Sentry, event(t, s))
		want := "info"
		if s.Type == "link.broken" {
			want = "error"
		}
		assert.Equal(t, want, v.sentry.Events()[0].Level, s.Type)
	}
}

// TestSentryData: what Sentry would cut or refuse is cut here, and said so.
func TestSentryData(t *testing.T) {
	members := map[string]any{
		"text":   strings.Repeat("ä\"", 20000),
		"list":   make([]int, 20000),
		"number": json.Number("1e999"),
		"exact":  json.Number("12345678901234567890.50"),
		"deep":   json.RawMessage(strings.Repeat("[", 200) + strings.Repeat("]", 200)),
	}
	v, body := deliver(t, channel.Sentry, link(t, members))
	extra := v.sentry.Events()[0].Extra
	assert.Contains(t, string(extra["text"]), "…")
	assert.Equal(t, `"omitted: 40001 bytes, more than Sentry keeps of one value"`, string(extra["list"]))
	assert.Equal(t, `"1e999"`, string(extra["number"]))
	assert.Equal(t, `12345678901234567890.50`, string(extra["exact"]))
	assert.Equal(t, `[[[[[["1 items"]]]]]]`, string(extra["deep"]))
	assert.NotContains(t, string(body), sentryKey)

	many := map[string]any{}
	for i := range 200 {
		many["m"+strings.Repeat("x", i)] = strings.Repeat("y", 10000)
	}
	v, body = deliver(t, channel.Sentry, link(t, many))
	assert.Contains(t, string(v.sentry.Events()[0].Extra["(omitted)"]), "more members")
	assert.Less(t, len(body), 1<<20)
}

// TestNoCredentialInMessages: a message is kept in the log, so no credential may be
// in it.
func TestNoCredentialInMessages(t *testing.T) {
	for _, kind := range kinds {
		_, body := deliver(t, kind, link(t, map[string]any{"slug": "s"}))
		for _, secret := range []string{discordToken, botToken, sentryKey} {
			assert.NotContains(t, string(body), secret)
		}
	}
}

// TestHeaders: what each vendor asks for, and no signature.
func TestHeaders(t *testing.T) {
	for kind, want := range map[string]http.Header{
		channel.Discord:  {"Content-Type": {"application/json"}, "User-Agent": {"DiscordBot (https://github.com/elido-app/webhook, 1.0) Elido-Webhooks/1.0"}},
		channel.Telegram: {"Content-Type": {"application/json"}, "User-Agent": {"Elido-Webhooks/1.0"}},
		channel.Sentry: {"Content-Type": {"application/x-sentry-envelope"}, "User-Agent": {"Elido-Webhooks/1.0"},
			"X-Sentry-Auth": {"Sentry sentry_version=7, sentry_client=elido-webhooks/1.0, sentry_key=" + sentryKey}},
	} {
		assert.Equal(t, want, open(t, kind).Header())
	}
}

func FuzzMessage(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.Type, []byte(`{"type":"x","workspace_id":42,"data":`+string(s.Data)+`,"timestamp":"2026-09-21T09:14:02Z"}`))
	}
	for _, text := range hostile {
		data, _ := json.Marshal(map[string]any{"slug": text, "title": text})
		f.Add("link.created", data)
		f.Add("order.paid", data)
	}
	f.Fuzz(func(t *testing.T, eventType string, payload []byte) {
		if len(payload) > 64<<10 || bytes.Count(payload, []byte("[")) > 5000 {
			return
		}
		for _, kind := range kinds {
			v, _ := deliver(t, kind, channel.Event{DeliveryID: 1, ID: "evt_1", Type: eventType, WorkspaceID: 42, Payload: payload, CreatedAt: published})
			seen(t, v, kind)
		}
	})
}

package channel_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/channel"
)

// requireRule checks an error's field, and that it repeats nothing of what was
// given.
func requireRule(t testing.TB, err error, field, given string) {
	t.Helper()
	var rule *channel.RuleError
	require.ErrorAs(t, err, &rule, given)
	assert.Equal(t, field, rule.Field, given)
	for _, part := range strings.FieldsFunc(given, func(r rune) bool { return strings.ContainsRune("/:@?=&# ", r) }) {
		if len(part) > 12 && part != "api.telegram.org" {
			assert.NotContains(t, rule.Error(), part)
		}
	}
}

func TestDiscordURL(t *testing.T) {
	for given, want := range map[string]string{ // request
		"https://discord.com/api/webhooks/123/abc":              "https://discord.com/api/webhooks/123/abc?wait=true",
		"https://discord.com/api/v10/webhooks/123/abc":          "https://discord.com/api/v10/webhooks/123/abc?wait=true",
		"HTTPS://DISCORD.com/api/webhooks/123/aBc":              "https://discord.com/api/webhooks/123/aBc?wait=true",
		"https://discordapp.com/api/webhooks/123/abc/":          "https://discordapp.com/api/webhooks/123/abc?wait=true",
		"\thttps://discord.com/api/webhooks/123/abc\n":          "https://discord.com/api/webhooks/123/abc?wait=true",
		"https://discord.com/api/webhooks/123/abc?thread_id=77": "https://discord.com/api/webhooks/123/abc?thread_id=77&wait=true",
		"https://discord.com/api/webhooks/123/abc?wait=false":   "https://discord.com/api/webhooks/123/abc?wait=true",
		"https://discord.com/api/webhooks/123/" + discordToken:  "https://discord.com/api/webhooks/123/" + discordToken + "?wait=true",
	} {
		s, credential, err := channel.Options{}.Save(channel.Discord, nil, given, nil)
		require.NoError(t, err, given)
		require.NotContains(t, s.URL, "/"+credential, "the token is not shown")
		require.Contains(t, s.URL, "/***")
		require.Empty(t, s.Config)
		c, err := channel.Options{}.Open(channel.Discord, s, credential)
		require.NoError(t, err)
		assert.Equal(t, want, c.URL())
	}
	for _, given := range []string{
		"", "x", "discord.com/api/webhooks/123/abc",
		"http://discord.com/api/webhooks/123/abctokentoken",
		"https://discord.com.evil.tld/api/webhooks/123/abctokentoken",
		"https://discord.com@evil.tld/api/webhooks/123/abctokentoken",
		"https://discord.com:443@evil.tld/api/webhooks/123/abctokentoken",
		"https://discord.com:444/api/webhooks/123/abctokentoken",
		"https://evil.tld/discord.com/api/webhooks/123/abctokentoken",
		"https://evil.tld/https://discord.com/api/webhooks/123/abctokentoken",
		"https://evil.tld#https://discord.com/api/webhooks/123/abctokentoken",
		"https://xdiscord.com/api/webhooks/123/abctokentoken",
		"https://discord.com./api/webhooks/123/abctokentoken",
		"https://di\u017fcord.com/api/webhooks/123/abctokentoken",
		"https://discord.com/api/webhooks/123",
		"https://discord.com/api/webhooks/123/",
		"https://discord.com/api/webhooks/123/***",
		"https://discord.com/api/webhooks/abc/abctokentoken",
		"https://discord.com/api/webhooks/123/abctokentoken/slack",
		"https://discord.com/api/webhooks/123/abctokentoken/../x",
		"https://discord.com/api/webhooks/123/abctokentoken#x",
		"https://discord.com/api/webhooks/123/abctokentoken?x=1",
		"https://discord.com/api/webhooks/123/abctokentoken?thread_id=x",
		"https://discord.com/api/webhooks/123/abctokentoken?thread_id=1;b=%zz",
		"https://discord.com/api/webhooks/123/abc%2ftokentoken",
		"https://discord.com/api/vx/webhooks/123/abctokentoken",
		"https://discord.com/webhooks/123/abctokentoken",
		"https://discord.com/api//webhooks/123/abctokentoken",
		"https://discord.com/api/webhooks/123/" + strings.Repeat("a", 129),
	} {
		_, _, err := channel.Options{}.Save(channel.Discord, nil, given, nil)
		requireRule(t, err, "url", given)
		if given != "https://discord.com/api/webhooks/123/***" {
			_, err = channel.Options{}.Open(channel.Discord, channel.Settings{URL: given}, "")
			requireRule(t, err, "url", given)
		}
	}
	_, _, err := channel.Options{}.Save(channel.Discord, nil, "https://discord.com/api/webhooks/123/abc", map[string]string{"a": "b"})
	requireRule(t, err, "config", "")
}

// TestDiscordURLAgain: an update may leave the URL away or give back what was
// shown; another needs its token.
func TestDiscordURLAgain(t *testing.T) {
	stored := channel.Settings{URL: "https://discord.com/api/webhooks/123/***"}
	for _, given := range []string{"", stored.URL} {
		s, credential, err := channel.Options{}.Save(channel.Discord, &stored, given, nil)
		require.NoError(t, err)
		assert.Equal(t, stored, s)
		assert.Empty(t, credential, "stays as it is")
	}
	_, _, err := channel.Options{}.Save(channel.Discord, &stored, "https://discord.com/api/webhooks/124/***", nil)
	requireRule(t, err, "url", "")
	s, credential, err := channel.Options{}.Save(channel.Discord, &stored, "https://discord.com/api/webhooks/124/def", nil)
	require.NoError(t, err)
	assert.Equal(t, "https://discord.com/api/webhooks/124/***", s.URL)
	assert.Equal(t, "def", credential)
}

func TestBases(t *testing.T) {
	o := channel.Options{DiscordBase: "http://127.0.0.1:8000/d", TelegramBase: "http://127.0.0.1:8001"}
	for given, shown := range map[string]string{
		"https://discord.com/api/webhooks/123/abc":     "https://discord.com/api/webhooks/123/***",
		"http://127.0.0.1:8000/d/api/webhooks/123/abc": "http://127.0.0.1:8000/d/api/webhooks/123/***",
	} {
		s, credential, err := o.Save(channel.Discord, nil, given, nil)
		require.NoError(t, err)
		assert.Equal(t, shown, s.URL)
		c, err := o.Open(channel.Discord, s, credential)
		require.NoError(t, err)
		assert.Equal(t, "http://127.0.0.1:8000/d/api/webhooks/123/abc?wait=true", c.URL(), "nothing goes to the real one")
	}
	c, err := o.Open(channel.Telegram, channel.Settings{Config: map[string]string{"chat_id": chat}}, botToken)
	require.NoError(t, err)
	assert.Equal(t, "http://127.0.0.1:8001/bot"+botToken+"/sendMessage", c.URL())
	c, err = channel.Options{}.Open(channel.Telegram, channel.Settings{Config: map[string]string{"chat_id": chat}}, botToken)
	require.NoError(t, err)
	assert.Equal(t, "https://api.telegram.org/bot"+botToken+"/sendMessage", c.URL())
}

func TestTelegramConfig(t *testing.T) {
	config := func(chat, token string) map[string]string {
		return map[string]string{"chat_id": chat, "bot_token": token}
	}
	for _, id := range []string{chat, "42", "-42", "@acme", "@Acme_News_2", " 42 ", "4503599627370496"} {
		s, credential, err := channel.Options{}.Save(channel.Telegram, nil, "", config(id, " "+botToken))
		require.NoError(t, err, id)
		assert.Equal(t, channel.Settings{Config: map[string]string{"chat_id": strings.TrimSpace(id)}}, s)
		assert.Equal(t, botToken, credential)
		_, err = channel.Options{}.Open(channel.Telegram, s, credential)
		require.NoError(t, err)
	}
	for _, id := range []string{"", " ", "acme", "@", "@abc", "@1acme", "@acme-news", "@acme news", "0", "-0", "007", "+7", "1.5", "1e5", "--1", "99999999999999999", "٤٢", "https://t.me/acme"} {
		_, _, err := channel.Options{}.Save(channel.Telegram, nil, "", config(id, botToken))
		requireRule(t, err, "config.chat_id", id)
		_, err = channel.Options{}.Open(channel.Telegram, channel.Settings{Config: map[string]string{"chat_id": strings.TrimSpace(id)}}, botToken)
		requireRule(t, err, "config.chat_id", id)
	}
	for _, token := range []string{
		"", " ", "x", "123456789", ":AAabcdefghijklmnopqrstuvwxyz_-01234", "0123:AAabcdefghijklmnopqrstuvwxyz_-01234",
		"abc:AAabcdefghijklmnopqrstuvwxyz_-01234", "123456789:AAabcdefghijklmnopqrstuvwxyz_-0123", "123456789:AAabcdefghijklmnopqrstuvwxyz_-012345",
		"123456789:AAabcdefghijklmnopqrstuvwxyz_-0123/", "123456789:AAabcdefghijklmnopqrstuvwxyz_-01?34", "bot" + botToken, botToken + "\x00",
	} {
		_, _, err := channel.Options{}.Save(channel.Telegram, nil, "", config(chat, token))
		requireRule(t, err, "config.bot_token", token)
		_, err = channel.Options{}.Open(channel.Telegram, channel.Settings{Config: map[string]string{"chat_id": chat}}, token)
		requireRule(t, err, "config.bot_token", token)
	}
	_, err := channel.Options{}.Open(channel.Telegram, channel.Settings{}, botToken)
	requireRule(t, err, "config.chat_id", "")
	_, _, err = channel.Options{}.Save(channel.Telegram, nil, "https://api.telegram.org", config(chat, botToken))
	requireRule(t, err, "url", "")
	_, _, err = channel.Options{}.Save(channel.Telegram, nil, "", map[string]string{"chat_id": chat, "bot_token": botToken, "token": "x"})
	requireRule(t, err, "config", "")

	stored := channel.Settings{Config: map[string]string{"chat_id": chat}}
	s, credential, err := channel.Options{}.Save(channel.Telegram, &stored, "", map[string]string{"chat_id": "@acme"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"chat_id": "@acme"}, s.Config)
	assert.Empty(t, credential, "stays as it is")
	assert.Equal(t, chat, stored.Config["chat_id"], "what is stored is not changed in place")
	s, credential, err = channel.Options{}.Save(channel.Telegram, &stored, "", map[string]string{"bot_token": botToken})
	require.NoError(t, err)
	assert.Equal(t, stored, s)
	assert.Equal(t, botToken, credential)
	_, _, err = channel.Options{}.Save(channel.Telegram, &stored, "", map[string]string{"bot_token": ""})
	requireRule(t, err, "config.bot_token", "")
}

func TestSentryDSN(t *testing.T) {
	for given, want := range map[string]string{
		"https://" + sentryKey + "@o1.ingest.sentry.io/42":     "https://o1.ingest.sentry.io/api/42/envelope/",
		"https://public@sentry.example.com/1":                  "https://sentry.example.com/api/1/envelope/",
		"https://public:secret@sentry.example.com:8443/a/b/17": "https://sentry.example.com:8443/a/b/api/17/envelope/",
		"http://public@127.0.0.1:9000/1":                       "http://127.0.0.1:9000/api/1/envelope/", // who dials decides
		"\thttps://public@sentry.example.com/1\n":              "https://sentry.example.com/api/1/envelope/",
	} {
		s, credential, err := channel.Options{}.Save(channel.Sentry, nil, "", map[string]string{"dsn": given})
		require.NoError(t, err, given)
		assert.Equal(t, channel.Settings{URL: want}, s)
		assert.Equal(t, strings.TrimSpace(given), credential)
		c, err := channel.Options{}.Open(channel.Sentry, s, credential)
		require.NoError(t, err)
		assert.Equal(t, want, c.URL())
	}
	c, err := channel.Options{}.Open(channel.Sentry, channel.Settings{}, "https://public:secret@sentry.example.com/1")
	require.NoError(t, err)
	assert.Equal(t, "Sentry sentry_version=7, sentry_client=elido-webhooks/1.0, sentry_key=public, sentry_secret=secret", c.Header().Get("X-Sentry-Auth"))

	for _, given := range []string{
		"", "x", "https://", "https://host/42", "https://key@host", "https://key@host/", "https://key@/42", "https://@host/42",
		"https://key@host/project", "https://key@host/42/", "https://key@host/42?x=1", "https://key@host/42#x", "https://key@evil@host/42",
		"ftp://key@host/42", "key@host/42", "https://key with spaces@host/42", "https://key,sentry_key=other@host/42", "https://key\r\nX: y@host/42",
		"https://host/key@42", "https://keykeykeykeykey:se cret@host/42",
	} {
		_, _, err := channel.Options{}.Save(channel.Sentry, nil, "", map[string]string{"dsn": given})
		requireRule(t, err, "config.dsn", given)
		_, err = channel.Options{}.Open(channel.Sentry, channel.Settings{URL: "https://host/api/42/envelope/"}, given)
		requireRule(t, err, "config.dsn", given)
	}
	_, _, err = channel.Options{}.Save(channel.Sentry, nil, "https://host/42", map[string]string{"dsn": "https://public@host/42"})
	requireRule(t, err, "url", "")
	_, _, err = channel.Options{}.Save(channel.Sentry, nil, "", map[string]string{"dsn": "https://public@host/42", "key": "x"})
	requireRule(t, err, "config", "")
	_, _, err = channel.Options{}.Save(channel.Sentry, nil, "", nil)
	requireRule(t, err, "config.dsn", "")

	stored := channel.Settings{URL: "https://host/api/42/envelope/"}
	s, credential, err := channel.Options{}.Save(channel.Sentry, &stored, stored.URL, nil)
	require.NoError(t, err)
	assert.Equal(t, stored, s)
	assert.Empty(t, credential)
}

func TestOtherKinds(t *testing.T) {
	for _, kind := range []string{"", "event", "siem", "slack"} {
		assert.False(t, channel.Known(kind))
		_, _, err := channel.Options{}.Save(kind, nil, "", nil)
		requireRule(t, err, "kind", "")
		_, err = channel.Options{}.Open(kind, channel.Settings{}, "")
		requireRule(t, err, "kind", "")
	}
}

// TestPublic: rows that were not made by Save show no credential either.
func TestPublic(t *testing.T) {
	for given, want := range map[string]string{
		"https://discord.com/api/webhooks/123/***":                "https://discord.com/api/webhooks/123/***",
		"https://discord.com/api/webhooks/123/***?thread_id=7":    "https://discord.com/api/webhooks/123/***?thread_id=7",
		"https://discord.com/api/webhooks/123/secret":             "https://discord.com/api/webhooks/123/***",
		"https://discord.com/api/webhooks/123/***secret":          "https://discord.com/api/webhooks/123/***",
		"https://discord.com/api/webhooks/123/secret?thread_id=7": "https://discord.com/api/webhooks/123/***?thread_id=7",
		"https://discord.com/api/webhooks/123/a?thread_id=secret": "https://discord.com/api/webhooks/123/***",
		"https://evil.example/api/webhooks/123/secret":            "https://evil.example/api/webhooks/123/***",
		"https://secret@discord.com/api/webhooks/123/x":           "***",
		"https://evil.example/secret":                             "***",
		"https://discord.com/api/webhooks/secret/x":               "***",
		"": "",
	} {
		assert.Equal(t, want, channel.Public(channel.Discord, channel.Settings{URL: given}).URL, given)
	}
	config := map[string]string{"chat_id": chat, "bot_token": botToken, "dsn": "x"}
	assert.Equal(t, map[string]string{"chat_id": chat}, channel.Public(channel.Telegram, channel.Settings{Config: config}).Config)
	assert.Len(t, config, 3, "the map itself is not changed")
}

// FuzzDiscordURL: what is accepted goes to Discord and nowhere else, and is shown
// without its token.
func FuzzDiscordURL(f *testing.F) {
	f.Add("https://discord.com/api/webhooks/123/abcdef?thread_id=7")
	f.Add("https://discord.com@evil.tld/api/v10/webhooks/123/abcdef")
	f.Fuzz(func(t *testing.T, given string) {
		s, credential, err := channel.Options{}.Save(channel.Discord, nil, given, nil)
		if err != nil {
			return
		}
		c, err := channel.Options{}.Open(channel.Discord, s, credential)
		require.NoError(t, err)
		host, _, _ := strings.Cut(strings.TrimPrefix(c.URL(), "https://"), "/")
		require.Contains(t, []string{"discord.com", "discordapp.com"}, host)
		require.Contains(t, c.URL(), "/"+credential+"?")
		require.Equal(t, s, channel.Public(channel.Discord, s))
	})
}

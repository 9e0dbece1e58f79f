package channel_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/internal/channel"
	"github.com/elido-app/webhook/internal/channel/channeltest"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	discordID    = "1422334455667788990"
	discordToken = "aB3-_discordtoken_aB3-_discordtoken_aB3-_discordtoken_aB3-_discordto"
	botToken     = "123456789:AAabcdefghijklmnopqrstuvwxyz_-01234"
	chat         = "-1001234567890"
	sentryKey    = "0123456789abcdef0123456789abcdef"
)

var (
	published = time.Date(2026, 9, 21, 9, 14, 2, 481e6, time.UTC)
	sent      = time.Date(2026, 9, 21, 9, 14, 3, 7e6, time.UTC)
)

// vendors are the strict servers, and a channel to each.
type vendors struct {
	discord  *channeltest.Discord
	telegram *channeltest.Telegram
	sentry   *channeltest.Sentry
}

func newVendors() *vendors {
	return &vendors{
		discord:  channeltest.NewDiscord(discordID, discordToken),
		telegram: channeltest.NewTelegram(botToken, chat),
		sentry:   channeltest.NewSentry("", "42", sentryKey),
	}
}

func (v *vendors) handler(kind string) http.Handler {
	switch kind {
	case channel.Discord:
		return v.discord
	case channel.Telegram:
		return v.telegram
	}
	return v.sentry
}

var kinds = []string{channel.Discord, channel.Telegram, channel.Sentry}

// open returns a channel of a kind to the vendors.
func open(t testing.TB, kind string) *channel.Channel {
	t.Helper()
	var c *channel.Channel
	var err error
	switch kind {
	case channel.Discord:
		c, err = channel.Options{}.Open(kind, channel.Settings{URL: "https://discord.com/api/webhooks/" + discordID + "/***"}, discordToken)
	case channel.Telegram:
		c, err = channel.Options{}.Open(kind, channel.Settings{Config: map[string]string{"chat_id": chat}}, botToken)
	case channel.Sentry:
		c, err = channel.Options{}.Open(kind, channel.Settings{}, "https://"+sentryKey+"@o1.ingest.sentry.io/42")
	}
	require.NoError(t, err)
	return c
}

// post sends a message to a server and returns what the channel makes of the
// answer.
func post(c *channel.Channel, server http.Handler, body []byte) (channel.Answer, *httptest.ResponseRecorder) {
	r := httptest.NewRequest(http.MethodPost, c.URL(), bytes.NewReader(body))
	r.Header = c.Header().Clone()
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return c.Answer(w.Code, w.Header(), w.Body.Bytes()), w
}

type sample struct {
	eventType string
	data      json.RawMessage
}

// samples are an event of every type there is, and some more.
func samples(t testing.TB) (list []sample) {
	for _, e := range webhook.DefaultCatalog().Types() {
		require.NotEmpty(t, e.Sample, e.Name)
		list = append(list, sample{e.Name, e.Sample})
	}
	raw, err := os.ReadFile("testdata/further.json")
	require.NoError(t, err)
	var further map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &further))
	for _, name := range slices.Sorted(maps.Keys(further)) {
		list = append(list, sample{name, further[name]})
	}
	return list
}

func event(t testing.TB, s sample) channel.Event {
	t.Helper()
	payload, err := webhook.EnvelopeV1(webhook.EnvelopeFields{
		ID: "evt_01k5n4q9w2", Type: s.eventType, WorkspaceID: 42, Data: s.data, Time: published,
	})
	require.NoError(t, err)
	return channel.Event{
		DeliveryID: 7001, ID: "evt_01k5n4q9w2", Type: s.eventType, WorkspaceID: 42, Payload: payload, CreatedAt: published,
	}
}

// TestGolden compares the message of every event type, as it is sent and as it is
// seen, with the golden files. -update writes those anew.
func TestGolden(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			var b strings.Builder
			c := open(t, kind)
			for _, s := range samples(t) {
				v := newVendors()
				body := c.Message(event(t, s), sent)
				answer, w := post(c, v.handler(kind), body)
				require.True(t, answer.Delivered, "%s: %s\n%s", s.eventType, w.Body, body)
				fmt.Fprintf(&b, "==== %s\n\n%s\n\n%s\n", s.eventType, pretty(t, body), seen(t, v, kind))
			}
			name := filepath.Join("testdata", kind+".golden")
			if *update {
				require.NoError(t, os.WriteFile(name, []byte(b.String()), 0o600))
			}
			want, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String(), "go test ./internal/channel -run TestGolden -update writes it anew")
		})
	}
}

// pretty indents the JSON documents in a body, one a line.
func pretty(t testing.TB, body []byte) string {
	var b bytes.Buffer
	for doc := range bytes.Lines(body) {
		require.NoError(t, json.Indent(&b, bytes.TrimSpace(doc), "", "  "))
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}

// seen returns the one message that a vendor shows, after checking that nothing in
// it is markup of the event's making.
func seen(t testing.TB, v *vendors, kind string) string {
	t.Helper()
	switch kind {
	case channel.Discord:
		list := v.discord.Messages()
		require.Len(t, list, 1)
		require.Empty(t, list[0].Markup)
		require.Empty(t, list[0].Pings)
		return list[0].String()
	case channel.Telegram:
		list := v.telegram.Messages()
		require.Len(t, list, 1)
		require.Empty(t, list[0].Mentions)
		require.False(t, list[0].Preview)
		return list[0].String()
	}
	list := v.sentry.Events()
	require.Len(t, list, 1)
	return list[0].String()
}

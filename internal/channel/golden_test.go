package channel_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
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

// A sample is an event to make a message of.
type sample struct {
	Type string
	Note string // what is special about it
	Data json.RawMessage
}

// samples are an event of every type that the library brings along, types as hosts
// register them, and odd data.
func samples(t testing.TB) (list []sample) {
	for _, e := range webhook.DefaultCatalog().Types() {
		require.NotEmpty(t, e.Sample, e.Name)
		list = append(list, sample{Type: e.Name, Data: e.Sample})
	}
	for _, e := range webhook.TrafficEvents() {
		require.NotEmpty(t, e.Sample, e.Name)
		list = append(list, sample{e.Name, "traffic", e.Sample})
	}
	for _, name := range []string{"testdata/further.json", "testdata/odd.json"} {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		var further []sample
		require.NoError(t, json.Unmarshal(raw, &further))
		for _, s := range further {
			require.NotEmpty(t, s.Note)
			list = append(list, s)
		}
	}
	huge, err := json.Marshal(map[string]any{
		"id": 1, "slug": strings.Repeat("spring-", 3000), "title": strings.Repeat("👨\u200d👩\u200d👧", 3000),
		"destination_url": "https://shop.example.com/" + strings.Repeat("a", 20_000), "tags": make([]int, 20_000),
	})
	require.NoError(t, err)
	return append(list, sample{"link.created", "huge", huge})
}

func event(t testing.TB, s sample) channel.Event {
	t.Helper()
	payload, err := webhook.EnvelopeV1(webhook.EnvelopeFields{
		ID: "evt_01k5n4q9w2", Type: s.Type, WorkspaceID: 42, Data: s.Data, Time: published,
	})
	require.NoError(t, err)
	return channel.Event{
		DeliveryID: 7001, ID: "evt_01k5n4q9w2", Type: s.Type, WorkspaceID: 42, Payload: payload, CreatedAt: published,
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
				require.True(t, answer.Delivered, "%s (%s): %s\n%s", s.Type, s.Note, w.Body, body)
				title := s.Type
				if s.Note != "" {
					title += ": " + s.Note
				}
				fmt.Fprintf(&b, "==== %s\n\n%s\n\n%s\n", title, pretty(t, body), seen(t, v, kind))
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

// ourLinks are what links may be called.
var ourLinks = []string{"Open short link", "Open destination", "Open bio page", "Open page"}

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
		require.LessOrEqual(t, len(list[0].Links), 1)
		for _, l := range list[0].Links {
			require.Contains(t, ourLinks, l.Text)
		}
		return list[0].String()
	case channel.Telegram:
		list := v.telegram.Messages()
		require.Len(t, list, 1)
		require.Empty(t, list[0].Mentions)
		require.False(t, list[0].Preview)
		for _, e := range list[0].Entities {
			require.True(t, (e.Type == "text_link") == (e.URL != ""))
			require.True(t, e.URL == "" || slices.Contains(ourLinks, e.Text), e.Text)
		}
		return list[0].String()
	}
	list := v.sentry.Events()
	require.Len(t, list, 1)
	return list[0].String()
}

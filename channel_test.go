package webhook_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/internal/channel/channeltest"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

const (
	discordToken = "dT0k3n_-dT0k3n_-dT0k3n_-dT0k3n_-dT0k3n_-dT0k3n_-dT0k3n_-dT0k3n_-dT0k"
	discordURL   = "https://discord.com/api/webhooks/1422334455667788990/" + discordToken
	discordShown = "https://discord.com/api/webhooks/1422334455667788990/***"
	botToken     = "123456789:AAB0tT0k3nB0tT0k3nB0tT0k3nB0tT0k3nX"
	chatID       = "-1001234567890"
	sentryKey    = "5e47ec0de5e47ec0de5e47ec0de5e47e"
	sentryDSN    = "https://" + sentryKey + "@o1.ingest.sentry.io/42"
	sentryShown  = "https://o1.ingest.sentry.io/api/42/envelope/"
)

var channelKinds = []webhook.Kind{webhook.KindDiscord, webhook.KindTelegram, webhook.KindSentry}

// channelParams is an endpoint of a kind, to the vendors of a chats.
func channelParams(kind webhook.Kind) webhook.EndpointParams {
	p := webhook.EndpointParams{WorkspaceID: workspace, Kind: kind, Events: []string{"link.*", "member.*"}}
	switch kind {
	case webhook.KindDiscord:
		p.URL = discordURL
	case webhook.KindTelegram:
		p.Config = map[string]string{"chat_id": chatID, "bot_token": botToken}
	case webhook.KindSentry:
		p.Config = map[string]string{"dsn": sentryDSN}
	}
	return p
}

// chats is a Dispatcher and the strict servers of the vendors, at the addresses of
// the real ones.
type chats struct {
	*testing.T
	*webhook.Dispatcher
	store    store.Store
	log      *logged
	discord  *channeltest.Discord
	telegram *channeltest.Telegram
	sentry   *channeltest.Sentry

	mu   sync.Mutex
	hits []hit
}

// RoundTrip is the way to the vendors.
func (c *chats) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.hits = append(c.hits, hit{at: time.Now(), url: r.URL.String(), header: r.Header.Clone(), body: string(body)})
	c.mu.Unlock()
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	w := httptest.NewRecorder()
	switch r.URL.Host {
	case "discord.com":
		c.discord.ServeHTTP(w, r)
	case "api.telegram.org":
		c.telegram.ServeHTTP(w, r)
	case "o1.ingest.sentry.io":
		c.sentry.ServeHTTP(w, r)
	default:
		return nil, errors.New("nobody is there")
	}
	return w.Result(), nil
}

func (c *chats) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.hits)
}

// last is the request that came last.
func (c *chats) last() hit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits[len(c.hits)-1]
}

// server is what the vendors' servers have in common.
type chatServer interface {
	http.Handler
	Then(http.HandlerFunc)
	RateLimit(time.Duration)
	Break(int)
	Requests() int
}

func (c *chats) server(kind webhook.Kind) chatServer {
	switch kind {
	case webhook.KindDiscord:
		return c.discord
	case webhook.KindTelegram:
		return c.telegram
	}
	return c.sentry
}

// shown is how many messages are to be seen.
func (c *chats) shown(kind webhook.Kind) int {
	switch kind {
	case webhook.KindDiscord:
		return len(c.discord.Messages())
	case webhook.KindTelegram:
		return len(c.telegram.Messages())
	}
	return len(c.sentry.Events())
}

func newChats(t *testing.T, st store.Store, config webhook.Config) *chats {
	c := &chats{
		T: t, store: st, log: &logged{},
		discord:  channeltest.NewDiscord("1422334455667788990", discordToken),
		telegram: channeltest.NewTelegram(botToken, chatID),
		sentry:   channeltest.NewSentry("", "42", sentryKey),
	}
	if config.Egress.Transport == nil && config.Egress.Resolver == nil && !config.Egress.AllowLoopback {
		config.Egress.Transport = c
	}
	// How fast is for the tests of that.
	config.Channels.DiscordRateLimit, config.Channels.TelegramRateLimit = -1, -1
	if config.Retry.Delays == nil {
		config.Retry.Delays = []time.Duration{0, 0}
	}
	config.Logger = slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	c.Dispatcher, err = webhook.New(st, config)
	require.NoError(t, err)
	return c
}

// onStores runs a test on the stores that come with the module.
func onStores(t *testing.T, config webhook.Config, test func(c *chats)) {
	t.Run("memory", func(t *testing.T) { test(newChats(t, memorystore.New(memorystore.Options{}), config)) })
	t.Run("sqlite", func(t *testing.T) {
		st, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "webhooks.db"))
		require.NoError(t, err)
		defer func() { require.NoError(t, st.Close()) }()
		test(newChats(t, st, config))
	})
}

func (c *chats) create(kind webhook.Kind) webhook.Endpoint {
	c.Helper()
	e, secret, err := c.CreateEndpoint(c.Context(), channelParams(kind))
	require.NoError(c, err)
	require.True(c, secret.IsZero(), "there is nothing to sign with")
	return e
}

// publish publishes an event for the one endpoint there is.
func (c *chats) publish(eventType, data string) int64 {
	c.Helper()
	r, err := c.Publish(c.Context(), webhook.Event{Type: eventType, WorkspaceID: workspace, Data: json.RawMessage(data)})
	require.NoError(c, err)
	require.Len(c, r.DeliveryIDs, 1)
	return r.DeliveryIDs[0]
}

// run makes the attempts that are due.
func (c *chats) run() {
	c.Helper()
	_, err := c.RunOnce(c.Context())
	require.NoError(c, err)
}

func (c *chats) delivery(id int64) (webhook.Delivery, []webhook.Attempt) {
	c.Helper()
	d, err := c.Delivery(c.Context(), workspace, id)
	require.NoError(c, err)
	attempts, err := c.Attempts(c.Context(), workspace, id)
	require.NoError(c, err)
	return d, attempts
}

const link = `{"id":91834,"slug":"spring-sale","destination_url":"https://shop.example.com/spring"}`

// TestChannelsDeliver: an event is a message, and the log has it as it was sent.
func TestChannelsDeliver(t *testing.T) {
	onStores(t, webhook.Config{}, func(c *chats) {
		for _, kind := range channelKinds {
			e := c.create(kind)
			id := c.publish("link.created", link)
			c.run()
			d, attempts := c.delivery(id)
			require.Equal(c, webhook.StatusDelivered, d.Status, "%s: %s", kind, d.LastError)
			require.Equal(c, 1, c.shown(kind))
			h := c.last()
			require.Equal(c, h.body, string(d.Message), "the message as it was sent")
			require.Contains(c, string(d.Payload), `{"type":"link.created"`, "and the event as it was published")
			require.Len(c, attempts, 1)
			require.Equal(c, 200, attempts[0].Status)
			for name := range h.header {
				require.Contains(c, []string{"Content-Type", "User-Agent", "X-Sentry-Auth"}, name, "nothing is signed")
			}
			require.Contains(c, attempts[0].Headers, "User-Agent")
			if kind == webhook.KindSentry {
				require.Equal(c, "[redacted]", attempts[0].Headers["X-Sentry-Auth"])
			}

			_, _, err := c.RotateSecret(c.Context(), workspace, e.ID, webhook.RotateOptions{})
			invalid(c, err, "kind")
			require.NoError(c, c.DeleteEndpoint(c.Context(), workspace, e.ID))
		}
		require.Equal(c, "spring-sale was created", c.discord.Messages()[0].Embeds[0].Title)
		require.Contains(c, c.telegram.Messages()[0].Text, "spring-sale was created\n")
		require.Equal(c, "spring-sale was created", c.sentry.Events()[0].Title)
		require.Equal(c, "42", c.sentry.Events()[0].Tags["workspace_id"])
	})
}

// TestChannelsOverSockets: the same through real connections, at bases of the
// host's own, with Run.
func TestChannelsOverSockets(t *testing.T) {
	c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{Egress: webhook.Egress{AllowLoopback: true}})
	discord, telegram, sentry := httptest.NewServer(c.discord), httptest.NewServer(c.telegram), httptest.NewServer(c.sentry)
	defer discord.Close()
	defer telegram.Close()
	defer sentry.Close()
	d, err := webhook.New(c.store, webhook.Config{
		Egress:   webhook.Egress{AllowLoopback: true},
		Channels: webhook.Channels{DiscordBase: discord.URL, TelegramBase: telegram.URL + "/", DiscordRateLimit: -1, TelegramRateLimit: -1},
		Logger:   quiet(),
	})
	require.NoError(t, err)
	for _, kind := range channelKinds {
		p := channelParams(kind)
		if kind == webhook.KindSentry {
			p.Config["dsn"] = strings.Replace(sentry.URL, "http://", "http://"+sentryKey+"@", 1) + "/42"
		}
		_, _, err := d.CreateEndpoint(t.Context(), p)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	const events = 20
	for i := range events {
		_, err := d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: map[string]any{"slug": fmt.Sprint("s", i)}})
		require.NoError(t, err)
	}
	for _, kind := range channelKinds {
		require.Eventually(t, func() bool { return c.shown(kind) == events }, time.Minute, 10*time.Millisecond, kind)
	}
	cancel()
	require.NoError(t, <-done)
}

// TestEveryTypeReachesEveryChannel: there is a message for each type that can be
// published, and for a test send.
func TestEveryTypeReachesEveryChannel(t *testing.T) {
	catalog := webhook.DefaultCatalog()
	require.NoError(t, catalog.Add(webhook.TrafficEvents()...))
	require.NoError(t, catalog.Add(webhook.EventType{Name: "order.paid", Sample: json.RawMessage(`{"number":"A-1","total":"49.50"}`)}))
	for _, kind := range channelKinds {
		c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{Catalog: catalog})
		p := channelParams(kind)
		p.Events = nil
		for _, e := range catalog.Types() {
			if e.Subscribable() {
				p.Events = append(p.Events, e.Name)
			}
		}
		e, _, err := c.CreateEndpoint(t.Context(), p)
		require.NoError(t, err)
		for i, name := range p.Events {
			eventType, ok := catalog.Lookup(name)
			require.True(t, ok)
			id := c.publish(name, string(eventType.Sample))
			c.run()
			d, _ := c.delivery(id)
			require.Equal(t, webhook.StatusDelivered, d.Status, "%s: %s", name, d.LastError)
			require.Equal(t, i+1, c.shown(kind))
		}
		_, err = c.SendTest(t.Context(), workspace, e.ID)
		require.NoError(t, err)
		c.run()
		require.Equal(t, len(p.Events)+1, c.shown(kind))
		require.Contains(t, c.last().body, "Test event from Elido")
	}
}

// TestChannelRetries: what is not final is tried again within the same budget,
// after what the vendor asked for.
func TestChannelRetries(t *testing.T) {
	onStores(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{time.Minute, 0}}}, func(c *chats) {
		for _, kind := range channelKinds {
			e := c.create(kind)
			for name, test := range map[string]struct {
				answer func()
				wait   time.Duration
				says   string
			}{
				"limited shortly":  {func() { c.server(kind).RateLimit(5 * time.Second) }, time.Minute, "HTTP 429 Too Many Requests: "},
				"limited for long": {func() { c.server(kind).RateLimit(90 * time.Second) }, 90 * time.Second, "HTTP 429 Too Many Requests: "},
				"unavailable":      {func() { c.server(kind).Break(503) }, time.Minute, "HTTP 503 Service Unavailable"},
				"conflict":         {func() { c.server(kind).Break(409) }, time.Minute, "HTTP 409 Conflict"},
			} {
				id := c.publish("link.created", link)
				test.answer()
				c.run()
				d, attempts := c.delivery(id)
				require.Equal(c, webhook.StatusPending, d.Status, name)
				require.Equal(c, 1, d.Attempts)
				require.True(c, strings.HasPrefix(string(d.LastError), test.says), "%s", d.LastError)
				require.NotEmpty(c, d.Message)
				after := attempts[0].StartedAt.Add(test.wait)
				require.False(c, d.NextAttemptAt.Before(after), name)
				require.True(c, d.NextAttemptAt.Before(after.Add(30*time.Second)), name)
			}
			require.NoError(c, c.DeleteEndpoint(c.Context(), workspace, e.ID))
		}
	})
}

// TestChannelWaits: what only the body asks for, and what nobody can mean.
func TestChannelWaits(t *testing.T) {
	for number, want := range map[string]time.Duration{"120.5": 120500 * time.Millisecond, "1e300": 24 * time.Hour, `"NaN"`: time.Minute, "-1": time.Minute, "3": time.Minute} {
		for _, kind := range []webhook.Kind{webhook.KindDiscord, webhook.KindTelegram} {
			c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{time.Minute}}})
			c.create(kind)
			c.server(kind).Then(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = w.Write([]byte(`{"ok":false,"message":"slow down","retry_after":` + number + `,"parameters":{"retry_after":` + number + `}}`))
			})
			id := c.publish("link.created", link)
			c.run()
			d, attempts := c.delivery(id)
			wait := d.NextAttemptAt.Sub(attempts[0].StartedAt)
			require.GreaterOrEqual(t, wait, want, number)
			require.Less(t, wait, want+30*time.Second, number)
		}
	}
}

// TestChannelFinals: what is final fails at the first attempt; a manual retry
// sends the same delivery again.
func TestChannelFinals(t *testing.T) {
	for _, test := range []struct {
		kind   webhook.Kind
		status int
		body   string
		want   string
	}{
		{webhook.KindDiscord, 404, `{"message":"Unknown Webhook","code":10015}`, "HTTP 404 Not Found: Unknown Webhook (code 10015) (not tried again)"},
		{webhook.KindDiscord, 401, `{"message":"Invalid Webhook Token","code":50027}`, "HTTP 401 Unauthorized: Invalid Webhook Token (code 50027) (not tried again)"},
		{webhook.KindDiscord, 403, ``, "HTTP 403 Forbidden (not tried again)"},
		{webhook.KindTelegram, 400, `{"ok":false,"description":"Bad Request: chat not found"}`, "HTTP 400 Bad Request: chat not found (not tried again)"},
		{webhook.KindTelegram, 401, `{"ok":false,"description":"Unauthorized"}`, "HTTP 401 Unauthorized: Unauthorized (not tried again)"},
		{webhook.KindTelegram, 403, `{"ok":false,"description":"Forbidden: bot was kicked from the channel chat"}`, "HTTP 403 Forbidden: bot was kicked from the channel chat (not tried again)"},
		{webhook.KindTelegram, 404, `{"ok":false,"description":"Not Found"}`, "HTTP 404 Not Found: Not Found (not tried again)"},
		{webhook.KindSentry, 401, `{"detail":"missing authorization information"}`, "HTTP 401 Unauthorized: missing authorization information (not tried again)"},
		{webhook.KindSentry, 403, `{"detail":"event submission rejected with_reason: ProjectId"}`, "HTTP 403 Forbidden: event submission rejected with_reason: ProjectId (not tried again)"},
		{webhook.KindSentry, 413, ``, "HTTP 413 Request Entity Too Large (not tried again)"},
	} {
		onStores(t, webhook.Config{}, func(c *chats) {
			c.create(test.kind)
			c.server(test.kind).Then(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			})
			id := c.publish("link.created", link)
			c.run()
			d, attempts := c.delivery(id)
			require.Equal(c, webhook.StatusFailed, d.Status)
			require.Len(c, attempts, 1)
			require.Equal(c, 3, d.Budget, "and not because it was the last")
			require.Equal(c, test.status, d.LastStatus)
			require.Equal(c, test.want, string(d.LastError))
			require.NotEmpty(c, d.Message)
			require.Contains(c, c.log.String(), `error="HTTP `+fmt.Sprint(test.status)+" "+http.StatusText(test.status)+`"`)
			if _, reason, ok := strings.Cut(test.want, ": "); ok && reason != "Unauthorized (not tried again)" && reason != "Not Found (not tried again)" {
				require.NotContains(c, c.log.String(), strings.TrimSuffix(reason, " (not tried again)"), "what somebody answered is not for the log")
			}
			c.run()
			require.Equal(c, 1, c.requests())

			_, err := c.Retry(c.Context(), workspace, id)
			require.NoError(c, err)
			c.run()
			d, attempts = c.delivery(id)
			require.Equal(c, webhook.StatusDelivered, d.Status)
			require.Len(c, attempts, 2)
			require.Equal(c, 1, c.shown(test.kind))
		})
	}
}

// TestTelegramNotOK: 200 is not enough.
func TestTelegramNotOK(t *testing.T) {
	c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}})
	c.create(webhook.KindTelegram)
	c.telegram.Then(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"ok":false,"error_code":500,"description":"later"}`))
	})
	id := c.publish("link.created", link)
	c.run()
	d, _ := c.delivery(id)
	require.Equal(t, webhook.StatusFailed, d.Status)
	require.Equal(t, 200, d.LastStatus)
	require.Equal(t, "HTTP 200 OK, but the message was refused: later", string(d.LastError))
}

// TestSentryEventOnce: an answer that was lost makes a second request and no
// second event.
func TestSentryEventOnce(t *testing.T) {
	c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{})
	c.create(webhook.KindSentry)
	c.sentry.Then(func(w http.ResponseWriter, r *http.Request) {
		c.sentry.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusBadGateway)
	})
	c.publish("link.broken", link)
	require.Eventually(t, func() bool { c.run(); return c.requests() > 1 }, time.Minute, time.Millisecond)
	c.run()
	require.Equal(t, 2, c.requests())
	require.Len(t, c.sentry.Events(), 1)
	require.Equal(t, 1, c.sentry.Repeats())
	require.Equal(t, "error", c.sentry.Events()[0].Level)
}

// TestChannelSettingsAreRefused: when saved, with the field and the rule.
func TestChannelSettingsAreRefused(t *testing.T) {
	c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{})
	for _, test := range []struct {
		kind   webhook.Kind
		field  string
		rule   string
		change func(p *webhook.EndpointParams)
	}{
		{"discord", "url", "required", func(p *webhook.EndpointParams) { p.URL = "" }},
		{"discord", "url", "Discord webhook", func(p *webhook.EndpointParams) { p.URL = "https://discord.com.evil.tld/api/webhooks/1/hunter2" }},
		{"discord", "url", "Discord webhook", func(p *webhook.EndpointParams) { p.URL = "https://discord.com@evil.tld/api/webhooks/1/hunter2" }},
		{"discord", "url", "Discord webhook", func(p *webhook.EndpointParams) { p.URL = "https://evil.tld/discord.com/api/webhooks/1/hunter2" }},
		{"discord", "url", "Discord webhook", func(p *webhook.EndpointParams) { p.URL = "http://discord.com/api/webhooks/1/hunter2" }},
		{"discord", "url", "token", func(p *webhook.EndpointParams) { p.URL = discordShown }},
		{"discord", "config", "empty", func(p *webhook.EndpointParams) { p.Config = map[string]string{"token": "hunter2"} }},
		{"discord", "secret", "not signed", func(p *webhook.EndpointParams) { p.Secret = webhook.NewSecret("whsec_hunter2hunter2hunter2hunter2") }},
		{"discord", "events", "at least one", func(p *webhook.EndpointParams) { p.Events = nil }},
		{"telegram", "config.chat_id", "required", func(p *webhook.EndpointParams) { delete(p.Config, "chat_id") }},
		{"telegram", "config.chat_id", "number", func(p *webhook.EndpointParams) { p.Config["chat_id"] = "hunter2" }},
		{"telegram", "config.bot_token", "required", func(p *webhook.EndpointParams) { delete(p.Config, "bot_token") }},
		{"telegram", "config.bot_token", "BotFather", func(p *webhook.EndpointParams) { p.Config["bot_token"] = "123:hunter2" }},
		{"telegram", "config.chat_id", "required", func(p *webhook.EndpointParams) { p.Config = nil }},
		{"telegram", "config", "chat_id and bot_token", func(p *webhook.EndpointParams) { p.Config["hunter2"] = "x" }},
		{"telegram", "url", "empty", func(p *webhook.EndpointParams) { p.URL = "https://api.telegram.org/bothunter2" }},
		{"sentry", "config.dsn", "required", func(p *webhook.EndpointParams) { p.Config = nil }},
		{"sentry", "config.dsn", "Sentry DSN", func(p *webhook.EndpointParams) { p.Config["dsn"] = "https://hunter2.example/42" }},
		{"sentry", "config.dsn", "https", func(p *webhook.EndpointParams) { p.Config["dsn"] = "http://hunter2@sentry.example/42" }},
		{"sentry", "config.dsn", "not a public one", func(p *webhook.EndpointParams) { p.Config["dsn"] = "https://hunter2@169.254.169.254/42" }},
		{"sentry", "config.dsn", "AllowLoopback", func(p *webhook.EndpointParams) { p.Config["dsn"] = "http://hunter2@localhost:9000/42" }},
		{"sentry", "url", "empty", func(p *webhook.EndpointParams) { p.URL = "https://sentry.example" }},
	} {
		p := channelParams(test.kind)
		test.change(&p)
		_, _, err := c.CreateEndpoint(t.Context(), p)
		invalid(t, err, test.field)
		require.Contains(t, err.Error(), test.rule)
		require.NotContains(t, err.Error(), "hunter2")
	}
	list, err := c.Endpoints(t.Context(), workspace, 0, 0)
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestStoredChannelSettingsAreRefused: rows that no Dispatcher of today would have
// saved fail at once, with a reason that can be read and gives nothing away, and
// without a request.
func TestStoredChannelSettingsAreRefused(t *testing.T) {
	secret := func(s string) store.Secrets {
		return store.Secrets{Credentials: store.Sealed{Data: store.NewSecret(s)}}
	}
	for name, test := range map[string]struct {
		endpoint store.Endpoint
		secrets  store.Secrets
		reason   string
	}{
		"telegram without chat_id":    {store.Endpoint{Kind: store.KindTelegram}, secret(botToken), "config.chat_id is required"},
		"telegram with a bad chat_id": {store.Endpoint{Kind: store.KindTelegram, Config: map[string]string{"chat_id": "canary"}}, secret(botToken), "config.chat_id must be"},
		"telegram without token":      {store.Endpoint{Kind: store.KindTelegram, Config: map[string]string{"chat_id": chatID}}, store.Secrets{}, "config.bot_token is required"},
		"telegram with a bad token":   {store.Endpoint{Kind: store.KindTelegram, Config: map[string]string{"chat_id": chatID}}, secret("123:canary/../canary"), "config.bot_token must be"},
		"telegram, token in config":   {store.Endpoint{Kind: store.KindTelegram, Config: map[string]string{"chat_id": chatID, "bot_token": "123:canary"}}, store.Secrets{}, "config.bot_token is required"},
		"sentry without dsn":          {store.Endpoint{Kind: store.KindSentry}, store.Secrets{}, "config.dsn is required"},
		"sentry with a malformed dsn": {store.Endpoint{Kind: store.KindSentry}, secret("https://canary.example/canary"), "config.dsn must be"},
		"sentry at a private address": {store.Endpoint{Kind: store.KindSentry}, secret("https://canary@10.0.0.1/42"), "not a public one"},
		"sentry without tls":          {store.Endpoint{Kind: store.KindSentry}, secret("http://canary@sentry.example/42"), "https://"},
		"discord, another host":       {store.Endpoint{Kind: store.KindDiscord, URL: "https://discord.com.evil.tld/api/webhooks/1/canary"}, store.Secrets{}, "url must be the URL of a Discord webhook"},
		"discord, another host too":   {store.Endpoint{Kind: store.KindDiscord, URL: "https://evil.tld/api/webhooks/1/***"}, secret("canary"), "url must be the URL of a Discord webhook"},
		"discord without url":         {store.Endpoint{Kind: store.KindDiscord}, secret("canary"), "url must be the URL of a Discord webhook"},
		"discord without token":       {store.Endpoint{Kind: store.KindDiscord, URL: discordShown}, store.Secrets{}, "with the token at its end"},
		"discord with a bad token":    {store.Endpoint{Kind: store.KindDiscord, URL: discordShown}, secret("canary/../canary"), "with the token at its end"},
	} {
		t.Run(name, func(t *testing.T) {
			onStores(t, webhook.Config{}, func(c *chats) {
				now := time.Now().UTC().Truncate(time.Millisecond)
				e := test.endpoint
				e.WorkspaceID, e.Events, e.Active, e.CreatedAt, e.UpdatedAt = workspace, []string{"link.*"}, true, now, now
				e, err := c.store.CreateEndpoint(c.Context(), store.CreateEndpointParams{
					Endpoint: e, Seal: func(int64) (store.Secrets, error) { return test.secrets, nil },
				})
				require.NoError(c, err)
				id := c.publish("link.created", link)
				c.run()
				d, attempts := c.delivery(id)
				require.Equal(c, webhook.StatusFailed, d.Status)
				require.Contains(c, string(d.LastError), test.reason)
				require.Len(c, attempts, 1)
				require.Equal(c, 3, d.Budget)
				require.Empty(c, d.Message, "there was none")
				c.run()
				require.Zero(c, c.requests())
				_, err = c.SendTest(c.Context(), workspace, e.ID)
				require.NoError(c, err)
				c.run()
				require.Zero(c, c.requests())

				shown, err := c.Endpoint(c.Context(), workspace, e.ID)
				require.NoError(c, err)
				list, err := c.Endpoints(c.Context(), workspace, 0, 0)
				require.NoError(c, err)
				page, err := c.Deliveries(c.Context(), webhook.DeliveryQuery{WorkspaceID: workspace})
				require.NoError(c, err)
				paused, err := c.PauseEndpoint(c.Context(), workspace, e.ID)
				require.NoError(c, err, "it can still be paused")
				raw, err := json.Marshal([]any{shown, list, page, attempts, paused})
				require.NoError(c, err)
				for _, text := range []string{string(raw), c.log.String()} {
					// A chat id is shown; it is what the owner must correct.
					text = strings.ReplaceAll(text, `"chat_id":"canary"`, "")
					for _, canary := range []string{"canary", botToken} {
						require.NotContains(c, text, canary)
					}
				}
			})
		})
	}
}

// TestOldDiscordRow: one that was stored with its whole URL is delivered, and does
// not show its token.
func TestOldDiscordRow(t *testing.T) {
	onStores(t, webhook.Config{}, func(c *chats) {
		e, err := c.store.CreateEndpoint(c.Context(), store.CreateEndpointParams{
			Endpoint: store.Endpoint{WorkspaceID: workspace, Kind: store.KindDiscord, URL: discordURL, Events: []string{"link.*"}, Active: true, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC()},
			Seal:     func(int64) (store.Secrets, error) { return store.Secrets{}, nil },
		})
		require.NoError(c, err)
		shown, err := c.Endpoint(c.Context(), workspace, e.ID)
		require.NoError(c, err)
		require.Equal(c, discordShown, shown.URL)
		text := "renamed"
		shown, err = c.UpdateEndpoint(c.Context(), workspace, e.ID, webhook.EndpointUpdate{URL: &shown.URL, Description: &text})
		require.NoError(c, err)
		require.Equal(c, discordShown, shown.URL)
		c.publish("link.created", link)
		c.run()
		require.Equal(c, 1, c.shown(webhook.KindDiscord))
	})
}

// TestUpdateChannel: what is not given anew stays, credentials included; what is,
// takes effect.
func TestUpdateChannel(t *testing.T) {
	keys := webhook.Keyring{Current: "a", Keys: map[string]webhook.Secret{"a": webhook.NewSecret(strings.Repeat("k", 32))}}
	onStores(t, webhook.Config{Keys: keys}, func(c *chats) {
		update := func(e webhook.Endpoint, u webhook.EndpointUpdate) webhook.Endpoint {
			c.Helper()
			e, err := c.UpdateEndpoint(c.Context(), workspace, e.ID, u)
			require.NoError(c, err)
			return e
		}
		refused := func(e webhook.Endpoint, field string, u webhook.EndpointUpdate) {
			c.Helper()
			_, err := c.UpdateEndpoint(c.Context(), workspace, e.ID, u)
			invalid(c, err, field)
		}
		delivered := func() hit {
			c.Helper()
			before := c.requests()
			c.publish("link.created", link)
			c.run()
			require.Equal(c, before+1, c.requests())
			return c.last()
		}
		text := "new"

		e := c.create(webhook.KindDiscord)
		require.Equal(c, discordShown, e.URL)
		update(e, webhook.EndpointUpdate{Description: &text, Headers: map[string]string{"X-A": "b"}})
		e = update(e, webhook.EndpointUpdate{URL: &e.URL}) // as a form gives it back
		require.Equal(c, discordShown, e.URL)
		require.Equal(c, map[string]string{"X-A": "b"}, e.Headers)
		require.Equal(c, discordURL+"?wait=true", delivered().url)
		other := "https://discord.com/api/webhooks/7/***"
		refused(e, "url", webhook.EndpointUpdate{URL: &other})
		other = "https://evil.tld/api/webhooks/7/abc"
		refused(e, "url", webhook.EndpointUpdate{URL: &other})
		refused(e, "config", webhook.EndpointUpdate{Config: map[string]string{"a": "b"}})
		other = "https://discordapp.com/api/webhooks/7/abc"
		e = update(e, webhook.EndpointUpdate{URL: &other})
		require.Equal(c, "https://discordapp.com/api/webhooks/7/***", e.URL)
		require.Empty(c, e.Headers, "they belonged to the old host")
		require.Equal(c, other+"?wait=true", delivered().url)
		require.NoError(c, c.DeleteEndpoint(c.Context(), workspace, e.ID))

		e = c.create(webhook.KindTelegram)
		require.Equal(c, map[string]string{"chat_id": chatID}, e.Config)
		e = update(e, webhook.EndpointUpdate{Config: map[string]string{"chat_id": "@acme"}, URL: &e.URL})
		require.Equal(c, map[string]string{"chat_id": "@acme"}, e.Config)
		h := delivered()
		require.Contains(c, h.url, botToken)
		require.Contains(c, h.body, `"chat_id":"@acme"`)
		refused(e, "config.bot_token", webhook.EndpointUpdate{Config: map[string]string{"bot_token": ""}})
		refused(e, "config.chat_id", webhook.EndpointUpdate{Config: map[string]string{"chat_id": ""}})
		refused(e, "url", webhook.EndpointUpdate{URL: &other})
		second := strings.Replace(botToken, "123", "987", 1)
		e = update(e, webhook.EndpointUpdate{Config: map[string]string{"bot_token": second}})
		require.Equal(c, map[string]string{"chat_id": "@acme"}, e.Config)
		require.Contains(c, delivered().url, second)
		require.NoError(c, c.DeleteEndpoint(c.Context(), workspace, e.ID))

		e = c.create(webhook.KindSentry)
		require.Equal(c, sentryShown, e.URL)
		require.Empty(c, e.Config)
		e = update(e, webhook.EndpointUpdate{URL: &e.URL, Headers: map[string]string{"X-A": "b"}})
		require.Contains(c, delivered().header.Get("X-Sentry-Auth"), sentryKey)
		refused(e, "config.dsn", webhook.EndpointUpdate{Config: map[string]string{"dsn": "x"}})
		e = update(e, webhook.EndpointUpdate{Config: map[string]string{"dsn": "https://other@sentry.example/p/7"}})
		require.Equal(c, "https://sentry.example/p/api/7/envelope/", e.URL)
		require.Empty(c, e.Headers)
		require.Contains(c, delivered().header.Get("X-Sentry-Auth"), "sentry_key=other")

		signed, _, err := c.CreateEndpoint(c.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/", Events: []string{"link.*"}})
		require.NoError(c, err)
		refused(signed, "config", webhook.EndpointUpdate{Config: map[string]string{"dsn": sentryDSN}})
		update(signed, webhook.EndpointUpdate{Config: map[string]string{}})
	})
}

// TestImportChannel: an endpoint from elsewhere keeps its id and brings its
// credentials.
func TestImportChannel(t *testing.T) {
	onStores(t, webhook.Config{}, func(c *chats) {
		created := time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)
		for i, kind := range channelKinds {
			e, err := c.ImportEndpoint(c.Context(), webhook.ImportParams{EndpointParams: channelParams(kind), ID: int64(700 + i), CreatedAt: created})
			require.NoError(c, err)
			require.Equal(c, int64(700+i), e.ID)
			require.Equal(c, created, e.CreatedAt)
			c.publish("link.created", link)
			c.run()
			require.Equal(c, 1, c.shown(kind))
			require.NoError(c, c.DeleteEndpoint(c.Context(), workspace, e.ID))
		}
		secret := webhook.NewSecret("whsec_" + strings.Repeat("a", 32))
		for field, change := range map[string]func(p *webhook.ImportParams){
			"secret":         func(p *webhook.ImportParams) { p.Secret = secret },
			"previous":       func(p *webhook.ImportParams) { p.Previous, p.PreviousUntil = secret, time.Now().Add(time.Hour) },
			"config.chat_id": func(p *webhook.ImportParams) { delete(p.Config, "chat_id") },
		} {
			p := webhook.ImportParams{EndpointParams: channelParams(webhook.KindTelegram), CreatedAt: created}
			change(&p)
			_, err := c.ImportEndpoint(c.Context(), p)
			invalid(c, err, field)
		}
		p := webhook.ImportParams{EndpointParams: channelParams(webhook.KindSentry), CreatedAt: created, Rotations: 1}
		_, err := c.ImportEndpoint(c.Context(), p)
		invalid(c, err, "previous")
	})
}

// TestChannelsGuarded: the address guard is the same for messages.
func TestChannelsGuarded(t *testing.T) {
	for _, kind := range channelKinds {
		c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{Egress: webhook.Egress{Resolver: loopbackResolver{}}})
		c.create(kind)
		id := c.publish("link.created", link)
		c.run()
		d, _ := c.delivery(id)
		require.Equal(t, webhook.StatusPending, d.Status, "a name that resolves to it is a failed attempt")
		require.Equal(t, "the address is not allowed", string(d.LastError))
		require.Empty(t, d.Message, "nothing was sent")
	}
}

type loopbackResolver struct{}

func (loopbackResolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// TestChannelBases: bases are checked with the rest of the configuration.
// TestEchoedTokenIsNotStored: in whatever way a server writes it.
func TestEchoedTokenIsNotStored(t *testing.T) {
	const secret = "AbCdEfGhIjKlMnOpQrStUvWxYz012345678"
	escaped := func(format string) string {
		var b strings.Builder
		for _, c := range []byte(secret) {
			fmt.Fprintf(&b, format, c)
		}
		return b.String()
	}
	bubble(t, webhook.Config{Channels: webhook.Channels{TelegramRateLimit: -1}}, func(w *world) {
		_, _, err := w.CreateEndpoint(w.Context(), webhook.EndpointParams{
			WorkspaceID: workspace, Kind: webhook.KindTelegram, Events: []string{"link.*"},
			Config: map[string]string{"chat_id": "-1001", "bot_token": "123456789:" + secret},
		})
		require.NoError(w, err)
		w.run()
		for _, text := range []string{secret, escaped("%%%02x"), escaped(`\u%04x`), escaped("&#%d;")} {
			w.net.set(func(*http.Request, int) (*http.Response, error) {
				return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(strings.NewReader("you sent " + text + "!"))}, nil
			})
			r := w.publish(webhook.Event{})
			w.settle()
			list := w.attempts(r.DeliveryIDs[0])
			require.Len(w, list, 1)
			require.NotContains(w, string(list[0].Response), text)
			require.Contains(w, string(list[0].Response), "you sent ")
		}
	})
}

func TestChannelBases(t *testing.T) {
	for field, channels := range map[string]webhook.Channels{
		"Channels.DiscordBase":  {DiscordBase: "http://127.0.0.1:8000"},
		"Channels.TelegramBase": {TelegramBase: "https://api.example/?token=hunter2"},
	} {
		_, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Channels: channels})
		invalid(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{
		Channels: webhook.Channels{DiscordBase: "http://127.0.0.1:8000/", TelegramBase: "https://bots.example/api"},
		Egress:   webhook.Egress{AllowLoopback: true},
	})
	require.NoError(t, err)
}

// TestUnknownKindWaits: a kind that a newer version saved is not this one's to
// fail.
func TestUnknownKindWaits(t *testing.T) {
	c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{})
	_, err := c.store.CreateEndpoint(t.Context(), store.CreateEndpointParams{
		Endpoint: store.Endpoint{WorkspaceID: workspace, Kind: "slack", URL: "https://example.com/", Events: []string{"link.*"}, Active: true},
		Seal:     func(int64) (store.Secrets, error) { return store.Secrets{}, nil },
	})
	require.NoError(t, err)
	id := c.publish("link.created", link)
	c.run()
	d, attempts := c.delivery(id)
	require.Equal(t, webhook.StatusPending, d.Status)
	require.Empty(t, attempts)
	require.Equal(t, `endpoints of kind "slack" are not supported by this version`, string(d.LastError))
}

// TestChannelCredentialsAreSealed: under the keys, to their endpoint, apart from
// secrets.
func TestChannelCredentialsAreSealed(t *testing.T) {
	keys := webhook.Keyring{Current: "a", Keys: map[string]webhook.Secret{"a": webhook.NewSecret(strings.Repeat("k", 32))}}
	for _, kind := range channelKinds {
		c := newChats(t, memorystore.New(memorystore.Options{}), webhook.Config{Keys: keys})
		e := c.create(kind)
		id := c.publish("link.created", link)
		claimed, err := c.store.Claim(t.Context(), store.ClaimParams{Now: time.Now(), LeaseParams: store.LeaseParams{
			Token: 1, Until: time.Now().Add(time.Minute), Room: store.Room{Limit: 1, PerEndpoint: 1},
		}})
		require.NoError(t, err)
		sealed := claimed.Leases[0].Target.Secrets.Credentials
		require.Equal(t, "a", sealed.KeyID)
		require.True(t, claimed.Leases[0].Target.Secrets.Current.IsZero())
		for _, plain := range []string{discordToken, botToken, sentryKey} {
			require.NotContains(t, sealed.Data.Reveal(), plain)
		}
		require.NoError(t, c.store.Release(t.Context(), []store.Release{{LeaseRef: claimed.Leases[0].Ref()}}))

		// Moved to another endpoint, they do not open: its deliveries wait.
		other, err := c.UpdateEndpoint(t.Context(), workspace, e.ID, webhook.EndpointUpdate{})
		require.NoError(t, err)
		foreign := sealed
		foreign.Data = webhook.NewSecret(sealed.Data.Reveal()[:20] + strings.Repeat("x", len(sealed.Data.Reveal())-20))
		_, err = c.store.UpdateEndpoint(t.Context(), other, &foreign)
		require.NoError(t, err)
		c.run()
		d, attempts := c.delivery(id)
		require.Equal(t, webhook.StatusPending, d.Status)
		require.Empty(t, attempts)
		require.Contains(t, string(d.LastError), "credentials does not decrypt")
		require.Zero(t, c.requests())
	}
}

// TestChannelCanary: whatever goes wrong, no credential shows in a log line, an
// error, a record, or the file.
func TestChannelCanary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhooks.db")
	st, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	keys := webhook.Keyring{Current: "a", Keys: map[string]webhook.Secret{"a": webhook.NewSecret(strings.Repeat("k", 32))}}
	c := newChats(t, st, webhook.Config{Keys: keys})
	var texts []string
	say := func(v any) {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		texts = append(texts, string(raw), fmt.Sprintf("%+v %#v", v, v))
	}
	echo := func(status int, write func(w io.Writer, r *http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Sentry-Error", r.Header.Get("X-Sentry-Auth"))
			w.Header().Set("Location", r.URL.String())
			w.WriteHeader(status)
			write(w, r)
		}
	}
	all := func(r *http.Request) string { return r.URL.String() + " " + r.Header.Get("X-Sentry-Auth") }
	for _, kind := range channelKinds {
		e := c.create(kind)
		say(e)
		answers := []http.HandlerFunc{
			echo(500, func(w io.Writer, r *http.Request) { fmt.Fprintf(w, "you sent %s", all(r)) }),
			echo(302, func(w io.Writer, r *http.Request) { fmt.Fprint(w, url.QueryEscape(all(r))) }),
			echo(404, func(w io.Writer, r *http.Request) { fmt.Fprint(w, hex.EncodeToString([]byte(all(r)))) }),
			echo(429, func(w io.Writer, r *http.Request) {
				fmt.Fprint(w, base64.StdEncoding.EncodeToString([]byte(all(r))), base64.URLEncoding.EncodeToString([]byte("x"+all(r))))
			}),
			echo(403, func(w io.Writer, r *http.Request) {
				_ = json.NewEncoder(w).Encode(map[string]any{"ok": false, "description": all(r), "message": all(r), "detail": all(r), "causes": []string{all(r)}})
			}),
			echo(200, func(w io.Writer, r *http.Request) {
				_ = json.NewEncoder(w).Encode(map[string]any{"ok": false, "description": all(r)})
			}),
			echo(502, func(w io.Writer, r *http.Request) {
				fmt.Fprint(w, strings.Repeat("a", 16<<10-30-len(r.URL.Path)/2), all(r))
			}),
		}
		for _, answer := range answers {
			c.server(kind).Then(answer)
			id := c.publish("link.created", link)
			c.run()
			d, attempts := c.delivery(id)
			say(d)
			say(attempts)
			for _, a := range attempts {
				texts = append(texts, string(a.Response), string(a.Error))
			}
		}
		_, err := c.UpdateEndpoint(t.Context(), workspace, e.ID, webhook.EndpointUpdate{Config: map[string]string{"bot_token": botToken + "x", "dsn": sentryDSN + "/x"}})
		require.Error(t, err)
		texts = append(texts, err.Error())
		p := channelParams(kind)
		p.URL += "/x"
		_, _, err = c.CreateEndpoint(t.Context(), p)
		require.Error(t, err)
		texts = append(texts, err.Error(), fmt.Sprintf("%+v", err))
		require.NoError(t, c.DeleteEndpoint(t.Context(), workspace, e.ID))
	}
	texts = append(texts, c.log.String())
	require.NoError(t, st.Close())
	for _, name := range []string{path, path + "-wal"} {
		if raw, err := os.ReadFile(name); err == nil {
			texts = append(texts, string(raw))
		}
	}
	require.NotEmpty(t, texts)
	_, botSecret, _ := strings.Cut(botToken, ":")
	for _, secret := range []string{discordToken, botSecret, sentryKey} {
		// Parts of it will do as well.
		for _, form := range []string{
			secret[:20], secret[len(secret)-20:],
			hex.EncodeToString([]byte(secret[:16])), strings.ToUpper(hex.EncodeToString([]byte(secret[:16]))),
			base64.RawStdEncoding.EncodeToString([]byte(secret))[4:24], base64.RawStdEncoding.EncodeToString([]byte(secret[1:]))[4:24],
			base64.RawStdEncoding.EncodeToString([]byte(secret[2:]))[4:24],
		} {
			for _, text := range texts {
				if i := strings.Index(text, form); i >= 0 {
					t.Errorf("%q shows in %q", form, text[max(0, i-200):min(len(text), i+100)])
				}
			}
		}
	}
	assert.Greater(t, c.requests(), 20)
}

package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/elido-app/webhook/internal/channel"
	"github.com/elido-app/webhook/internal/egress"
	"github.com/elido-app/webhook/store"
)

// Channels says where messages to chats go, and how fast. The zero value is the
// vendors' own servers, and what they take. Sentry's server is in every DSN.
type Channels struct {
	// DiscordBase takes the place of https://discord.com: all messages of kind
	// discord go there, whatever their endpoint's URL, which may begin with it.
	// For tests.
	DiscordBase string
	// TelegramBase takes the place of https://api.telegram.org: a Bot API server
	// of one's own, or one for tests.
	TelegramBase string
	// DiscordRateLimit and TelegramRateLimit are the EndpointParams.RateLimit of
	// endpoints of these kinds that are created or imported without one: what is
	// faster would be turned away, which uses up attempts. They default to 0.5 and
	// 1.0/3, which is the 30 messages a minute that Discord takes from a webhook and
	// the 20 that Telegram takes into a group; negative: none.
	DiscordRateLimit  float64
	TelegramRateLimit float64
}

// What vendors take, in messages a second: Discord answers more than 30 a minute
// from one webhook with 429, Telegram more than 20 a minute into one group (Bots
// FAQ, "How can I message all of my bot's subscribers at once?").
const (
	discordRate  = 30.0 / 60
	telegramRate = 20.0 / 60
)

func (c Channels) withDefaults(e Egress) (Channels, error) {
	for _, f := range []struct {
		name string
		base *string
	}{
		{"Channels.DiscordBase", &c.DiscordBase},
		{"Channels.TelegramBase", &c.TelegramBase},
	} {
		if *f.base == "" {
			continue
		}
		base, err := egress.CheckURL(strings.TrimRight(*f.base, "/"), e.options(0))
		if err == nil && strings.Contains(base, "?") {
			err = &egress.RuleError{Rule: "the URL must not have a query (?)"}
		}
		if err != nil {
			return c, invalid(f.name, err)
		}
		*f.base = base
	}
	for _, f := range []struct {
		name      string
		rate      *float64
		otherwise float64
	}{
		{"Channels.DiscordRateLimit", &c.DiscordRateLimit, discordRate},
		{"Channels.TelegramRateLimit", &c.TelegramRateLimit, telegramRate},
	} {
		switch r := *f.rate; {
		case r == 0:
			*f.rate = f.otherwise
		case r < 0:
			*f.rate = 0
		case !(r >= rateLeast && r <= rateMost):
			return c, &InvalidError{Field: f.name, Rule: fmt.Sprintf("must be negative, 0, or between 1 a day (%.6f a second) and %d a second", rateLeast, rateMost)}
		}
	}
	return c, nil
}

// rateLimit is that of an endpoint of a kind which is given none.
func (c Channels) rateLimit(kind Kind) float64 {
	switch kind {
	case KindDiscord:
		return c.DiscordRateLimit
	case KindTelegram:
		return c.TelegramRateLimit
	}
	return 0
}

func (d *Dispatcher) channelOptions() channel.Options {
	return channel.Options{DiscordBase: d.config.Channels.DiscordBase, TelegramBase: d.config.Channels.TelegramBase}
}

// isChannel reports whether endpoints of a kind get messages.
func isChannel(kind Kind) bool { return channel.Known(string(kind)) }

func settings(e Endpoint) channel.Settings { return channel.Settings{URL: e.URL, Config: e.Config} }

// public takes out of a record what no read may return. Records that a Dispatcher
// saved have nothing of the kind.
func public(e Endpoint) Endpoint {
	s := channel.Public(string(e.Kind), settings(e))
	e.URL, e.Config = s.URL, s.Config
	return e
}

// checkChannel checks what is given of a channel's settings, on top of what is
// stored (nil for a new endpoint), puts it into e in its stored form, and returns
// the credentials, if they were given.
func (d *Dispatcher) checkChannel(e *Endpoint, stored *channel.Settings, given string, config map[string]string) (Secret, error) {
	s, credential, err := d.channelOptions().Save(string(e.Kind), stored, given, config)
	if err != nil {
		return Secret{}, invalidSetting(err)
	}
	e.URL, e.Config = s.URL, s.Config
	if credential == "" {
		return Secret{}, nil
	}
	c, err := d.channelOptions().Open(string(e.Kind), s, credential)
	if err != nil {
		return Secret{}, invalidSetting(err)
	}
	if _, err := egress.CheckURL(c.URL(), d.egressOptions()); err != nil {
		field := "url"
		if e.Kind == KindSentry {
			field = "config.dsn"
		}
		return Secret{}, invalid(field, err)
	}
	return NewSecret(credential), nil
}

// invalidSetting is the error of a setting that package channel checked.
func invalidSetting(err error) error {
	if rule, ok := err.(*channel.RuleError); ok { //nolint:errorlint // it is never wrapped
		return &InvalidError{Field: rule.Field, Rule: rule.Rule}
	}
	return err
}

// prepareChannel makes the route of an endpoint that gets messages.
func (s *sender) prepareChannel(r *route, t *store.Target) error {
	if !isChannel(t.Kind) { // saved by a version that knows more
		return fmt.Errorf("endpoints of kind %q are not supported by this version", t.Kind)
	}
	credential, err := s.keys.unseal(t.Secrets.Credentials, sealCredentials, t.WorkspaceID, t.EndpointID)
	if err != nil {
		return err
	}
	var c *channel.Channel
	if c, r.refused = s.openChannel(t, credential); c == nil {
		return nil
	}
	if r.url, r.refused = s.parseURL(c.URL()); r.url == nil {
		return nil
	}
	r.channel = c
	r.confidences = r.confidences.addURL(r.url).add(c.Secrets()...)
	for name, value := range t.Headers {
		r.setHeader(http.CanonicalHeaderKey(name), []string{value})
	}
	for name, values := range c.Header() {
		r.setHeader(name, values)
	}
	return nil
}

// openChannel returns the channel to send to, or why no repeat can help: it was
// saved under other rules than are in force now, or not by a Dispatcher.
func (s *sender) openChannel(t *store.Target, credential Secret) (c *channel.Channel, refused string) {
	c, err := s.channelOptions().Open(string(t.Kind), channel.Settings{URL: t.URL, Config: t.Config}, credential.Reveal())
	if err != nil {
		return nil, "the endpoint's settings are refused: " + err.Error()
	}
	return c, ""
}

// message makes the body of a request to a channel.
func (r *route) message(l *store.Lease, at time.Time) []byte {
	return r.channel.Message(channel.Event{
		DeliveryID:  l.DeliveryID,
		ID:          l.EventID,
		Type:        l.EventType,
		WorkspaceID: l.WorkspaceID,
		Payload:     l.Payload,
		CreatedAt:   l.CreatedAt,
	}, at)
}

// judgeChannel decides what a vendor's answer means, and takes the credentials out
// of it: a server may repeat what it was sent.
func (r *route) judgeChannel(answer *egress.Answer) verdict {
	a := r.channel.Answer(answer.Status, answer.Header, answer.Body)
	answer.Body = r.channel.Redact(answer.Body)
	v := verdict{delivered: a.Delivered, final: a.Final, wait: a.Wait}
	if success(answer.Status) && !a.Delivered {
		v.reason = ", but the message was refused"
	}
	if a.Reason != "" {
		v.reason += ": " + a.Reason
	}
	if a.Final {
		v.reason += " (not tried again)"
	}
	return v
}

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

// Channels says where messages to chats go. The zero value is the vendors' own
// servers. Sentry's is in every DSN.
type Channels struct {
	// DiscordBase takes the place of https://discord.com: all messages of kind
	// discord go there, whatever their endpoint's URL, which may begin with it.
	// For tests.
	DiscordBase string
	// TelegramBase takes the place of https://api.telegram.org: a Bot API server
	// of one's own, or one for tests.
	TelegramBase string
}

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
	return c, nil
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

// Package channel speaks to chats and issue trackers: it turns an event into one
// request to Discord, Telegram or Sentry, written for the person who reads it
// there, and says what the answer means.
//
// [Options.Save] checks what the owner of an endpoint gave and parts it into what
// may be shown and the credential, which may not. [Options.Open] makes a
// [Channel] of the two. Everything else about a delivery, its retries and limits
// and its address guard, is the same as for any other kind of endpoint.
package channel

import (
	"net/http"
	"time"
)

// The kinds of endpoint this package speaks to.
const (
	Discord  = "discord"
	Telegram = "telegram"
	Sentry   = "sentry"
)

// Known reports whether endpoints of a kind are channels.
func Known(kind string) bool { return kind == Discord || kind == Telegram || kind == Sentry }

// Options says where messages go. The zero value is the vendors' own servers.
type Options struct {
	// DiscordBase stands in for https://discord.com, TelegramBase for
	// https://api.telegram.org; without a slash at the end. Sentry's host is part
	// of every DSN.
	DiscordBase  string
	TelegramBase string
}

// Settings is what an endpoint keeps apart from its credential.
type Settings struct {
	URL    string            // where it goes; the credential in it is masked
	Config map[string]string // without credentials
}

// The members of Settings.Config and of what is given to Save.
const (
	chatID   = "chat_id"   // of Telegram
	botToken = "bot_token" // of Telegram; a credential
	dsn      = "dsn"       // of Sentry; a credential
)

// Mask stands for a credential where a URL is shown.
const Mask = "***"

// A RuleError says which setting of an endpoint breaks which rule. It never
// repeats the setting, which may be a credential.
type RuleError struct {
	Field string // "url" or "config.chat_id"
	Rule  string // "must be …"
}

func (e *RuleError) Error() string { return e.Field + " " + e.Rule }

// Save checks what the owner of an endpoint gave, credentials and all, on top of
// what is stored already (nil for a new endpoint): members of config that are not
// given stay as they are, and so does the URL where it is empty. The error is a
// *[RuleError]. An empty credential means the one that is stored.
func (o Options) Save(kind string, stored *Settings, url string, config map[string]string) (s Settings, credential string, err error) {
	switch kind {
	case Discord:
		return o.saveDiscord(stored, url, config)
	case Telegram:
		return saveTelegram(stored, url, config)
	case Sentry:
		return saveSentry(stored, url, config)
	}
	return Settings{}, "", &RuleError{Field: "kind", Rule: "is no channel"}
}

// Open makes a Channel of what is stored. The error is a *[RuleError]: repeating
// cannot help until the endpoint is saved anew.
func (o Options) Open(kind string, s Settings, credential string) (*Channel, error) {
	var v vendor
	var err error
	switch kind {
	case Discord:
		v, err = o.openDiscord(s, credential)
	case Telegram:
		v, err = o.openTelegram(s, credential)
	case Sentry:
		v, err = openSentry(credential)
	default:
		err = &RuleError{Field: "kind", Rule: "is no channel"}
	}
	if err != nil {
		return nil, err
	}
	return &Channel{vendor: v, redactor: newRedactor(v.secrets()...)}, nil
}

// Public takes out of settings what must not be shown: rows that Save did not
// make may have a credential in them.
func Public(kind string, s Settings) Settings {
	if kind == Discord {
		s.URL = maskDiscord(s.URL)
	}
	for _, name := range []string{botToken, dsn} {
		if _, ok := s.Config[name]; ok {
			config := make(map[string]string, len(s.Config))
			for k, v := range s.Config {
				if k != botToken && k != dsn {
					config[k] = v
				}
			}
			s.Config = config
		}
	}
	return s
}

// A Channel sends messages to one endpoint. It is safe for concurrent use.
type Channel struct {
	vendor
	redactor
}

// vendor is what differs between Discord, Telegram and Sentry.
type vendor interface {
	// URL is where requests go, credential and all.
	URL() string
	// Header is what requests have besides the usual. It is only read.
	Header() http.Header
	// Message makes the body of a request sent at an instant.
	Message(e Event, at time.Time) []byte
	// Answer says what the answer to a request means, with a reason that may
	// repeat the request.
	Answer(status int, h http.Header, body []byte) Answer

	secrets() []string
}

// contentTypeJSON and userAgent are what requests have in common.
const (
	contentTypeJSON = "application/json"
	userAgent       = "Elido-Webhooks/1.0"
)

// Secrets returns what nobody may read in an answer: the credentials, and the
// parts of them that are as good as the whole.
func (c *Channel) Secrets() []string { return c.secrets() }

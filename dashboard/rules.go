package dashboard

import (
	"regexp"
	"strconv"
	"sync"
)

// The Dispatcher says in English which rule something broke and why an attempt
// failed. The texts are few and fixed, so the pages know them in every language.
// One they do not know is shown as it is. Tests provoke each of them.
var rules = []struct{ text, key string }{
	{"the URL must not be empty or longer than {most} bytes", "rule.url.length"},
	{"the URL must be ASCII: percent-encode the path and query, write an international host name in its xn-- form", "rule.url.ascii"},
	{"the URL must not contain white space, control characters or any of \" < > \\ ^ ` { | }: percent-encode them", "rule.url.encode"},
	{"the URL must not have a fragment (#)", "rule.url.fragment"},
	{"the URL must start with https://", "rule.url.scheme"},
	{"the URL must not have a user name or password (@)", "rule.url.userinfo"},
	{"the URL must have a host", "rule.url.host-missing"},
	{"the URL's port must be a number from 1 to 65535", "rule.url.port"},
	{"the URL's host must be a host name, an IPv4 address or an IPv6 address in brackets", "rule.url.host"},
	{"the URL's host ends in a number, so it must be an IPv4 address of four decimal numbers", "rule.url.numeric"},
	{"names below localhost are not allowed", "rule.url.below-localhost"},
	{"a percent sign in the URL's path must be followed by two hexadecimal digits", "rule.url.percent"},
	{"the URL must start with https://; http:// is for the hosts localhost, 127.0.0.1 and [::1] only", "rule.url.http"},
	{"the URL's host is a loopback address, which Config.Egress.AllowLoopback must allow", "rule.url.loopback"},
	{"the URL's address is not a public one (Config.Egress.AllowPrefixes can allow it)", "rule.url.address"},

	{"is required: the URL of a Discord webhook", "rule.discord.url"},
	{"must be the URL of a Discord webhook: https://discord.com/api/webhooks/, its number, a slash and its token", "rule.discord.url"},
	{"must be the whole URL of the Discord webhook, with the token at its end", "rule.discord.token"},
	{"may have ?thread_id= and a number after the token, and nothing else", "rule.discord.query"},
	{"is required: the number of a chat, or @ and the name of a public channel or group", "rule.telegram.chat"},
	{"must be the number of a chat (-1001234567890), or @ and the name of a public channel or group", "rule.telegram.chat"},
	{"is required: the token that BotFather gave for the bot", "rule.telegram.token-missing"},
	{"must be a bot token as BotFather gives it: digits, a colon, 35 letters, digits, _ or -", "rule.telegram.token"},
	{"is required: the DSN of a Sentry project", "rule.sentry.dsn"},
	{"must be a Sentry DSN: https://, a key, @, a host, a slash and the number of a project", "rule.sentry.dsn"},

	{`"{type}" is an unknown event type; did you mean "{closest}"?`, "rule.events.unknown-closest"},
	{`"{type}" is a prefix of no event type; did you mean "{closest}"?`, "rule.events.unknown-closest"},
	{`"{type}" is an unknown event type`, "rule.events.unknown"},
	{`"{type}" is a prefix of no event type{}`, "rule.events.prefix"},
	{`"{type}" is planned, and cannot be subscribed to yet`, "rule.events.planned"},
	{`"{type}" has only planned types, which cannot be subscribed to yet`, "rule.events.planned"},
	{`"*" is not accepted: name types, or prefixes such as "link.*"`, "rule.events.star"},
	{`"test" is reserved for test sends, which need no subscription`, "rule.events.test"},
	{`"{type}" is not an event type name: {}; did you mean "{closest}"?`, "rule.events.unknown-closest"},
	{`"{type}" is not an event type name: {}`, "rule.events.name"},
	{"is empty", "rule.events.name"},
	{"has more than {most} entries", "rule.events.many"},
	{"must name at least one event type, or the endpoint would never get anything", "rule.events.none"},

	{"is {size} bytes long, over the limit of {most}", "rule.description.long"},
	{"must be valid UTF-8 without NUL", "rule.text"},
	{"there must not be more than {most} extra headers", "rule.header.many"},
	{"the header {name} is reserved", "rule.header.reserved"},
	{"the header {name} is longer than {most} bytes", "rule.header.long"},
	{"the header {name} must have a value of visible ASCII characters", "rule.header.ascii"},
	{"the header {name} is given twice, in different letter case", "rule.header.twice"},
	{"a header's name must be of letters, digits and !#$%&'*+-.^_`|~, at most {most} bytes", "rule.header.name"},
	{"must be between 0 and {most}", "rule.most"},
	{"must be 0, or between 1 a day ({}) and {most} a second", "rule.rate"},
	{"a secret has {least} to {most} bytes", "rule.secret.length"},
	{"a secret has no NUL byte", "rule.secret.space"},
	{"a secret has no white space", "rule.secret.space"},
	{"a secret for Standard Webhooks is base64 after whsec_", "rule.secret.base64"},
	{"is unknown; use {}", "rule.kind"},
	{"must be what an earlier page gave as next", "rule.cursor"},
	{`must be "pending", "delivered" or "failed"`, "rule.status"},

	{"paused after {n} failed attempts in a row", "reason.paused"},

	{"the request failed", "failure.request"},
	{"no answer within the time limit", "failure.timeout"},
	{"the request was cancelled", "failure.cancelled"},
	{"the address is not allowed", "failure.address"},
	{"the host name was not found", "failure.name"},
	{"the host name could not be looked up", "failure.lookup"},
	{"no connection within the time limit", "failure.connect-timeout"},
	{"connection refused", "failure.refused"},
	{"the host cannot be reached", "failure.unreachable"},
	{"connecting failed", "failure.connect"},
	{"connection reset", "failure.reset"},
	{"connection closed before an answer", "failure.closed"},
	{"TLS: the certificate is not trusted", "failure.tls-untrusted"},
	{"TLS: the certificate has expired or is not valid yet", "failure.tls-expired"},
	{"TLS: the certificate is for another host", "failure.tls-host"},
	{"TLS: the certificate is not valid", "failure.tls-invalid"},
	{"TLS: the handshake failed", "failure.tls-handshake"},
	{"the answer's headers are too large", "failure.headers"},
	{"the answer is not valid HTTP", "failure.malformed"},
	{"the proxy gave no connection", "failure.proxy"},
	{"TLS: the certificate chain is too long", "failure.tls-chain"},
	{"{status} (redirects are not followed)", "failure.redirect"},
	{"{reason} (not tried again)", "failure.final"},
}

// lookup is rules in the form in which a text is looked up: by the text itself, or
// by those with placeholders, in their order.
type lookup struct {
	exact    map[string]string
	patterns []pattern
}

type pattern struct {
	match *regexp.Regexp
	key   string
}

var placeholder = regexp.MustCompile(`\{([a-z]*)\}`)

var rulebook = sync.OnceValue(func() lookup {
	book := lookup{exact: make(map[string]string)}
	for _, r := range rules {
		places := placeholder.FindAllStringSubmatchIndex(r.text, -1)
		if len(places) == 0 {
			book.exact[r.text] = r.key
			continue
		}
		expression, from := `(?s)\A`, 0
		for _, m := range places {
			expression += regexp.QuoteMeta(r.text[from:m[0]])
			if name := r.text[m[2]:m[3]]; name == "" {
				expression += `.*`
			} else {
				expression += `(?P<` + name + `>.+?)`
			}
			from = m[1]
		}
		expression += regexp.QuoteMeta(r.text[from:]) + `\z`
		book.patterns = append(book.patterns, pattern{regexp.MustCompile(expression), r.key})
	}
	return book
})

// rule says in a language what the Dispatcher said in English.
func (l *language) rule(text string) string {
	if text == "" {
		return ""
	}
	if key, ok := rulebook().exact[text]; ok {
		return l.t(key)
	}
	for _, p := range rulebook().patterns {
		m := p.match.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		var args []any
		for i, name := range p.match.SubexpNames() {
			if name == "" {
				continue
			}
			var value any = printable([]byte(m[i]))
			switch n, err := strconv.Atoi(m[i]); {
			case name == "reason":
				value = l.rule(m[i])
			case err == nil && name != "type" && name != "name":
				value = n
			}
			args = append(args, name, value)
		}
		return l.t(p.key, args...)
	}
	return printable([]byte(text))
}

package channel

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// What Discord allows in an embed, in characters (Message Resource, Embed
// Limits). They are counted here in UTF-16 units, which are never fewer.
const (
	discordTitle       = 256
	discordDescription = 4096
	discordFields      = 25
	discordFieldName   = 256
	discordFieldValue  = 1024
	discordTotal       = 6000
)

// tokenMost is how long a token may be, in bytes; those of today have 68.
const tokenMost = 128

// webhookAddress is a Discord webhook URL taken apart.
type webhookAddress struct {
	base    string // "https://discord.com"
	version string // "/v10", or nothing
	id      string
	token   string // Mask or "" where it is not there
	thread  string // the channel's thread to write to, or nothing
}

const (
	ruleDiscordURL   = "must be the URL of a Discord webhook: https://discord.com/api/webhooks/, its number, a slash and its token"
	ruleDiscordToken = "must be the whole URL of the Discord webhook, with the token at its end"
	ruleDiscordQuery = "may have ?thread_id= and a number after the token, and nothing else"
)

// parseDiscord takes a webhook URL apart, and returns the rule it breaks, or "".
func (o Options) parseDiscord(raw string) (a webhookAddress, rule string) {
	path, ok := "", false
	for _, base := range []string{o.DiscordBase, "https://discord.com", "https://discordapp.com"} {
		// Scheme and host do not depend on case; what follows does.
		if n := len(base); n > 0 && len(raw) > n && strings.EqualFold(raw[:n], base) && raw[n] == '/' {
			a.base, path, ok = base, raw[n:], true
			break
		}
	}
	if !ok {
		return a, ruleDiscordURL
	}
	path, query, asked := strings.Cut(path, "?")
	if asked {
		values, err := url.ParseQuery(query)
		if err != nil {
			return a, ruleDiscordQuery
		}
		a.thread = values.Get("thread_id")
		values.Del("wait") // is ours to set
		values.Del("thread_id")
		if len(values) > 0 || (a.thread != "" && !digits(a.thread, 20)) {
			return a, ruleDiscordQuery
		}
	}
	path, ok = strings.CutPrefix(path, "/api/")
	if version, rest, _ := strings.Cut(path, "/"); len(version) > 1 && version[0] == 'v' && digits(version[1:], 2) {
		a.version, path = "/"+version, rest
	}
	path, isWebhook := strings.CutPrefix(path, "webhooks/")
	if !ok || !isWebhook {
		return a, ruleDiscordURL
	}
	a.id, a.token, _ = strings.Cut(strings.TrimSuffix(path, "/"), "/")
	switch {
	case !digits(a.id, 20):
		return a, ruleDiscordURL
	case a.token == "" || a.token == Mask:
		return a, ""
	case !tokenOf(a.token, tokenMost):
		return a, ruleDiscordURL
	}
	return a, ""
}

// with returns the URL with a token, or Mask.
func (a webhookAddress) with(token string) string {
	s := a.base + "/api" + a.version + "/webhooks/" + a.id + "/" + token
	if a.thread != "" {
		s += "?thread_id=" + a.thread
	}
	return s
}

func (o Options) saveDiscord(stored *Settings, raw string, config map[string]string) (Settings, string, error) {
	if len(config) > 0 {
		return Settings{}, "", &RuleError{"config", "must be empty for kind discord, which is told by its url"}
	}
	raw = strings.TrimSpace(raw)
	switch {
	case stored != nil && (raw == "" || raw == maskDiscord(stored.URL)): // a form gives back what it was shown
		return *stored, "", nil
	case raw == "":
		return Settings{}, "", &RuleError{"url", "is required: the URL of a Discord webhook"}
	}
	a, rule := o.parseDiscord(raw)
	switch {
	case rule != "":
		return Settings{}, "", &RuleError{"url", rule}
	case a.token == "" || a.token == Mask:
		return Settings{}, "", &RuleError{"url", ruleDiscordToken}
	}
	return Settings{URL: a.with(Mask)}, a.token, nil
}

// maskDiscord hides the token in a stored URL. Of one that does not look like a
// webhook's all is hidden: there is no telling what is in it.
func maskDiscord(raw string) string {
	if raw == "" {
		return ""
	}
	before, after, _ := strings.Cut(raw, "/webhooks/")
	id, rest, _ := strings.Cut(after, "/")
	if !digits(id, 20) || rest == "" || strings.ContainsAny(before, "@?#") {
		return Mask
	}
	masked := before + "/webhooks/" + id + "/" + Mask
	if _, thread, ok := strings.Cut(rest, "?thread_id="); ok && digits(thread, 20) {
		masked += "?thread_id=" + thread
	}
	return masked
}

// discord is one Discord webhook.
type discord struct {
	token string
	url   string
}

func (o Options) openDiscord(s Settings, credential string) (vendor, error) {
	a, rule := o.parseDiscord(s.URL)
	if rule != "" {
		return nil, &RuleError{"url", rule}
	}
	token := credential
	if token == "" && a.token != Mask { // a row that was not parted
		token = a.token
	}
	if !tokenOf(token, tokenMost) {
		return nil, &RuleError{"url", ruleDiscordToken}
	}
	if o.DiscordBase != "" {
		a.base = o.DiscordBase
	}
	// Discord confirms a message only to those who wait: otherwise one that was
	// not saved is no error (Webhook Resource, Execute Webhook).
	target := a.with(token)
	if a.thread == "" {
		target += "?wait=true"
	} else {
		target += "&wait=true"
	}
	return &discord{token: token, url: target}, nil
}

// URL implements vendor.
func (d *discord) URL() string { return d.url }

func (d *discord) secrets() []string { return []string{d.token} }

var discordHeader = http.Header{
	"Content-Type": {contentTypeJSON},
	// Discord asks for this form and may turn away others (API Reference, User
	// Agent).
	"User-Agent": {"DiscordBot (https://github.com/elido-app/webhook, 1.0) " + userAgent},
}

// Header implements vendor.
func (d *discord) Header() http.Header { return discordHeader }

// The parts of a message that are used here (Webhook Resource, Execute Webhook).
type (
	discordMessage struct {
		Username string          `json:"username"`
		Embeds   []discordEmbed  `json:"embeds"`
		Mentions discordMentions `json:"allowed_mentions"`
	}
	discordEmbed struct {
		Title       string         `json:"title"`
		Description string         `json:"description,omitempty"`
		URL         string         `json:"url,omitempty"`
		Color       int            `json:"color"`
		Fields      []discordField `json:"fields,omitempty"`
		Footer      discordFooter  `json:"footer"`
		Timestamp   string         `json:"timestamp"`
	}
	discordField struct {
		Name   string `json:"name"`
		Value  string `json:"value"`
		Inline bool   `json:"inline,omitempty"`
	}
	discordFooter struct {
		Text string `json:"text"`
	}
	// discordMentions without anything in it allows no mention to ping anybody.
	discordMentions struct {
		Parse []string `json:"parse"`
	}
)

var discordColors = [...]int{
	neutral:  0x3498DB,
	good:     0x2ECC71,
	warning:  0xF1C40F,
	bad:      0xE67E22,
	goodbye:  0x95A5A6,
	critical: 0xE74C3C,
}

// inlineMost is how long a value may be to share its row with others.
const inlineMost = 40

// Message implements vendor.
func (d *discord) Message(e Event, _ time.Time) []byte {
	n := describe(e)
	embed := discordEmbed{
		Title:     discordText(n.title, discordTitle),
		URL:       n.to.url,
		Color:     discordColors[n.tone],
		Footer:    discordFooter{Text: n.footer()},
		Timestamp: n.at.Format("2006-01-02T15:04:05.000Z"),
	}
	left := discordTotal - units(embed.Title) - units(embed.Footer.Text)
	embed.Description = discordLines(min(discordDescription, left), discordLink(n.to), n.detail, n.todoText())
	left -= units(embed.Description)
	for _, f := range n.fields {
		name := discordText(f.name, discordFieldName)
		value := discordText(f.value, min(discordFieldValue, left-units(name)))
		if len(embed.Fields) == discordFields || name == "" || value == "" {
			break
		}
		left -= units(name) + units(value)
		embed.Fields = append(embed.Fields, discordField{name, value, units(value) <= inlineMost})
	}
	return encode(discordMessage{
		Username: "Elido",
		Embeds:   []discordEmbed{embed},
		Mentions: discordMentions{Parse: []string{}},
	})
}

// discordLink writes a link in Discord's Markdown.
func discordLink(to target) string {
	if to.url == "" {
		return ""
	}
	// A parenthesis would end it.
	url := strings.NewReplacer("(", "%28", ")", "%29").Replace(to.url)
	return "[" + to.words + "](" + url + ")"
}

// discordLines writes a text in each line, and at the end one that must not be cut,
// in at most n UTF-16 units.
func discordLines(n int, last string, texts ...text) string {
	n -= units(last)
	var lines []string
	for _, t := range texts {
		s := discordText(t, n-1)
		if s == "" {
			continue
		}
		lines = append(lines, s)
		n -= units(s) + 1
	}
	if last != "" {
		lines = append(lines, last)
	}
	return strings.Join(lines, "\n")
}

// discordText writes a text in Discord's Markdown, what is given escaped, in at
// most n UTF-16 units; a character and its escape are not parted.
func discordText(t text, n int) string {
	var pieces []string
	total := 0
	for _, s := range t {
		for _, p := range discordEscape(s) {
			pieces = append(pieces, p)
			total += units(p)
		}
	}
	if total <= n {
		return strings.Join(pieces, "")
	}
	if n <= 1 {
		return ""
	}
	var b strings.Builder
	left := n - 1
	for _, p := range pieces {
		if left -= units(p); left < 0 {
			break
		}
		b.WriteString(p)
	}
	return strings.TrimRight(b.String(), " \u200d\ufe0f") + ellipsis
}

// discordEscape returns the characters of a span, each with a backslash before it
// where it would otherwise be markup: emphasis, code, spoilers, quotes, links,
// mentions, emoji by name, and what starts a header or a list at the beginning of
// a line. A backslash makes any character but letters, digits and white space
// stand for itself.
func discordEscape(s span) []string {
	runes := []rune(s.text)
	pieces := make([]string, len(runes))
	for i, r := range runes {
		pieces[i] = string(r)
		if !s.given {
			continue
		}
		switch r {
		case '\\', '*', '_', '~', '`', '|', '<', '>', '[', ']', '@':
			pieces[i] = `\` + pieces[i]
		case ':':
			time := i > 0 && i < len(runes)-1 && isDigit(runes[i-1]) && isDigit(runes[i+1])
			if !time || strings.Count(s.text, ":") > 1 { // 09:14 may stay, :100: may not
				pieces[i] = `\:`
			}
		case '#', '-', '+':
			if i == 0 {
				pieces[i] = `\` + pieces[i]
			}
		case '.', ')': // "1. " starts a list
			if i > 0 && i < len(runes)-1 && runes[i+1] == ' ' && allDigits(runes[:i]) {
				pieces[i] = `\` + pieces[i]
			}
		}
	}
	return pieces
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

func allDigits(runes []rune) bool {
	for _, r := range runes {
		if !isDigit(r) {
			return false
		}
	}
	return true
}

// Answer implements vendor.
func (d *discord) Answer(status int, _ http.Header, body []byte) Answer {
	if success(status) {
		return Answer{Delivered: true}
	}
	problem := readDocument(body)
	a := Answer{Reason: problem.text("message")}
	if code := problem.number("code"); a.Reason != "" && digits(code, 9) && code != "0" {
		a.Reason += " (code " + code + ")"
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		a.Final = true
	case http.StatusTooManyRequests:
		a.Wait = wait(problem.number("retry_after"))
	}
	return a
}

// digits reports whether s is 1 to n digits.
func digits(s string, n int) bool {
	return s != "" && len(s) <= n && strings.Trim(s, "0123456789") == ""
}

// tokenOf reports whether s is 1 to n of the characters that tokens are made of.
func tokenOf(s string, n int) bool {
	return s != "" && len(s) <= n &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

package channel

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// telegramText is how long a message may be, in UTF-16 units once its markup is
// taken away (Bot API, sendMessage).
const telegramText = 4096

const telegramBase = "https://api.telegram.org"

// telegram is one chat, and the bot that writes to it.
type telegram struct {
	chat  any // a number, or "@name"
	token string
	url   string
}

const (
	ruleConfigTelegram = "has something that kind telegram does not know; it takes chat_id and bot_token"
	ruleChatID         = "must be the number of a chat (-1001234567890), or @ and the name of a public channel or group"
	ruleBotToken       = "must be a bot token as BotFather gives it: digits, a colon, 35 letters, digits, _ or -" //nolint:gosec // is none
)

func saveTelegram(stored *Settings, url string, config map[string]string) (Settings, string, error) {
	if url != "" && (stored == nil || url != stored.URL) {
		return Settings{}, "", &RuleError{"url", "must be empty for kind telegram: it follows from config"}
	}
	for name := range config {
		if name != chatID && name != botToken {
			return Settings{}, "", &RuleError{"config", ruleConfigTelegram}
		}
	}
	s := Settings{Config: map[string]string{}}
	if stored != nil {
		maps.Copy(s.Config, stored.Config)
	}
	delete(s.Config, botToken)
	if chat, given := config[chatID]; given {
		s.Config[chatID] = strings.TrimSpace(chat)
	}
	if _, rule := parseChat(s.Config[chatID]); rule != "" {
		return Settings{}, "", &RuleError{"config." + chatID, rule}
	}
	token, given := config[botToken]
	token = strings.TrimSpace(token)
	if given || stored == nil {
		if rule := checkBotToken(token); rule != "" {
			return Settings{}, "", &RuleError{"config." + botToken, rule}
		}
	}
	return s, token, nil
}

// parseChat returns a chat id as the Bot API takes it, or the rule it breaks.
func parseChat(s string) (chat any, rule string) {
	if s == "" {
		return nil, "is required: the number of a chat, or @ and the name of a public channel or group"
	}
	if name, ok := strings.CutPrefix(s, "@"); ok {
		letter := len(name) >= 4 && (name[0]|0x20) >= 'a' && (name[0]|0x20) <= 'z'
		if !letter || strings.Contains(name, "-") || !tokenOf(name, 32) {
			return nil, ruleChatID
		}
		return s, ""
	}
	number := strings.TrimPrefix(s, "-")
	// A chat id has at most 52 significant bits (Bot API, Chat).
	if !digits(number, 16) || number[0] == '0' {
		return nil, ruleChatID
	}
	return json.Number(s), ""
}

// checkBotToken returns the rule that a bot token breaks, or "".
func checkBotToken(token string) string {
	if token == "" {
		return "is required: the token that BotFather gave for the bot"
	}
	id, secret, _ := strings.Cut(token, ":")
	if !digits(id, 17) || id[0] == '0' || len(secret) != 35 || !tokenOf(secret, 35) {
		return ruleBotToken
	}
	return ""
}

func (o Options) openTelegram(s Settings, credential string) (vendor, error) {
	chat, rule := parseChat(s.Config[chatID])
	if rule != "" {
		return nil, &RuleError{"config." + chatID, rule}
	}
	if rule := checkBotToken(credential); rule != "" {
		return nil, &RuleError{"config." + botToken, rule}
	}
	base := orElse(o.TelegramBase, telegramBase)
	return &telegram{chat: chat, token: credential, url: base + "/bot" + credential + "/sendMessage"}, nil
}

// URL implements vendor.
func (t *telegram) URL() string { return t.url }

// The part after the colon alone is as good as the whole: the one before is the
// bot's public number.
func (t *telegram) secrets() []string {
	_, secret, _ := strings.Cut(t.token, ":")
	return []string{t.token, secret}
}

// notOK is the beginning of a refusal of which only the beginning was kept.
var notOK = regexp.MustCompile(`^\s*\{\s*"ok"\s*:\s*false\b`)

var telegramHeader = http.Header{"Content-Type": {contentTypeJSON}, "User-Agent": {userAgent}}

// Header implements vendor.
func (t *telegram) Header() http.Header { return telegramHeader }

// The parameters of sendMessage that are used here.
type telegramMessage struct {
	Chat      any             `json:"chat_id"`
	Text      string          `json:"text"`
	ParseMode string          `json:"parse_mode"`
	Preview   telegramPreview `json:"link_preview_options"`
}

type telegramPreview struct {
	Disabled bool `json:"is_disabled"`
}

// telegramSigns stand before titles of what somebody should look at: a chat has no
// other colours.
var telegramSigns = [...]string{
	neutral: "", good: "", goodbye: "", warning: "⚠️ ", bad: "❗ ", critical: "❗ ",
}

// Message implements vendor.
func (t *telegram) Message(e Event, _ time.Time) []byte {
	n := describe(e)
	// The last lines are written first, so that there is room for them.
	end := html{left: telegramText}
	if n.todo != nil {
		end.words("\n\n")
		end.text("", n.todoText())
	}
	if n.to.url != "" {
		end.words("\n\n")
		end.link(n.to.url, n.to.words)
	}
	end.words("\n\n")
	end.add("i", n.footer()+" · "+n.at.Format(readableTime))

	h := html{left: end.left}
	h.words(telegramSigns[n.tone])
	h.text("b", n.title)
	if n.detail.plain() != "" {
		h.words("\n")
		h.text("", n.detail)
	}
	for i, f := range n.fields {
		separator := "\n"
		if i == 0 {
			separator = "\n\n"
		}
		name := f.name.plain()
		if h.left < units(separator+name)+8 { // or there would be a name without a value
			break
		}
		h.words(separator)
		h.text("b", f.name)
		h.words(": ")
		h.text("", f.value)
	}
	return encode(telegramMessage{
		Chat:      t.chat,
		Text:      h.String() + end.String(),
		ParseMode: "HTML",
		Preview:   telegramPreview{Disabled: true},
	})
}

// html writes a text in the HTML of Telegram's Bot API, counting what is left of
// it once its markup is taken away. What came with the event is put into code
// elements: in those Telegram looks for no mentions, commands or links.
type html struct {
	strings.Builder
	left int
}

var htmlEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// add writes text in an element of that name, or in none, cut to what is left.
func (h *html) add(element, s string) {
	s = cut(s, h.left)
	if s == "" {
		return
	}
	h.left -= units(s)
	if element == "" {
		_, _ = htmlEscape.WriteString(h, s)
		return
	}
	h.WriteString("<" + element + ">")
	_, _ = htmlEscape.WriteString(h, s)
	h.WriteString("</" + element + ">")
}

func (h *html) words(s string) { h.add("", s) }

// text writes a text, our words in an element of that name.
func (h *html) text(element string, t text) {
	for _, s := range t {
		if s.given {
			h.add("code", s.text)
		} else {
			h.add(element, s.text)
		}
	}
}

func (h *html) link(url, s string) {
	h.left -= units(s)
	h.WriteString(`<a href="` + htmlEscape.Replace(url) + `">` + htmlEscape.Replace(s) + "</a>")
}

// Answer implements vendor.
func (t *telegram) Answer(status int, _ http.Header, body []byte) Answer {
	d := readDocument(body)
	refused := string(d["ok"]) == "false" || d == nil && notOK.Match(body)
	if success(status) && !refused {
		return Answer{Delivered: true}
	}
	parameters := d.document("parameters")
	a := Answer{
		Reason: withoutStatus(d.text("description"), status),
		Wait:   wait(parameters.number("retry_after")),
	}
	if chat := parameters.number("migrate_to_chat_id"); digits(strings.TrimPrefix(chat, "-"), 16) {
		a.Reason += "; its chat_id is " + chat + " now"
	}
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		a.Final = true
	}
	return a
}

package channeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Telegram stands in for api.telegram.org with one bot that is in one chat. Its
// rules are those of the Bot API's documentation (sendMessage, Formatting options,
// Making requests, ResponseParameters), its words those of the Bot API server.
type Telegram struct {
	script
	token, chat string
	messages    []TelegramMessage
}

// NewTelegram returns a server with a bot that may write to a chat.
func NewTelegram(token, chat string) *Telegram { return &Telegram{token: token, chat: chat} }

// TelegramMessage is a message as it is shown in the chat.
type TelegramMessage struct {
	Text     string // without its markup
	Entities []TelegramEntity
	Preview  bool   // the first link is shown with a preview
	HTML     string // as it was sent
	Body     string // as it was sent

	// Mentions are those whom the text itself mentions, who are notified.
	Mentions []string
}

// TelegramEntity is a part of a text that is shown in another way.
type TelegramEntity struct {
	Type string // "bold", "code", "text_link" …
	Text string
	URL  string // of a text_link
}

// String shows the message as a person sees it.
func (m TelegramMessage) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", m.Text)
	for _, e := range m.Entities {
		if e.URL != "" {
			fmt.Fprintf(&b, "(%q links to %s)\n", e.Text, e.URL)
		}
	}
	return b.String()
}

// Messages returns what the chat shows, the oldest first.
func (t *Telegram) Messages() []TelegramMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.messages)
}

// RateLimit makes the server turn away one request.
func (t *Telegram) RateLimit(after time.Duration) {
	t.Then(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", seconds(after))
		telegramError(w, http.StatusTooManyRequests, "Too Many Requests: retry after "+seconds(after),
			map[string]any{"retry_after": json.RawMessage(seconds(after))})
	})
}

// Refuse makes the server refuse one request with a description of its own.
func (t *Telegram) Refuse(status int, description string) {
	t.Then(func(w http.ResponseWriter, _ *http.Request) { telegramError(w, status, description, nil) })
}

func telegramError(w http.ResponseWriter, status int, description string, parameters map[string]any) {
	answer := map[string]any{"ok": false, "error_code": status, "description": description}
	if parameters != nil {
		answer["parameters"] = parameters
	}
	writeJSON(w, status, answer)
}

// telegramForm has all documented parameters of sendMessage that a message of
// text may have.
type telegramForm struct {
	ChatID              json.RawMessage `json:"chat_id"`
	MessageThreadID     json.Number     `json:"message_thread_id"`
	Text                string          `json:"text"`
	ParseMode           string          `json:"parse_mode"`
	DisableNotification bool            `json:"disable_notification"`
	ProtectContent      bool            `json:"protect_content"`
	Preview             struct {
		Disabled bool   `json:"is_disabled"`
		URL      string `json:"url"`
	} `json:"link_preview_options"`
}

// ServeHTTP executes sendMessage.
func (t *Telegram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if t.told(w, r) {
		return
	}
	refuse := func(status int, description string) { telegramError(w, status, description, nil) }
	rest, ok := strings.CutPrefix(r.URL.Path, "/bot")
	token, method, hasMethod := strings.Cut(rest, "/")
	switch {
	case !ok || !hasMethod:
		refuse(http.StatusNotFound, "Not Found")
		return
	case token != t.token:
		refuse(http.StatusUnauthorized, "Unauthorized")
		return
	case !strings.EqualFold(method, "sendMessage"):
		refuse(http.StatusNotFound, "Not Found: method not found")
		return
	case !isJSON(r):
		refuse(http.StatusBadRequest, "Bad Request: message text is empty") // it sees no parameters
		return
	}
	body, err := readAll(r)
	if err != nil {
		return
	}
	var form telegramForm
	if decode(body, &form) != nil {
		refuse(http.StatusBadRequest, "Bad Request: can't parse parameters JSON object")
		return
	}
	text, entities := form.Text, []TelegramEntity(nil)
	switch form.ParseMode {
	case "":
	case "HTML":
		var problem string
		if text, entities, problem = readHTML(form.Text); problem != "" {
			refuse(http.StatusBadRequest, "Bad Request: can't parse entities: "+problem)
			return
		}
	default:
		refuse(http.StatusBadRequest, "Bad Request: unsupported parse_mode")
		return
	}
	chat := strings.Trim(string(form.ChatID), `"`)
	switch {
	case chat == "" || chat == "null":
		refuse(http.StatusBadRequest, "Bad Request: chat_id is empty")
	case chat != t.chat:
		refuse(http.StatusBadRequest, "Bad Request: chat not found")
	case !utf8.ValidString(form.Text):
		refuse(http.StatusBadRequest, "Bad Request: strings must be encoded in UTF-8")
	case blank(text):
		refuse(http.StatusBadRequest, "Bad Request: message text is empty")
	case units(text) > 4096:
		refuse(http.StatusBadRequest, "Bad Request: message is too long")
	case len(entities) > 100:
		// The rest would be dropped without a word, which nobody wants.
		refuse(http.StatusBadRequest, "Bad Request: too many entities")
	default:
		t.mu.Lock()
		t.messages = append(t.messages, TelegramMessage{
			Text: text, Entities: entities, Preview: !form.Preview.Disabled, HTML: form.Text, Body: string(body),
			Mentions: mentionsIn(text, entities),
		})
		number := len(t.messages)
		t.mu.Unlock()
		writeJSON(w, http.StatusOK, map[string]any{"ok": true, "result": map[string]any{
			"message_id": number, "date": time.Now().Unix(), "chat": map[string]any{"id": form.ChatID}, "text": text,
		}})
	}
}

// telegramTags are the elements of the HTML that the Bot API takes.
var telegramTags = map[string]string{
	"a": "text_link", "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
	"s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler",
	"code": "code", "pre": "pre", "blockquote": "blockquote",
}

// readHTML returns the text that is shown and its entities, or what is wrong.
func readHTML(s string) (text string, entities []TelegramEntity, problem string) {
	type open struct {
		tag   string
		url   string
		start int
	}
	var b strings.Builder
	var stack []open
	for i := 0; i < len(s); {
		switch s[i] {
		case '&':
			name, _, found := strings.Cut(s[i+1:min(len(s), i+12)], ";")
			r, known := telegramEntity(name)
			if !found || !known {
				// The Bot API would show it as it is; we never mean that.
				return "", nil, fmt.Sprintf("Unescaped & at byte offset %d", i)
			}
			b.WriteRune(r)
			i += len(name) + 2
		case '>':
			return "", nil, fmt.Sprintf("Unescaped > at byte offset %d", i)
		case '<':
			end := strings.IndexByte(s[i:], '>')
			if end < 0 {
				return "", nil, fmt.Sprintf("Unclosed start tag at byte offset %d", i)
			}
			tag := s[i+1 : i+end]
			if closing, ok := strings.CutPrefix(tag, "/"); ok {
				if len(stack) == 0 {
					return "", nil, fmt.Sprintf("Unexpected end tag at byte offset %d", i)
				}
				last := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				if closing != last.tag {
					return "", nil, fmt.Sprintf("Unmatched end tag at byte offset %d, expected \"</%s>\", found \"</%s>\"", i, last.tag, closing)
				}
				if b.Len() > last.start {
					entities = append(entities, TelegramEntity{Type: telegramTags[last.tag], Text: b.String()[last.start:], URL: last.url})
				}
			} else {
				name, attribute, _ := strings.Cut(tag, " ")
				kind := telegramTags[name]
				if kind == "" {
					return "", nil, fmt.Sprintf("Unsupported start tag %q at byte offset %d", name, i)
				}
				for _, outer := range stack {
					// Code takes nothing in and goes into nothing; a link takes no link.
					if outer.tag == "code" || outer.tag == "pre" || kind == "code" || kind == "pre" || outer.tag == name {
						return "", nil, fmt.Sprintf("Tag %q must not be in %q at byte offset %d", name, outer.tag, i)
					}
				}
				o := open{tag: name, start: b.Len()}
				if href, ok := strings.CutPrefix(attribute, `href="`); ok && strings.HasSuffix(href, `"`) && name == "a" {
					href, _, problem := readHTML(strings.TrimSuffix(href, `"`))
					if problem != "" {
						return "", nil, problem
					}
					o.url = href
				} else if attribute != "" || name == "a" {
					return "", nil, fmt.Sprintf("Unexpected attribute of the tag %q at byte offset %d", name, i)
				}
				stack = append(stack, o)
			}
			i += end + 1
		default:
			b.WriteByte(s[i])
			i++
		}
	}
	if len(stack) > 0 {
		return "", nil, fmt.Sprintf("Can't find end tag corresponding to start tag %q", stack[len(stack)-1].tag)
	}
	return b.String(), entities, ""
}

// telegramEntity returns the character that an entity of the Bot API's HTML stands
// for: four by name, all by number.
func telegramEntity(name string) (rune, bool) {
	switch name {
	case "lt":
		return '<', true
	case "gt":
		return '>', true
	case "amp":
		return '&', true
	case "quot":
		return '"', true
	}
	if number, ok := strings.CutPrefix(name, "#"); ok {
		n, err := strconv.ParseInt(number, 10, 32)
		return rune(n), err == nil && n > 0
	}
	return 0, false
}

// mentionsIn finds names with an @ before them as Telegram does: not inside of
// code, and not after a letter or a digit.
func mentionsIn(text string, entities []TelegramEntity) (found []string) {
	for _, e := range entities {
		if e.Type == "code" || e.Type == "pre" {
			text = strings.Replace(text, e.Text, strings.Repeat(" ", len(e.Text)), 1)
		}
	}
	before := ' '
	for i, r := range text {
		if r == '@' && !unicode.IsLetter(before) && !unicode.IsDigit(before) && before != '_' {
			name := text[i+1:]
			end := strings.IndexFunc(name, func(r rune) bool {
				return r > unicode.MaxASCII || (!unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_')
			})
			if end < 0 {
				end = len(name)
			}
			if end >= 2 && end <= 32 {
				found = append(found, name[:end])
			}
		}
		before = r
	}
	return found
}

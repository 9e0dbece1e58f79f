package channeltest

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Discord stands in for discord.com with one webhook. Its rules are those of
// Discord's developer documentation: Webhook Resource (Execute Webhook), Message
// Resource (Embed Limits, Allowed Mentions), API Reference, Rate Limits.
type Discord struct {
	script
	id, token string
	messages  []DiscordMessage
}

// NewDiscord returns a server with one webhook.
func NewDiscord(id, token string) *Discord { return &Discord{id: id, token: token} }

// DiscordMessage is a message as it is shown in the channel.
type DiscordMessage struct {
	Username string
	Thread   string
	Embeds   []DiscordEmbed
	Body     string // as it was sent

	// Links are the links with a text of their own.
	Links []DiscordLink
	// Markup is what else the texts have in them that is more than text: emphasis,
	// bare links, mentions, emoji.
	Markup []string
	// Pings are those who were notified.
	Pings []string
}

// DiscordLink is a link with a text of its own.
type DiscordLink struct{ Text, URL string }

// DiscordEmbed is an embed without its markup.
type DiscordEmbed struct {
	Title, Description, URL, Footer string
	Color                           int
	Fields                          []DiscordField
	Time                            time.Time
}

// DiscordField is a field of an embed.
type DiscordField struct{ Name, Value string }

// String shows the message as a person sees it.
func (m DiscordMessage) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", m.Username)
	for _, e := range m.Embeds {
		fmt.Fprintf(&b, "  %s\n", e.Title)
		if e.URL != "" {
			fmt.Fprintf(&b, "  (title links to %s)\n", e.URL)
		}
		for line := range strings.Lines(e.Description) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSuffix(line, "\n"))
		}
		for _, f := range e.Fields {
			fmt.Fprintf(&b, "  %s: %s\n", f.Name, f.Value)
		}
		fmt.Fprintf(&b, "  %s · %s\n", e.Footer, e.Time.Format("2 Jan 2006, 15:04 MST"))
	}
	for _, l := range m.Links {
		fmt.Fprintf(&b, "(%q links to %s)\n", l.Text, l.URL)
	}
	return b.String()
}

// Messages returns what the channel shows, the oldest first.
func (d *Discord) Messages() []DiscordMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.messages)
}

// RateLimit makes the server turn away one request.
func (d *Discord) RateLimit(after time.Duration) {
	d.Then(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Retry-After", seconds(after))
		h.Set("X-RateLimit-Limit", "5")
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Reset-After", strconv.FormatFloat(after.Seconds(), 'f', -1, 64))
		h.Set("X-RateLimit-Scope", "user")
		writeJSON(w, http.StatusTooManyRequests, map[string]any{
			"message": "You are being rate limited.", "retry_after": after.Seconds(), "global": false,
		})
	})
}

var discordPath = regexp.MustCompile(`^/api(?:/v(?:6|7|8|9|10))?/webhooks/([0-9]+)/([A-Za-z0-9_-]+)$`)

// ServeHTTP executes the webhook.
func (d *Discord) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.told(w, r) {
		return
	}
	problem := func(status, code int, message string) {
		writeJSON(w, status, map[string]any{"message": message, "code": code})
	}
	if agent := r.UserAgent(); !strings.HasPrefix(agent, "DiscordBot (http") {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("error code: 1010"))
		return
	}
	path := discordPath.FindStringSubmatch(r.URL.Path)
	switch {
	case path == nil:
		problem(http.StatusNotFound, 0, "404: Not Found")
		return
	case r.Method != http.MethodPost:
		problem(http.StatusMethodNotAllowed, 0, "405: Method Not Allowed")
		return
	case path[1] != d.id:
		problem(http.StatusNotFound, 10015, "Unknown Webhook")
		return
	case path[2] != d.token:
		problem(http.StatusUnauthorized, 50027, "Invalid Webhook Token")
		return
	case !isJSON(r):
		problem(http.StatusBadRequest, 50035, "Invalid Form Body")
		return
	}
	body, err := readAll(r)
	if err != nil {
		return
	}
	var m discordForm
	if err := decode(body, &m); err != nil {
		problem(http.StatusBadRequest, 50109, "The request body contains invalid JSON.")
		return
	}
	if m.Content == "" && len(m.Embeds) == 0 {
		problem(http.StatusBadRequest, 50006, "Cannot send an empty message")
		return
	}
	errs := formErrors{}
	m.check(errs)
	if len(errs) > 0 {
		writeJSON(w, http.StatusBadRequest, map[string]any{"message": "Invalid Form Body", "code": 50035, "errors": errs})
		return
	}
	d.mu.Lock()
	shown := m.shown()
	shown.Body, shown.Thread = string(body), r.URL.Query().Get("thread_id")
	d.messages = append(d.messages, shown)
	number := len(d.messages)
	d.mu.Unlock()
	switch r.URL.Query().Get("wait") {
	case "true", "True", "1":
		writeJSON(w, http.StatusOK, map[string]any{
			"id": strconv.Itoa(number), "type": 0, "webhook_id": d.id, "content": m.Content, "embeds": m.Embeds,
		})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// The form of a message, with all that is documented of it.
type (
	discordForm struct {
		Content         string        `json:"content"`
		Username        *string       `json:"username"`
		AvatarURL       string        `json:"avatar_url"`
		TTS             bool          `json:"tts"`
		Embeds          []embedForm   `json:"embeds"`
		AllowedMentions *mentionsForm `json:"allowed_mentions"`
		Flags           int           `json:"flags"`
		ThreadName      string        `json:"thread_name"`
	}
	mentionsForm struct {
		Parse       []string `json:"parse"`
		Roles       []string `json:"roles"`
		Users       []string `json:"users"`
		RepliedUser bool     `json:"replied_user"`
	}
	embedForm struct {
		Title       string      `json:"title,omitempty"`
		Type        string      `json:"type,omitempty"`
		Description string      `json:"description,omitempty"`
		URL         string      `json:"url,omitempty"`
		Timestamp   string      `json:"timestamp,omitempty"`
		Color       *int        `json:"color,omitempty"`
		Footer      *footerForm `json:"footer,omitempty"`
		Author      *authorForm `json:"author,omitempty"`
		Fields      []fieldForm `json:"fields,omitempty"`
	}
	footerForm struct {
		Text    *string `json:"text"`
		IconURL string  `json:"icon_url,omitempty"`
	}
	authorForm struct {
		Name    *string `json:"name"`
		URL     string  `json:"url,omitempty"`
		IconURL string  `json:"icon_url,omitempty"`
	}
	fieldForm struct {
		Name   *string `json:"name"`
		Value  *string `json:"value"`
		Inline bool    `json:"inline,omitempty"`
	}
)

// formErrors is the errors member of an answer: objects by the path of what is
// wrong, with the list _errors at its end.
type formErrors map[string]any

func (e formErrors) add(code, message string, path ...any) {
	at := e
	for _, p := range path {
		name := fmt.Sprint(p)
		inner, ok := at[name].(formErrors)
		if !ok {
			inner = formErrors{}
			at[name] = inner
		}
		at = inner
	}
	list, _ := at["_errors"].([]map[string]string)
	at["_errors"] = append(list, map[string]string{"code": code, "message": message})
}

// text checks the length of a text, white space around it left aside, and returns
// it.
func (e formErrors) text(s *string, required bool, most int, path ...any) int {
	if s == nil || blank(*s) {
		if required {
			e.add("BASE_TYPE_REQUIRED", "This field is required", path...)
		}
		return 0
	}
	n := units(strings.TrimSpace(*s))
	if n > most {
		e.add("BASE_TYPE_MAX_LENGTH", fmt.Sprintf("Must be %d or fewer in length.", most), path...)
	}
	return n
}

func (e formErrors) url(s string, path ...any) {
	if s == "" {
		return
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || !strings.Contains(u.Hostname(), ".") || len(s) > 2048 || strings.ContainsAny(s, " \n<>\""):
		e.add("URL_TYPE_INVALID_URL", "Not a well formed URL.", path...)
	case u.Scheme != "http" && u.Scheme != "https":
		e.add("URL_TYPE_INVALID_SCHEME", fmt.Sprintf("Scheme %q is not supported. Scheme must be one of ('http', 'https').", u.Scheme), path...)
	}
}

func (m *discordForm) check(e formErrors) {
	e.text(&m.Content, false, 2000, "content")
	if m.Username != nil {
		name := strings.ToLower(*m.Username)
		if n := units(strings.TrimSpace(*m.Username)); n < 1 || n > 80 {
			e.add("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 80 in length.", "username")
		}
		for _, part := range []string{"discord", "clyde"} {
			if strings.Contains(name, part) {
				e.add("USERNAME_INVALID_CONTAINS", fmt.Sprintf("Username cannot contain %q", part), "username")
			}
		}
	}
	if len(m.Embeds) > 10 {
		e.add("BASE_TYPE_MAX_LENGTH", "Must be 10 or fewer in length.", "embeds")
	}
	total := 0
	for i, embed := range m.Embeds {
		total += embed.check(e, "embeds", i)
	}
	if total > 6000 {
		e.add("MAX_EMBED_SIZE_EXCEEDED", "Embed size exceeds maximum size of 6000", "embeds")
	}
	if a := m.AllowedMentions; a != nil {
		for i, kind := range a.Parse {
			if kind != "roles" && kind != "users" && kind != "everyone" {
				e.add("BASE_TYPE_CHOICES", "Value must be one of ('users', 'everyone', 'roles').", "allowed_mentions", "parse", i)
			}
		}
	}
}

// check returns what counts towards the limit of all embeds.
func (f *embedForm) check(e formErrors, path ...any) (total int) {
	at := func(more ...any) []any { return append(slices.Clone(path), more...) }
	total += e.text(&f.Title, false, 256, at("title")...)
	total += e.text(&f.Description, false, 4096, at("description")...)
	e.url(f.URL, at("url")...)
	if f.Timestamp != "" {
		if _, err := time.Parse(time.RFC3339, f.Timestamp); err != nil {
			e.add("DATE_TIME_TYPE_PARSE", fmt.Sprintf("Could not parse %s. Should be ISO8601.", f.Timestamp), at("timestamp")...)
		}
	}
	if f.Color != nil && (*f.Color < 0 || *f.Color > 0xffffff) {
		e.add("NUMBER_TYPE_MAX", "int value should be less than or equal to 16777215.", at("color")...)
	}
	if f.Footer != nil {
		total += e.text(f.Footer.Text, true, 2048, at("footer", "text")...)
	}
	if f.Author != nil {
		total += e.text(f.Author.Name, true, 256, at("author", "name")...)
		e.url(f.Author.URL, at("author", "url")...)
	}
	if len(f.Fields) > 25 {
		e.add("BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length.", at("fields")...)
	}
	for i, field := range f.Fields {
		total += e.text(field.Name, true, 256, at("fields", i, "name")...)
		total += e.text(field.Value, true, 1024, at("fields", i, "value")...)
	}
	if blank(f.Title) && blank(f.Description) && len(f.Fields) == 0 && f.Author == nil && f.Footer == nil {
		e.add("BASE_TYPE_REQUIRED", "This field is required", at("description")...)
	}
	return total
}

// shown renders the message.
func (m *discordForm) shown() DiscordMessage {
	shown := DiscordMessage{Username: "Webhook"}
	if m.Username != nil {
		shown.Username = *m.Username
	}
	read := func(s string) string {
		text, links, markup := readMarkdown(s)
		shown.Links = append(shown.Links, links...)
		shown.Markup = append(shown.Markup, markup...)
		return text
	}
	for _, f := range m.Embeds {
		e := DiscordEmbed{Title: read(f.Title), Description: read(f.Description), URL: f.URL}
		e.Time, _ = time.Parse(time.RFC3339, f.Timestamp)
		if f.Color != nil {
			e.Color = *f.Color
		}
		if f.Footer != nil {
			e.Footer = *f.Footer.Text // has no markup
		}
		for _, field := range f.Fields {
			e.Fields = append(e.Fields, DiscordField{read(*field.Name), read(*field.Value)})
		}
		shown.Embeds = append(shown.Embeds, e)
	}
	_ = read(m.Content)
	// Only the content pings, and without allowed_mentions everything in it does.
	for _, mention := range mentions.FindAllString(m.Content, -1) {
		if m.AllowedMentions == nil || slices.Contains(m.AllowedMentions.Parse, "everyone") {
			shown.Pings = append(shown.Pings, mention)
		}
	}
	if m.AllowedMentions == nil || len(m.AllowedMentions.Parse) > 0 {
		shown.Markup = append(shown.Markup, "mentions are allowed")
	}
	return shown
}

var (
	mentions = regexp.MustCompile(`@everyone|@here|<@[!&]?[0-9]+>`)
	// inlineMarkup is what is more than text wherever it stands.
	inlineMarkup = regexp.MustCompile("^(?:" + strings.Join([]string{
		`\*`, `_`, `~~`, "`", `\|\|`, // emphasis, code, spoilers
		`\[[^\]]*\]\(`,          // what might be a link with a text of its own
		`https?://`, `<https?:`, // links
		`<[@#:/]`, `<a?:`, `<t:`, `<id:`, // mentions, emoji, commands, times
		`@everyone`, `@here`,
		`:[A-Za-z0-9_+-]{2,}:`, // emoji by name
	}, "|") + ")")
	// maskedLink is a link with a text of its own: of words alone, because a URL or
	// markup in it makes clients differ, and to a URL that no character in it ends.
	maskedLink = regexp.MustCompile(`^\[([A-Za-z ]+)\]\((https?://[^\s()<>\\]+)\)`)
	// blockMarkup is what is more than text where a line begins.
	blockMarkup = regexp.MustCompile(`^(?:#{1,3} |-# |>|[-*+] |[0-9]+[.)] )`)
)

// readMarkdown returns the text that is shown, the links in it, and what else in
// it is more than text.
func readMarkdown(s string) (text string, links []DiscordLink, markup []string) {
	var b strings.Builder
	start := true
	for s != "" {
		if link := maskedLink.FindStringSubmatch(s); link != nil {
			links = append(links, DiscordLink{Text: link[1], URL: link[2]})
			b.WriteString(link[1])
			s, start = s[len(link[0]):], false
			continue
		}
		if strings.IndexByte("*_~`|[h<@:", s[0]) >= 0 {
			if found := inlineMarkup.FindString(s); found != "" {
				markup = append(markup, found)
			}
		}
		if start {
			if found := blockMarkup.FindString(s); found != "" {
				markup = append(markup, found)
			}
		}
		runes := []rune(s[:min(len(s), 8)])
		r := runes[0]
		if r == '\\' && len(runes) > 1 {
			// A backslash makes what follows stand for itself, unless that is a
			// letter, a digit or white space.
			if next := runes[1]; !unicode.IsLetter(next) && !unicode.IsDigit(next) && !unicode.IsSpace(next) {
				r = next
				s = s[1:]
			}
		}
		start = r == '\n'
		b.WriteRune(r)
		s = s[len(string(r)):]
	}
	return b.String(), links, markup
}

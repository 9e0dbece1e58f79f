package channel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What Sentry keeps of an event (Event Payloads, Variable Size). What is longer
// it would cut itself, less readably; an event of more than 1 MiB it refuses.
const (
	sentryMessage   = 8192      // characters
	sentryTag       = 199       // characters: fewer than 200
	sentryExtra     = 16 << 10  // bytes of one item
	sentryExtras    = 256 << 10 // bytes of all
	sentryExtraMost = 50        // items
	sentryDepth     = 6         // of nesting in an item
)

// sentry is one project.
type sentry struct {
	dsn    sentryDSN
	url    string
	header http.Header
}

// sentryDSN is a DSN taken apart.
type sentryDSN struct {
	key     string
	secret  string // of old; "" in most
	base    string // scheme, host and path, "https://o1.ingest.sentry.io"
	project string
}

// url is where the project's events go.
func (d sentryDSN) url() string { return d.base + "/api/" + d.project + "/envelope/" }

const (
	ruleConfigSentry = "has something that kind sentry does not know; it takes dsn"
	ruleDSN          = "must be a Sentry DSN: https://, a key, @, a host, a slash and the number of a project"
)

func saveSentry(stored *Settings, url string, config map[string]string) (Settings, string, error) {
	if url != "" && (stored == nil || url != stored.URL) {
		return Settings{}, "", &RuleError{"url", "must be empty for kind sentry: it follows from config"}
	}
	for name := range config {
		if name != dsn {
			return Settings{}, "", &RuleError{"config", ruleConfigSentry}
		}
	}
	raw, given := config[dsn]
	if !given && stored != nil {
		return *stored, "", nil
	}
	raw = strings.TrimSpace(raw)
	d, rule := parseDSN(raw)
	if rule != "" {
		return Settings{}, "", &RuleError{"config." + dsn, rule}
	}
	return Settings{URL: d.url()}, raw, nil
}

// parseDSN takes a DSN apart, and returns the rule it breaks, or "". What is
// allowed of hosts and paths is the business of who makes requests to them.
func parseDSN(raw string) (d sentryDSN, rule string) {
	if raw == "" {
		return d, "is required: the DSN of a Sentry project"
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || (scheme != "https" && scheme != "http") || strings.ContainsAny(rest, "?#") {
		return d, ruleDSN
	}
	user, rest, ok := strings.Cut(rest, "@")
	slash := strings.LastIndexByte(rest, '/')
	if !ok || slash <= 0 || strings.Contains(rest, "@") {
		return d, ruleDSN
	}
	var hasSecret bool
	d.key, d.secret, hasSecret = strings.Cut(user, ":")
	if !tokenOf(d.key, tokenMost) || (hasSecret && d.secret != "" && !tokenOf(d.secret, tokenMost)) {
		return d, ruleDSN
	}
	d.base, d.project = scheme+"://"+strings.TrimSuffix(rest[:slash], "/"), rest[slash+1:]
	if !digits(d.project, 20) {
		return d, ruleDSN
	}
	return d, ""
}

func openSentry(credential string) (vendor, error) {
	d, rule := parseDSN(credential)
	if rule != "" {
		return nil, &RuleError{"config." + dsn, rule}
	}
	auth := "Sentry sentry_version=7, sentry_client=elido-webhooks/1.0, sentry_key=" + d.key
	if d.secret != "" {
		auth += ", sentry_secret=" + d.secret
	}
	return &sentry{dsn: d, url: d.url(), header: http.Header{
		"Content-Type":  {"application/x-sentry-envelope"},
		"User-Agent":    {userAgent},
		"X-Sentry-Auth": {auth},
	}}, nil
}

// URL implements vendor.
func (s *sentry) URL() string { return s.url }

// Header implements vendor.
func (s *sentry) Header() http.Header { return s.header }

func (s *sentry) secrets() []string { return []string{s.dsn.key, s.dsn.secret} }

// The parts of envelopes and events that are used here.
type (
	sentryHeader struct {
		EventID string    `json:"event_id"`
		SentAt  string    `json:"sent_at"`
		SDK     sentrySDK `json:"sdk"`
	}
	sentryItem struct {
		Type        string `json:"type"`
		ContentType string `json:"content_type"`
		Length      int    `json:"length"`
	}
	sentryEvent struct {
		EventID     string            `json:"event_id"`
		Timestamp   string            `json:"timestamp"`
		Platform    string            `json:"platform"`
		Level       string            `json:"level"`
		Logger      string            `json:"logger"`
		LogEntry    sentryLogEntry    `json:"logentry"`
		Tags        map[string]string `json:"tags"`
		Fingerprint []string          `json:"fingerprint"`
		Extra       map[string]any    `json:"extra,omitempty"`
		SDK         sentrySDK         `json:"sdk"`
	}
	sentryLogEntry struct {
		Formatted string `json:"formatted"`
	}
	sentrySDK struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
)

// Message implements vendor.
func (s *sentry) Message(e Event, at time.Time) []byte {
	n := describe(e)
	id := sentryEventID(e)
	sdk := sentrySDK{Name: "elido-webhooks", Version: "1.0"}
	event := sentryEvent{
		EventID:   id,
		Timestamp: n.at.Format("2006-01-02T15:04:05.000Z"),
		Platform:  "other",
		Level:     "info",
		Logger:    "elido",
		Tags: map[string]string{
			"workspace_id": strconv.FormatInt(e.WorkspaceID, 10),
			"delivery_id":  strconv.FormatInt(e.DeliveryID, 10),
		},
		// What happens again to the same thing is one issue.
		Fingerprint: []string{"elido", line(e.Type, sentryTag), "workspace " + strconv.FormatInt(e.WorkspaceID, 10)},
		Extra:       sentryData(n.data),
		SDK:         sdk,
	}
	for name, value := range map[string]string{"event_type": e.Type, "event_id": e.ID} {
		if value = line(value, sentryTag); value != "" {
			event.Tags[name] = value
		}
	}
	if n.tone == critical {
		event.Level = "error"
	}
	if n.about != "" {
		event.Fingerprint = append(event.Fingerprint, "of "+n.about) // alone it might be a variable of Sentry's
	}
	event.LogEntry.Formatted = n.sentryMessage()

	body := encode(event)
	var b []byte
	b = append(b, encode(sentryHeader{EventID: id, SentAt: at.UTC().Format("2006-01-02T15:04:05.000Z"), SDK: sdk})...)
	b = append(b, '\n')
	b = append(b, encode(sentryItem{Type: "event", ContentType: contentTypeJSON, Length: len(body)})...)
	b = append(b, '\n')
	b = append(b, body...)
	return append(b, '\n')
}

// sentryMessage writes the message of an event. Its first line is what lists and
// notifications show.
func (n *note) sentryMessage() string {
	title := n.title.plain()
	if n.cause != nil && n.tone >= warning {
		title += ": " + n.cause.plain()
	}
	var more []string
	for _, t := range []text{n.detail, n.todoText()} {
		if t != nil {
			more = append(more, t.plain())
		}
	}
	shown := n.to.url == ""
	for _, f := range n.fields {
		value := f.value.plain()
		more = append(more, f.name.plain()+": "+value)
		shown = shown || value == n.to.url
	}
	if !shown {
		more = append(more, n.to.words+": "+n.to.url)
	}
	if len(more) == 0 {
		return cut(title, sentryMessage)
	}
	return cut(title+"\n\n"+strings.Join(more, "\n"), sentryMessage)
}

// sentryEventID derives the id of a Sentry event from the delivery, so that an
// attempt that is repeated makes no second one: 32 hexadecimal digits in the form
// of a random UUID. The event's own id is in it, because delivery ids begin anew
// in every store, and several may report to one project.
func sentryEventID(e Event) string {
	sum := sha256.Sum256([]byte("elido sentry event 1\x00" + strconv.FormatInt(e.DeliveryID, 10) + "\x00" + e.ID))
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id)
}

// sentryData makes the additional data of an event of its data. What Sentry would
// not keep is cut, or left out with a note in its place.
func sentryData(data object) map[string]any {
	extra := make(map[string]any)
	total, omitted := 0, 0
	for _, name := range sorted(data) {
		value := storable(data[name], sentryDepth)
		size := len(encode(value))
		if size > sentryExtra {
			value = fmt.Sprintf("omitted: %d bytes, more than Sentry keeps of one value", size)
			if s, ok := data[name].(string); ok {
				value = line(s, sentryExtra/4)
			}
			size = len(encode(value))
		}
		key := line(name, sentryTag)
		if size += len(encode(key)) + 2; total+size > sentryExtras-sentryExtra || len(extra) == sentryExtraMost-1 {
			omitted++
			continue
		}
		total += size
		extra[key] = value
	}
	if omitted > 0 {
		extra["(omitted)"] = fmt.Sprintf("%d more members, more than Sentry keeps", omitted)
	}
	return extra
}

// storable returns a value that every JSON parser takes: no deep nesting, no
// number that does not fit into a double.
func storable(v any, depth int) any {
	switch v := v.(type) {
	case json.Number:
		if _, err := v.Float64(); err != nil {
			return v.String()
		}
	case []any:
		if depth == 0 {
			return itoa(len(v)) + " items"
		}
		list := make([]any, len(v))
		for i := range v {
			list[i] = storable(v[i], depth-1)
		}
		return list
	case map[string]any:
		if depth == 0 {
			return itoa(len(v)) + " members"
		}
		o := make(map[string]any, len(v))
		for name := range v {
			o[name] = storable(v[name], depth-1)
		}
		return o
	}
	return v
}

// Answer implements vendor. Sentry refuses for good an envelope that is malformed
// (400) or too large (413), and a key or a project that is not, or no longer,
// there (401, 403, 404). One 403 passes: a Relay gives it also while it cannot
// load the project's settings.
func (s *sentry) Answer(status int, h http.Header, body []byte) Answer {
	if success(status) {
		return Answer{Delivered: true}
	}
	d := readDocument(body)
	a := Answer{Reason: orElse(d.text("detail"), h.Get("X-Sentry-Error"))}
	var causes []string
	if _ = json.Unmarshal(d["causes"], &causes); len(causes) > 0 && causes[0] != "" && a.Reason != "" {
		a.Reason += ": " + causes[0]
	}
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestEntityTooLarge:
		a.Final = true
	case http.StatusForbidden:
		a.Final = !strings.Contains(a.Reason, "ProjectState")
	}
	a.Wait = sentryLimit(h)
	if status == http.StatusTooManyRequests && a.Wait == 0 && h.Get("Retry-After") == "" {
		a.Wait = time.Minute // what Sentry asks for where it does not say (Rate Limiting, stage 1)
	}
	return a
}

// sentryLimit reads X-Sentry-Rate-Limits: how long events are not taken. Its
// value is a list of "seconds:categories:…"; no category means all.
func sentryLimit(h http.Header) (longest time.Duration) {
	for group := range strings.SplitSeq(strings.Join(h.Values("X-Sentry-Rate-Limits"), ","), ",") {
		number, rest, _ := strings.Cut(strings.ReplaceAll(group, " ", ""), ":")
		categories, _, _ := strings.Cut(rest, ":")
		ours := categories == ""
		for category := range strings.SplitSeq(categories, ";") {
			ours = ours || category == "error" || category == "default"
		}
		if ours && number != "" {
			longest = max(longest, wait(number))
		}
	}
	return longest
}

package channeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Sentry stands in for a Sentry with one project. Its rules are those of Sentry's
// documentation for SDK developers (Authentication, Envelopes, Event Payloads,
// Rate Limiting), its words those of Relay, the server that takes envelopes.
type Sentry struct {
	script
	prefix, project, key string
	events               []SentryEvent
	repeats              int
}

// NewSentry returns a server with one project, below a path that may be empty.
func NewSentry(prefix, project, key string) *Sentry {
	return &Sentry{prefix: prefix, project: project, key: key}
}

// SentryEvent is an event as its issue shows it.
type SentryEvent struct {
	ID, Level, Logger string
	Title             string // as lists show it: the first line of the message
	Message           string
	Time              time.Time
	Tags              map[string]string
	Extra             map[string]json.RawMessage
	Fingerprint       []string
	Body              string // the envelope, as it was sent
}

// String shows the event as a person sees it.
func (e SentryEvent) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s\n", e.Level, e.Title)
	for line := range strings.Lines(strings.TrimPrefix(e.Message, e.Title)) {
		if !blank(line) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	fmt.Fprintf(&b, "  %s · %s\n", e.Logger, e.Time.Format("2 Jan 2006, 15:04 MST"))
	fmt.Fprintf(&b, "  one issue for all of: %s\n", strings.Join(e.Fingerprint, ", "))
	for _, name := range sortedKeys(e.Tags) {
		fmt.Fprintf(&b, "  tag %s: %s\n", name, e.Tags[name])
	}
	for _, name := range sortedKeys(e.Extra) {
		fmt.Fprintf(&b, "  %s: %s\n", name, e.Extra[name])
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Events returns the events of the project, the oldest first. One that came again
// under its id is there once.
func (s *Sentry) Events() []SentryEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// Repeats is how many events came that were there already.
func (s *Sentry) Repeats() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repeats
}

// RateLimit makes the server turn away one request.
func (s *Sentry) RateLimit(after time.Duration) {
	s.Then(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", seconds(after))
		w.Header().Set("X-Sentry-Rate-Limits", seconds(after)+":default;error;security:organization:org_quota, 1:transaction:key")
		sentryError(w, http.StatusTooManyRequests,
			"Sentry dropped data due to a quota or internal rate limit being reached. This will not affect your application. "+
				"See https://docs.sentry.io/product/accounts/quotas/ for more information.")
	})
}

// Refuse makes the server refuse one request with a detail of its own.
func (s *Sentry) Refuse(status int, detail string) {
	s.Then(func(w http.ResponseWriter, _ *http.Request) { sentryError(w, status, detail) })
}

func sentryError(w http.ResponseWriter, status int, detail string, causes ...string) {
	w.Header().Set("X-Sentry-Error", detail)
	answer := map[string]any{"detail": detail}
	if len(causes) > 0 {
		answer["causes"] = causes
	}
	writeJSON(w, status, answer)
}

// ServeHTTP takes an envelope.
func (s *Sentry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.told(w, r) {
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, s.prefix+"/api/")
	project, endpoint, _ := strings.Cut(path, "/")
	if !ok || endpoint != "envelope/" || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	auth, err := readAuth(r.Header.Get("X-Sentry-Auth"))
	switch {
	case err != nil:
		sentryError(w, http.StatusUnauthorized, "bad x-sentry-auth header", err.Error())
		return
	case auth == nil:
		sentryError(w, http.StatusUnauthorized, "missing authorization information")
		return
	case auth["sentry_version"] != "7":
		sentryError(w, http.StatusBadRequest, "unsupported protocol version ("+auth["sentry_version"]+")")
		return
	case auth["sentry_client"] == "":
		sentryError(w, http.StatusBadRequest, "the client does not say who it is") // recommended
		return
	case auth["sentry_key"] != s.key || project != s.project:
		sentryError(w, http.StatusForbidden, "event submission rejected with_reason: ProjectId")
		return
	case r.Header.Get("Content-Type") != "application/x-sentry-envelope":
		sentryError(w, http.StatusBadRequest, "invalid event envelope", "unexpected content type")
		return
	}
	body, err := readAll(r)
	if err != nil {
		return
	}
	event, err := readEnvelope(body)
	var tooLarge tooLargeError
	switch {
	case errors.As(err, &tooLarge):
		sentryError(w, http.StatusRequestEntityTooLarge, tooLarge.Error())
		return
	case err != nil:
		sentryError(w, http.StatusBadRequest, "invalid event envelope", err.Error())
		return
	}
	s.mu.Lock()
	if slices.ContainsFunc(s.events, func(e SentryEvent) bool { return e.ID == event.ID }) {
		s.repeats++
	} else {
		s.events = append(s.events, event)
	}
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]string{"id": event.ID})
}

// readAuth reads an X-Sentry-Auth header; nil means there is none.
func readAuth(header string) (map[string]string, error) {
	if header == "" {
		return nil, nil
	}
	list, ok := strings.CutPrefix(header, "Sentry ")
	if !ok {
		return nil, errors.New("bad auth header: not of scheme Sentry")
	}
	auth := make(map[string]string)
	for pair := range strings.SplitSeq(list, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || value == "" {
			return nil, errors.New("bad auth header: not a list of name=value")
		}
		auth[name] = value
	}
	if auth["sentry_key"] == "" {
		return nil, errors.New("bad auth header: no sentry_key")
	}
	return auth, nil
}

// tooLargeError is of an item over its limit.
type tooLargeError string

func (e tooLargeError) Error() string {
	return "envelope exceeded size limits for type '" + string(e) + "' (https://develop.sentry.dev/sdk/envelopes/#size-limits)"
}

var (
	eventID = regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`)
	// fingerprintVariable is replaced by Sentry with something of its own.
	fingerprintVariable = regexp.MustCompile(`^\{\{\s*\S+\s*\}\}$`)
	tagName             = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,200}$`)
)

// maxEventItem is the limit of an event, in bytes.
const maxEventItem = 1 << 20

// readEnvelope reads an envelope of one event.
func readEnvelope(body []byte) (e SentryEvent, err error) {
	line, rest, found := bytes.Cut(body, []byte("\n"))
	if !found {
		return e, errors.New("missing envelope items")
	}
	var header struct {
		EventID string          `json:"event_id"`
		SentAt  string          `json:"sent_at"`
		DSN     *string         `json:"dsn"`
		SDK     json.RawMessage `json:"sdk"`
	}
	if err := readHeader(line, &header); err != nil {
		return e, fmt.Errorf("invalid envelope header: %w", err)
	}
	if header.DSN != nil {
		return e, errors.New("multiple authorization payloads detected")
	}
	if sent, err := time.Parse(time.RFC3339, header.SentAt); err != nil || sent.Location() != time.UTC {
		return e, errors.New("invalid envelope header: sent_at is not an instant in UTC")
	}
	line, rest, found = bytes.Cut(rest, []byte("\n"))
	var item struct {
		Type        string `json:"type"`
		Length      *int   `json:"length"`
		ContentType string `json:"content_type"`
	}
	if err := readHeader(line, &item); err != nil || !found {
		return e, errors.New("invalid item header")
	}
	switch {
	case item.Type != "event":
		return e, errors.New("missing event item")
	case item.Length == nil || *item.Length < 0 || *item.Length > len(rest):
		return e, fmt.Errorf("payload of %d bytes does not fit the length of its header", len(rest))
	}
	payload, end := rest[:*item.Length], rest[*item.Length:]
	if len(end) > 1 || (len(end) == 1 && end[0] != '\n') {
		return e, errors.New("missing newline after header or payload")
	}
	if len(payload) > maxEventItem {
		return e, tooLargeError("event")
	}
	e, err = readEvent(payload)
	if err == nil && e.ID != header.EventID {
		err = errors.New("event ids of envelope and item mismatch")
	}
	e.Body = string(body)
	return e, err
}

// readHeader reads a header: an object in one line, nothing around it.
func readHeader(line []byte, v any) error {
	if len(line) == 0 || line[0] != '{' || line[len(line)-1] != '}' {
		return errors.New("not an object on a line of its own")
	}
	return decode(line, v)
}

// readEvent reads an event and holds it to the limits of what Sentry would keep.
func readEvent(payload []byte) (e SentryEvent, err error) {
	var form struct {
		EventID     string                         `json:"event_id"`
		Timestamp   string                         `json:"timestamp"`
		Platform    string                         `json:"platform"`
		Level       string                         `json:"level"`
		Logger      string                         `json:"logger"`
		LogEntry    struct{ Formatted string }     `json:"logentry"`
		Tags        map[string]string              `json:"tags"`
		Extra       map[string]json.RawMessage     `json:"extra"`
		Fingerprint []string                       `json:"fingerprint"`
		SDK         struct{ Name, Version string } `json:"sdk"`
	}
	if err := decode(payload, &form); err != nil {
		return e, fmt.Errorf("invalid JSON data: %w", err)
	}
	at, err := time.Parse(time.RFC3339, form.Timestamp)
	switch {
	case !eventID.MatchString(form.EventID):
		return e, errors.New("invalid event id")
	case err != nil:
		return e, errors.New("invalid timestamp")
	case form.Platform != "other":
		return e, errors.New("unknown platform")
	case !slices.Contains([]string{"fatal", "error", "warning", "info", "debug"}, form.Level):
		return e, errors.New("unknown level")
	case blank(form.LogEntry.Formatted) || units(form.LogEntry.Formatted) > 8192:
		return e, errors.New("logentry.formatted is required, at most 8192 characters")
	}
	title, _, _ := strings.Cut(form.LogEntry.Formatted, "\n")
	for _, part := range form.Fingerprint {
		if fingerprintVariable.MatchString(part) {
			return e, errors.New("a fingerprint has a variable in it") // which ours must not
		}
	}
	for name, value := range form.Tags {
		if !tagName.MatchString(name) || value == "" || units(value) >= 200 || strings.Contains(value, "\n") {
			return e, fmt.Errorf("invalid tag %q", name)
		}
	}
	total := 0
	for name, value := range form.Extra {
		if len(value) > 16<<10 {
			return e, fmt.Errorf("extra %q is over 16 kB", name)
		}
		if depth(value) > 8 {
			return e, fmt.Errorf("extra %q is nested too deeply", name)
		}
		total += len(name) + len(value)
	}
	if total > 256<<10 || len(form.Extra) > 50 {
		return e, errors.New("extra is over 256 kB or 50 items")
	}
	return SentryEvent{
		ID: form.EventID, Level: form.Level, Title: title, Message: form.LogEntry.Formatted, Logger: form.Logger, Time: at.UTC(),
		Tags: form.Tags, Extra: form.Extra, Fingerprint: form.Fingerprint,
	}, nil
}

// depth is how deeply arrays and objects are nested.
func depth(raw []byte) (most int) {
	d := json.NewDecoder(bytes.NewReader(raw))
	now := 0
	for {
		token, err := d.Token()
		if err != nil {
			return most
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			now++
			most = max(most, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}

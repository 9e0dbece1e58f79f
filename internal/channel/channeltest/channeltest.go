// Package channeltest has servers that stand in for Discord, Telegram and Sentry
// in tests and examples. Each keeps to the rules that its vendor publishes, and
// refuses what breaks them in the vendor's own words: lengths, required members,
// the authentication header, the framing of envelopes. Where a rule can be read in
// two ways, the stricter one holds.
//
// Each is an http.Handler that remembers what it took, in the form in which a
// person would see it, and can be told to answer otherwise.
package channeltest

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
)

// script is what a server was told to answer, and how often it was asked.
type script struct {
	mu   sync.Mutex
	hits int
	next []http.HandlerFunc
}

// Then makes the server give this answer once, instead of its own, after those it
// was told before.
func (s *script) Then(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, answer)
}

// Break makes the server fail once with a status and no explanation, as a proxy
// before it would.
func (s *script) Break(status int) {
	s.Then(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, http.StatusText(status), status) })
}

// Requests is how many requests there were.
func (s *script) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits
}

// told counts a request, and answers it if the server was told how.
func (s *script) told(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	s.hits++
	var answer http.HandlerFunc
	if len(s.next) > 0 {
		answer, s.next = s.next[0], s.next[1:]
	}
	s.mu.Unlock()
	if answer == nil {
		return false
	}
	answer(w, r)
	return true
}

// mostRead bounds what is read of a request.
const mostRead = 2 << 20

func readAll(r *http.Request) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r.Body, mostRead))
}

// isJSON reports whether a request says that its body is JSON.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// decode reads one JSON document that has no members but those of v.
func decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// seconds is a duration as Retry-After has it: whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// units is the length of a text in UTF-16 units.
func units(s string) int { return len(utf16.Encode([]rune(s))) }

func blank(s string) bool { return strings.TrimSpace(s) == "" }

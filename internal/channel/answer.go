package channel

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An Answer is what a vendor made of a message.
type Answer struct {
	Delivered bool
	Final     bool          // repeating cannot help
	Wait      time.Duration // before another attempt, at most a day
	Reason    string        // the vendor's own, or ""
}

func success(status int) bool { return status >= 200 && status <= 299 }

// reasonMost is how much of a vendor's reason is kept, in UTF-16 units.
const reasonMost = 300

// Answer says what the answer to a request means.
func (c *Channel) Answer(status int, h http.Header, body []byte) Answer {
	a := c.vendor.Answer(status, h, body)
	// In this order: of a credential that is cut, a part would be left.
	a.Reason = line(string(c.Redact([]byte(a.Reason))), reasonMost)
	return a
}

// document is an answer's body, or a part of it, if that is a JSON object. Its
// methods read what is there, each member for itself.
type document map[string]json.RawMessage

func readDocument(body []byte) (d document) {
	_ = json.Unmarshal(body, &d)
	return d
}

func (d document) document(name string) document { return readDocument(d[name]) }

// text returns a member that is a string.
func (d document) text(name string) string {
	var s string
	_ = json.Unmarshal(d[name], &s)
	return s
}

// number returns a member that is a number, as it is spelled.
func (d document) number(name string) string {
	if raw := d[name]; len(raw) > 0 && (raw[0] == '-' || isDigit(rune(raw[0]))) {
		return string(raw)
	}
	return ""
}

// waitMost is the longest that a vendor may put off an attempt.
const waitMost = 24 * time.Hour

// wait reads a number of seconds: what is no number or not positive is nothing,
// what is more than a day is a day.
func wait(number string) time.Duration {
	if number == "" || !isDigit(rune(number[0])) { // nor "NaN" and "Inf", which would parse
		return 0
	}
	f, err := strconv.ParseFloat(number, 64)
	switch {
	case f >= waitMost.Seconds(): // also what is out of range, infinite and an error
		return waitMost
	case err != nil:
		return 0
	}
	return time.Duration(math.Ceil(f * float64(time.Second)))
}

// withoutStatus takes the name of a status away from the beginning of a reason:
// it is told beside it.
func withoutStatus(reason string, status int) string {
	return strings.TrimPrefix(reason, http.StatusText(status)+": ")
}

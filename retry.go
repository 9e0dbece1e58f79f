package webhook

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryPolicy says how often a delivery is attempted, and when. The zero value
// is 3 attempts: at once, 5 minutes after the first failed, 15 minutes after
// the second failed.
type RetryPolicy struct {
	// Delays are the waits before the second attempt, the third and so on, each
	// counted from the end of the attempt before. The budget is one more
	// attempt than there are delays. Nil means the default; empty and not nil
	// means a single attempt. At most 100, of up to 30 days each.
	Delays []time.Duration

	// Jitter lengthens each delay by a random part of it, up to this fraction;
	// it never shortens one. Defaults to 0.
	Jitter float64
}

const (
	retryAfterMost = 24 * time.Hour
	delayMost      = 30 * 24 * time.Hour
	delaysMost     = 100
)

func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.Delays == nil {
		p.Delays = []time.Duration{5 * time.Minute, 15 * time.Minute}
	}
	if len(p.Delays) > delaysMost {
		return p, &InvalidError{Field: "Retry.Delays", Rule: fmt.Sprintf("must be at most %d", delaysMost)}
	}
	for i, d := range p.Delays {
		if d < 0 || d > delayMost || d > 0 && d < time.Millisecond { // a bare number is nanoseconds
			return p, &InvalidError{Field: fmt.Sprintf("Retry.Delays[%d]", i), Rule: "must be 0, or between 1 millisecond and 30 days"}
		}
	}
	if !(p.Jitter >= 0 && p.Jitter <= 1) {
		return p, &InvalidError{Field: "Retry.Jitter", Rule: "must be between 0 and 1"}
	}
	return p, nil
}

// budget is how many attempts a delivery has.
func (p RetryPolicy) budget() int { return len(p.Delays) + 1 }

// next returns when to attempt again after the given number of failures, the
// last of which ended now. A Retry-After may put it off, never bring it forward.
func (p RetryPolicy) next(failures int, now time.Time, retryAfter time.Duration) time.Time {
	// A policy that was shortened since the delivery was published still has a
	// last delay to go by.
	var delay time.Duration
	if n := len(p.Delays); n > 0 {
		delay = p.Delays[min(failures, n)-1]
	}
	delay = max(delay, retryAfter)
	if p.Jitter > 0 {
		delay += time.Duration(rand.Float64() * p.Jitter * float64(delay))
	}
	return ceilMillis(now.Add(delay))
}

// ceilMillis rounds up to whole milliseconds, so that what is stored is never
// earlier than what was meant.
func ceilMillis(t time.Time) time.Time {
	return t.Add(time.Millisecond - 1).UTC().Truncate(time.Millisecond)
}

// retryAfter reads a Retry-After header (RFC 9110, section 10.2.3): seconds or
// an HTTP date, at most 24 hours ahead. What is malformed, negative or past is
// zero.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.Trim(h.Get("Retry-After"), " \t")
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > uint64(retryAfterMost/time.Second) { // err: out of range
			return retryAfterMost
		}
		return time.Duration(seconds) * time.Second
	}
	date, ok := httpDate(value)
	if !ok || !date.After(now) {
		return 0
	}
	if date.After(now.Add(retryAfterMost)) { // Sub would overflow on the year 9999
		return retryAfterMost
	}
	return date.Sub(now)
}

// httpDate reads a date in one of the three forms of RFC 9110, section 5.6.7. All
// are in GMT. http.ParseTime takes other zones in the second form, and what they
// mean depends on where this machine is.
func httpDate(value string) (time.Time, bool) {
	for _, form := range [...]string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		if date, err := time.Parse(form, value); err == nil {
			return date, true
		}
	}
	return time.Time{}, false
}

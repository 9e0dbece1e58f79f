package webhook

import (
	"fmt"
	"math"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// The second opinions below are written from RFC 9110 and from what the
// functions promise, with regular expressions and numbers of any size, and share
// no code with what they judge.

const (
	naiveDay   = `(?i:mon|tue|wed|thu|fri|sat|sun)`
	naiveLong  = `(?i:monday|tuesday|wednesday|thursday|friday|saturday|sunday)`
	naiveMonth = `(?i:(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))`
	// As package time reads it: an hour of one digit and a fraction pass.
	naiveClock = `([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?`
)

var (
	naiveSeconds = regexp.MustCompile(`\A[0-9]+\z`)
	// The three forms of an HTTP-date: day, month, year, clock.
	naiveFixdate = regexp.MustCompile(`\A` + naiveDay + `, +([0-9]{2}) +` + naiveMonth + ` +([0-9]{4}) +` + naiveClock + ` +GMT\z`)
	naiveRFC850  = regexp.MustCompile(`\A` + naiveLong + `, +([0-9]{2})-` + naiveMonth + `-([0-9]{2}) +` + naiveClock + ` +GMT\z`)
	naiveASCTime = regexp.MustCompile(`\A` + naiveDay + ` +` + naiveMonth + ` +([0-9]{1,2}) +` + naiveClock + ` +([0-9]{4})\z`)
)

// naiveDate returns the nanoseconds since 1970 that an HTTP-date stands for.
func naiveDate(value string) (*big.Int, bool) {
	var day, month, year string
	var clock []string
	if m := naiveFixdate.FindStringSubmatch(value); m != nil {
		day, month, year, clock = m[1], m[2], m[3], m[4:]
	} else if m := naiveRFC850.FindStringSubmatch(value); m != nil {
		day, month, year, clock = m[1], m[2], "20"+m[3], m[4:]
		if m[3] >= "69" { // two digits, read as POSIX does
			year = "19" + m[3]
		}
	} else if m := naiveASCTime.FindStringSubmatch(value); m != nil {
		day, month, year, clock = m[2], m[1], m[7], m[3:7]
	} else {
		return nil, false
	}
	number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }
	hour, minute, second := number(clock[0]), number(clock[1]), number(clock[2])
	if hour > 23 || minute > 59 || second > 59 {
		return nil, false
	}
	y, d := number(year), number(day)
	m := int64(strings.Index("janfebmaraprmayjunjulaugsepoctnovdec", strings.ToLower(month)))/3 + 1
	leap := y%4 == 0 && (y%100 != 0 || y%400 == 0)
	length := map[int64]int64{4: 30, 6: 30, 9: 30, 11: 30, 2: 28}[m]
	switch {
	case length == 0:
		length = 31
	case m == 2 && leap:
		length = 29
	}
	if d < 1 || d > length {
		return nil, false
	}
	// Days since 1970-01-01 of the proleptic Gregorian calendar, counted from
	// March so that the leap day comes last.
	a := (14 - m) / 12
	yy, mm := y+4800-a, m+12*a-3
	days := d + (153*mm+2)/5 + 365*yy + yy/4 - yy/100 + yy/400 - 32045 - 2440588
	ns := new(big.Int).SetInt64(((days*24+hour)*60+minute)*60 + second)
	ns.Mul(ns, big.NewInt(1e9))
	if fraction := clock[3]; fraction != "" {
		ns.Add(ns, big.NewInt(number((fraction + "00000000")[:9])))
	}
	return ns, true
}

// naiveRetryAfter returns how long a Retry-After asks to wait.
func naiveRetryAfter(value string, now time.Time) time.Duration {
	const most = 24 * time.Hour
	value = strings.Trim(value, " \t")
	wait := new(big.Int)
	if naiveSeconds.MatchString(value) {
		wait.SetString(value, 10)
		wait.Mul(wait, big.NewInt(1e9))
	} else if date, ok := naiveDate(value); ok {
		at := new(big.Int).Mul(big.NewInt(now.Unix()), big.NewInt(1e9))
		wait.Sub(date, at.Add(at, big.NewInt(int64(now.Nanosecond()))))
	}
	switch {
	case wait.Sign() <= 0:
		return 0
	case wait.Cmp(big.NewInt(int64(most))) > 0:
		return most
	}
	return time.Duration(wait.Int64())
}

// FuzzRetryAfter compares the reading of a Retry-After with the naive one, and
// the next attempt with what a Retry-After may do to it. {f}, {r} and {a} stand
// for a time near now in the three forms of an HTTP-date, {s} for its distance.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{
		"", "0", "100", "86400", "86401", " 120\t", "0120", "99999999999999999999", "18446744073709551616", "9223372036854775808",
		"-5", "+5", "1e308", "NaN", "Inf", "0x10", "600.5", "1_000", "٣٠٠", "10 ", "10,20", "10;q=1", "\x00", "1\x002",
		"{f}", "{r}", "{a}", "{s}", "{f} ", "{f}{f}", "{s}{s}{s}",
		"Wed, 01 Jan 9999 00:00:00 GMT", "Sat, 01 Jan 0000 00:00:00 GMT", "Fri, 31 Dec 1999 23:59:59 GMT", "Mon, 29 Feb 2100 00:00:00 GMT",
		"Thu, 29 Feb 2024 00:00:00 GMT", "Sat, 30 Feb 2024 00:00:00 GMT", "sat, 01 jan 2028 24:00:00 GMT", "Sat, 01 Jan 2028 0:00:60 GMT",
		"Saturday, 01-Jan-28 00:30:00 PST", "Saturday, 01-Jan-28 00:30:00 GMT+3", "Saturday, 01-Jan-28 00:30:00 CET", "Friday, 31-Dec-99 23:59:59 GMT",
		"Sat, 01 Jan 2028 00:30:00 +0100", "Sat, 01 Jan 2028 00:30:00 UTC", "2028-01-01T00:30:00Z", "Sat Jan  1 00:30:00 2028", "Sat Jan 01 00:30:00 2028",
		"Sat, 01 Jan 2028 00:30:00.999999999 GMT", "Sat, 01 Jan 2028 00:30:00,5 GMT", "Sat,  01   Jan 2028  00:30:00   GMT",
	} {
		f.Add(value, int64(1830297600), uint32(0), int32(1800), uint32(300), uint8(0))
		f.Add(value, int64(253402300799), uint32(999_999_999), int32(-1), uint32(0), uint8(255))
		f.Add(value, int64(1830297600), uint32(1), int32(86401), uint32(86400e3), uint8(1)) // beyond 24 hours
	}
	f.Fuzz(func(t *testing.T, value string, seconds int64, ns uint32, distance int32, delay uint32, jitter uint8) {
		// Any instant of the years 1970 to 9999.
		now := time.Unix(seconds&math.MaxInt64%253402300800, int64(ns%1e9))
		near := now.Add(time.Duration(distance) * time.Second).UTC()
		value = strings.NewReplacer(
			"{f}", near.Format("Mon, 02 Jan 2006 15:04:05 GMT"), "{r}", near.Format("Monday, 02-Jan-06 15:04:05 GMT"),
			"{a}", near.Format("Mon Jan _2 15:04:05 2006"), "{s}", strconv.Itoa(int(distance)),
		).Replace(value)

		wait := retryAfter(http.Header{"Retry-After": {value}}, now)
		require.Equal(t, naiveRetryAfter(value, now), wait, "%q at %v", value, now)

		policy := RetryPolicy{Delays: []time.Duration{time.Duration(delay) * time.Millisecond}, Jitter: float64(jitter) / 255}
		if policy.Delays[0] > delayMost {
			policy.Delays[0] = delayMost
		}
		policy, err := policy.withDefaults()
		require.NoError(t, err)
		next := policy.next(1, now, wait)
		least := now.Add(max(policy.Delays[0], wait))
		require.False(t, next.Before(least), "%v is before %v", next, least)
		most := least.Add(time.Duration(float64(least.Sub(now))*policy.Jitter) + 2*time.Millisecond)
		require.False(t, next.After(most), "%v is after %v", next, most)
		require.Zero(t, next.Nanosecond()%1e6, "a store keeps whole milliseconds")
		require.False(t, now.After(policy.next(1, now, 0)))
	})
}

// naiveName is the grammar of event type names.
var naiveName = regexp.MustCompile(`\A[a-z0-9_]+(\.[a-z0-9_]+)*\z`)

// FuzzEventName registers, publishes and subscribes to whatever somebody calls
// an event type.
func FuzzEventName(f *testing.F) {
	for _, name := range []string{
		"link.created", "Link.Created", "lnk.created", "link.created\n", "link..created", ".link", "link.", "", ".", "a", "0", "_", "a-b", "a b",
		"test", "test.sent", "qr.generated", "qr.*", "link.clicked.aggregated", "*", ".*", "*.*", "link.*.*", "link", "link*", "l\u00efnk.created",
		"\xff.created", "a.b.c.d.e.f", "\u212a", "link.created\x00", "\u202elink", strings.Repeat("a", 128), strings.Repeat("a.", 64) + "a", strings.Repeat("a", 5000),
	} {
		f.Add(name, name+".*")
		f.Add(name, "link.*")
		f.Add("order.paid", name)
	}
	f.Fuzz(func(t *testing.T, name, entry string) {
		c := DefaultCatalog()
		before, known := c.Lookup(name)
		require.Equal(t, known && before.Subscribable(), acceptable(t, c.checkPublish(name)), "%q", name)

		err := c.Add(EventType{Name: name})
		require.Equal(t, naiveName.MatchString(name) && len(name) <= 128 && name != "test", acceptable(t, err), "%q", name)
		if err == nil {
			require.True(t, acceptable(t, c.checkPublish(name)), "%q was added", name)
		}

		// An entry is accepted if it selects something, and selects what it says.
		prefix, isPrefix := strings.CutSuffix(entry, ".*")
		selects := false
		for _, eventType := range c.Types() {
			want := eventType.Name == entry || isPrefix && prefix != "" && strings.HasPrefix(eventType.Name, prefix+".")
			require.Equal(t, want, slices.Contains(matchesOf(eventType.Name), entry), "%q selects %q", entry, eventType.Name)
			selects = selects || want && eventType.Subscribable()
		}
		list, err := c.checkSubscription([]string{entry, entry})
		require.Equal(t, selects, acceptable(t, err), "%q", entry)
		if err == nil {
			require.Equal(t, []string{entry}, list)
		}
	})
}

// acceptable reports whether err is nil; otherwise it must be fit to be shown,
// whatever was in the name.
func acceptable(t *testing.T, err error) bool {
	if err == nil {
		return true
	}
	require.IsType(t, &InvalidError{}, err)
	require.Less(t, len(err.Error()), 1000)
	for _, r := range err.Error() {
		require.True(t, r >= ' ' && r <= '~', "%q", err.Error())
	}
	return false
}

// FuzzEventKey holds ordering and idempotency keys to their rule.
func FuzzEventKey(f *testing.F) {
	for _, key := range []string{
		"", "7", "link 91834", "a\x00", "\n", "\x7f", "\u0085", "\u200b", "\u2028", "\xff", "a\xc3", "\ufffd", "\ufeff", "é\U0001f600",
		strings.Repeat("k", 255), strings.Repeat("k", 256), strings.Repeat("é", 127), strings.Repeat("é", 128),
	} {
		f.Add(key)
	}
	control := regexp.MustCompile(`\p{Cc}`)
	f.Fuzz(func(t *testing.T, key string) {
		want := len(key) <= 255 && utf8.ValidString(key) && !control.MatchString(key)
		for _, field := range []string{"ordering_key", "idempotency_key"} {
			err := checkKey(field, key)
			require.Equal(t, want, acceptable(t, err), "%q", key)
			if err != nil {
				require.Contains(t, err.Error(), "webhook: "+field+": ")
			}
		}
	})
}

// FuzzDigest looks for two contents that an idempotency key would take for one.
func FuzzDigest(f *testing.F) {
	f.Add("ab", "c", []byte("{}"), int64(1), "a", "bc", []byte("{}"), int64(1))
	f.Add("a", "", []byte("{}"), int64(0), "a", "", []byte("{}\x00\x00\x00\x00\x00\x00\x00\x01"), int64(0))
	f.Add("a", "", []byte("{}\x00\x00\x00\x00\x00\x00\x00\x01"), int64(0), "a", "", []byte("{}"), int64(1))
	f.Add("a", "b", []byte(nil), int64(5), "a", "b", []byte{}, int64(5))
	f.Add("a", "b", []byte("{}"), int64(5), "a", "b", []byte("{}"), int64(6))
	f.Add("a", "\x00\x00\x00\x00\x00\x00\x00\x02{}", []byte(""), int64(0), "a", "", []byte("{}"), int64(0))
	f.Fuzz(func(t *testing.T, type1, key1 string, data1 []byte, ms1 int64, type2, key2 string, data2 []byte, ms2 int64) {
		at := func(ms int64) time.Time {
			if ms == 0 {
				return time.Time{} // the publisher gave none
			}
			return time.UnixMilli(ms)
		}
		same := type1 == type2 && key1 == key2 && string(data1) == string(data2) && ms1 == ms2
		one, other := digest(type1, key1, data1, at(ms1)), digest(type2, key2, data2, at(ms2))
		require.Equal(t, same, one == other)
		require.NotZero(t, one)
	})
}

// FuzzUnseal gives the keyring what a damaged or manipulated database may hold.
func FuzzUnseal(f *testing.F) {
	f.Add("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=", "new", []byte{}, uint16(0), uint8(1), uint16(0))
	f.Add("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=", "old", make([]byte, 11), uint16(11), uint8(0x80), uint16(1))
	f.Add("\x00", "lost", make([]byte, 12), uint16(12), uint8(0xff), uint16(12))
	f.Add("s", "", make([]byte, 28), uint16(28), uint8(1), uint16(28))
	f.Add(strings.Repeat("s", 256), "new\x00", make([]byte, 300), uint16(299), uint8(4), uint16(300))

	open := func(current string) keyring {
		k, err := Keyring{Current: current, Keys: map[string]Secret{
			"new": NewSecret(strings.Repeat("n", 32)), "old": NewSecret(strings.Repeat("o", 32)),
		}}.open()
		if err != nil {
			f.Fatal(err)
		}
		return k
	}
	ring, rotated := open("new"), open("old")
	f.Fuzz(func(t *testing.T, secret, keyID string, box []byte, place uint16, change uint8, cut uint16) {
		refused := func(s store.Sealed, what string, workspaceID, endpointID int64) {
			t.Helper()
			got, err := ring.unseal(s, what, workspaceID, endpointID)
			require.Error(t, err)
			require.True(t, got.IsZero(), "an error with something beside it")
			if len(secret) > 16 && !strings.Contains(strconv.Quote(s.KeyID), secret) {
				require.NotContains(t, err.Error(), secret)
			}
			// The key's id is shown, and may happen to be the same.
			if raw := s.Data.Reveal(); len(raw) > 16 && !strings.Contains(strconv.Quote(s.KeyID), raw) {
				require.NotContains(t, err.Error(), raw)
			}
		}
		anything := store.Sealed{KeyID: keyID, Data: NewSecret(string(box))}
		if keyID == "" { // in the clear, as before there were keys
			got, err := ring.unseal(anything, sealSecret, 42, 7)
			require.NoError(t, err)
			require.Equal(t, string(box), got.Reveal())
		} else {
			refused(anything, sealSecret, 42, 7)
		}
		if secret == "" {
			return
		}
		for _, k := range []keyring{ring, rotated} {
			sealed := k.seal(NewSecret(secret), sealSecret, 42, 7)
			require.Equal(t, k.current, sealed.KeyID)
			if len(secret) > 4 {
				require.NotContains(t, sealed.Data.Reveal(), secret)
			}
			got, err := ring.unseal(sealed, sealSecret, 42, 7)
			require.NoError(t, err)
			require.Equal(t, secret, got.Reveal())

			refused(sealed, sealSecret, 42, 8)
			refused(sealed, sealSecret, 43, 7)
			refused(sealed, sealSecret, 7, 42)
			refused(sealed, sealCredentials, 42, 7)
			refused(k.seal(NewSecret(secret), sealCredentials, 42, 7), sealSecret, 42, 7)
			refused(store.Sealed{KeyID: "lost", Data: sealed.Data}, sealSecret, 42, 7)
			exchanged := store.Sealed{KeyID: map[string]string{"new": "old", "old": "new"}[sealed.KeyID], Data: sealed.Data}
			refused(exchanged, sealSecret, 42, 7)
			raw := []byte(sealed.Data.Reveal())
			with := func(raw []byte) store.Sealed { return store.Sealed{KeyID: sealed.KeyID, Data: NewSecret(string(raw))} }
			refused(with(raw[:int(cut)%len(raw)]), sealSecret, 42, 7)
			refused(with(append(raw[:len(raw):len(raw)], change)), sealSecret, 42, 7)
			if change != 0 {
				raw[int(place)%len(raw)] ^= change
				refused(with(raw), sealSecret, 42, 7)
			}
		}
	})
}

// FuzzCursor asks for pages of the log by cursors that nobody gave out.
func FuzzCursor(f *testing.F) {
	for _, s := range []string{
		"", "MS4x", "MA", "MS4w", "MS4tMQ", "LTEuMQ", "KzEuKzE", "MS4xLjE", "MS4x=", "MS4x\n", "a b", "\xff", "OTIyMzM3MjAzNjg1NDc3NTgwOC4x",
		"LTkyMjMzNzIwMzY4NTQ3NzU4MDguOTIyMzM3MjAzNjg1NDc3NTgwNw", "MWUzLjE", strings.Repeat("MS4x", 1000),
	} {
		f.Add(s, int64(1), int64(1))
		f.Add(s, int64(math.MinInt64), int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, s string, ms, id int64) {
		p, err := parseCursor(s)
		switch {
		case err != nil:
			require.False(t, acceptable(t, err))
			require.Zero(t, p)
			require.EqualError(t, err, "webhook: cursor: must be what an earlier page gave as next")
		case s == "":
			require.Zero(t, p)
		default:
			// A position with id zero is the beginning: a reader would go round in
			// circles.
			require.Positive(t, p.DeliveryID)
			again, err := parseCursor(cursor(store.Delivery{ID: p.DeliveryID, CreatedAt: p.CreatedAt}))
			require.NoError(t, err)
			require.Equal(t, p, again)
		}
		if id <= 0 {
			return
		}
		d := store.Delivery{ID: id, CreatedAt: time.UnixMilli(ms)}
		p, err = parseCursor(cursor(d))
		require.NoError(t, err, fmt.Sprint(d.CreatedAt))
		require.Equal(t, store.Position{CreatedAt: d.CreatedAt.UTC(), DeliveryID: id}, p)
	})
}

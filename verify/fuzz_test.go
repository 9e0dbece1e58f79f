package verify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	fuzzNow    = 1790068442
	fuzzSecret = "whsec_78p2f0eZCUNgqGc72rKjfmxviWYq5Ee1HkfSWT+swRI="
)

var fuzzHeaders = [...]string{
	"X-Elido-Signature", "X-Webhook-Signature", "X-Elido-Signature-Previous", "X-Webhook-Timestamp",
	"Elido-Signature", "Webhook-Signature", "Webhook-Timestamp", "Webhook-Id", "X-Webhook-Delivery",
}

var (
	naiveTimestamp = regexp.MustCompile(`\A[1-9][0-9]{0,11}\z`)
	naiveV1        = regexp.MustCompile(`\Av1=[0-9a-f]{64}\z`)
	naiveStandard  = regexp.MustCompile(`\Av1,[A-Za-z0-9+/]{43}=\z`)
	naiveID        = regexp.MustCompile(`\A[!-~]{1,255}\z`)
)

func naiveMAC(key []byte, message string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message))
	return string(h.Sum(nil))
}

func elidoText(secret, ts, body string) string {
	return "v1=" + hex.EncodeToString([]byte(naiveMAC([]byte(secret), ts+"."+body)))
}

func standardText(secret, id, ts, body string) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	return "v1," + base64.StdEncoding.EncodeToString([]byte(naiveMAC(key, id+"."+ts+"."+body)))
}

// naive decides as the package documentation says, in the plainest way: with
// regular expressions, crypto/hmac and ==.
func naive(h http.Header, body string, secrets []string, now int64) (accepted bool) {
	line := func(name string) string { return h.Get(name) }
	has := func(name string) bool { return len(h[name]) > 0 }
	inTime := func(ts string) bool {
		n, err := strconv.ParseInt(ts, 10, 64)
		return naiveTimestamp.MatchString(ts) && err == nil && n-now <= 300 && now-n <= 300
	}

	v1 := map[string]bool{}
	for _, name := range fuzzHeaders[:3] {
		if has(name) {
			v1[line(name)] = true
		}
	}
	// The previous signature counts of its own, whatever it is.
	signatures := len(v1)
	if has(fuzzHeaders[2]) && (has(fuzzHeaders[0]) && line(fuzzHeaders[2]) == line(fuzzHeaders[0]) ||
		has(fuzzHeaders[1]) && line(fuzzHeaders[2]) == line(fuzzHeaders[1])) {
		signatures++
	}
	var timed, standard []string
	var timestamps []string
	if has("Elido-Signature") {
		for _, item := range strings.Split(line("Elido-Signature"), ",") {
			if ts, ok := strings.CutPrefix(item, "t="); ok {
				timestamps = append(timestamps, ts)
			} else {
				timed = append(timed, item)
			}
		}
	}
	if has("Webhook-Signature") {
		standard = strings.Split(line("Webhook-Signature"), " ")
	}
	if signatures+len(timed)+len(standard) > 8 {
		return false
	}
	read := map[string]bool{"Elido-Signature": true, "Webhook-Signature": true}
	for _, name := range fuzzHeaders[:4] {
		read[name] = len(v1) > 0
	}
	for _, name := range fuzzHeaders[6:8] {
		read[name] = has("Webhook-Signature")
	}
	for name := range read {
		if read[name] && (len(h[name]) > 1 || len(line(name)) > 4096) {
			return false
		}
	}

	usable, right := len(v1) > 0, false
	for s := range v1 {
		usable = usable && (!strings.HasPrefix(s, "v1=") || naiveV1.MatchString(s))
		for _, secret := range secrets {
			right = right || s == elidoText(secret, line("X-Webhook-Timestamp"), body)
		}
	}
	if usable && right && inTime(line("X-Webhook-Timestamp")) {
		accepted = true
	}

	if len(timestamps) == 1 && inTime(timestamps[0]) {
		usable, right = true, false
		for _, s := range timed {
			usable = usable && strings.Contains(s, "=") && (!strings.HasPrefix(s, "v1=") || naiveV1.MatchString(s))
			for _, secret := range secrets {
				right = right || s == elidoText(secret, timestamps[0], body)
			}
		}
		accepted = accepted || usable && right
	}

	id := line("Webhook-Id")
	if naiveID.MatchString(id) && !strings.Contains(id, ".") && inTime(line("Webhook-Timestamp")) {
		usable, right = true, false
		for _, s := range standard {
			raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(s, "v1,"))
			whole := naiveStandard.MatchString(s) && err == nil && len(raw) == 32
			usable = usable && strings.Contains(s, ",") && (!strings.HasPrefix(s, "v1,") || whole)
			for _, secret := range secrets {
				right = right || s == standardText(secret, id, line("Webhook-Timestamp"), body)
			}
		}
		if usable && right {
			d := h["X-Webhook-Delivery"]
			if len(d) > 1 || len(d) == 1 && d[0] != id {
				return false
			}
			accepted = true
		}
	}
	return accepted
}

// FuzzVerify puts headers together from what the fuzzer says, with right
// signatures where it writes {e} {E} {s} {S} (capitals: the other secret) and
// times near now where it writes {n}, {-300} and so on, and compares the
// Verifier with the naive one. Bits of present and twice choose the headers.
func FuzzVerify(f *testing.F) {
	const b = `{"type":"x"}`
	all := uint16(0x1ff)
	f.Add("{e}", "{e}", "{E}", "{n}", "t={n},{e}", "{s}", "{n}", "55120", "55120", b, all, uint16(0))
	f.Add("{e}", "", "", "{-300}", "", "", "", "", "", b, uint16(0x009), uint16(0))
	f.Add("{e}", "", "", "{301}", "", "", "", "", "", b, uint16(0x009), uint16(0))
	f.Add("v1=0", "{e}", "{E}", "{n}", "t={n},{e},{E},v0=x", "{s} {S}", "{300}", "55120", "1", b, all, uint16(0))
	f.Add("V1=", "sha256=", "{E}", "+{n}", "t=0{n},{e}", "v1a,x {s}", "{-301}", "a.b", "", b, all, uint16(0x100))
	f.Add("{e}", "{e}", "{e}", "{n}", "t={n},{e},{e},{e},{e},{e},{e}", "{s}", "{n}", "1", "1", "", all, uint16(0))
	f.Add("", "", "", "", "t={n},t={n},{e}", "", "", "", "", b, uint16(0x10), uint16(0x10))

	secrets := []string{benchSecret, fuzzSecret}
	v, err := New(secrets...)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, current, alias, previous, ts, timed, std, stdTS, id, delivery, body string, present, twice uint16) {
		times := strings.NewReplacer("{n}", strconv.Itoa(fuzzNow),
			"{300}", strconv.Itoa(fuzzNow+300), "{301}", strconv.Itoa(fuzzNow+301),
			"{-300}", strconv.Itoa(fuzzNow-300), "{-301}", strconv.Itoa(fuzzNow-301))
		ts, stdTS, timed = times.Replace(ts), times.Replace(stdTS), times.Replace(timed)
		timedTS := ts
		if m := regexp.MustCompile(`t=([^,]*)`).FindStringSubmatch(timed); m != nil {
			timedTS = m[1]
		}
		sign := func(s, ts string) string {
			return strings.NewReplacer(
				"{e}", elidoText(secrets[0], ts, body), "{E}", elidoText(secrets[1], ts, body),
				"{s}", standardText(secrets[0], id, ts, body), "{S}", standardText(secrets[1], id, ts, body),
			).Replace(s)
		}
		h := http.Header{}
		for i, text := range []string{
			sign(current, ts), sign(alias, ts), sign(previous, ts), ts,
			sign(timed, timedTS), sign(std, stdTS), stdTS, id, delivery,
		} {
			if present&(1<<i) != 0 {
				h.Add(fuzzHeaders[i], text)
			}
			if twice&(1<<i) != 0 {
				h.Add(fuzzHeaders[i], text)
			}
		}
		var c claims
		err := c.read(h, 0, clock{now: fuzzNow, tolerance: 300})
		if err == nil {
			_, err = v.match(&c, h, []byte(body))
		}
		require.Equal(t, naive(h, body, secrets, fuzzNow), err == nil, "%v: %v", h, err)
		if err != nil {
			require.NotEmpty(t, err.Error())
			require.NotEqual(t, http.StatusInternalServerError, StatusCode(err))
		}
	})
}

// FuzzHeaders looks for a header that panics, is read past its bounds or leaves
// candidates that no claim owns.
func FuzzHeaders(f *testing.F) {
	f.Add("t=1790068442,v1=00,v1=", "v1,AAAA v1,", "v1=0")
	f.Add(strings.Repeat("v1=0,", 20), strings.Repeat(" ", 20), "v1="+strings.Repeat("0", 64))
	f.Add("t=1790068442,v1="+strings.Repeat("0", 64)+",v1=", "v1,"+strings.Repeat("A", 43)+"=", "v2=")
	f.Add("t=1790068442,v1="+strings.Repeat("0", 64), "v1,"+strings.Repeat("A", 43)+"=", "v2=")
	f.Fuzz(func(t *testing.T, timed, standard, v1 string) {
		h := http.Header{
			"X-Elido-Signature": {v1}, "X-Webhook-Signature": {timed}, "X-Elido-Signature-Previous": {v1},
			"X-Webhook-Timestamp": {"1790068442"}, "Elido-Signature": {timed},
			"Webhook-Signature": {standard}, "Webhook-Timestamp": {"1790068442"}, "Webhook-Id": {"1"},
		}
		var c claims
		if err := c.read(h, 0, clock{now: fuzzNow, tolerance: 300}); err != nil {
			return
		}
		require.LessOrEqual(t, c.used, maxCandidates)
		end := 0
		for _, cl := range c.by[:c.count] {
			require.Equal(t, end, cl.from)
			require.Greater(t, cl.to, cl.from)
			end = cl.to
		}
		require.Equal(t, end, c.used)
	})
}

// FuzzEnvelope looks for a body that panics or gives an event without what an
// event has.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"type":"link.created","workspace_id":42,"data":{"id":91834},"timestamp":"2026-09-21T09:14:02Z"}`))
	f.Add([]byte(`{"id":"evt_01","type":"x","created_at":"2026-09-21T09:14:02.125Z","data":{},"workspace_id":"ws_42"}`))
	f.Add([]byte(`{"workspace_id":"ws_`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var ev Event
		if r := ev.parse(body); r != nil {
			require.ErrorIs(t, r, ErrEnvelope)
			require.Zero(t, ev)
			return
		}
		require.NotEmpty(t, ev.Type)
		require.Equal(t, byte('{'), ev.Data[0])
		require.Contains(t, string(body), string(ev.Data))
	})
}

// FuzzIDs looks for a header that becomes an id which it should not, or hides
// one: the naive reading takes the first of three headers that is there.
func FuzzIDs(f *testing.F) {
	f.Add("55120", "55120", "evt_01", "3", "evt_01", uint8(0xf), uint8(0))
	f.Add("", "1 2", "é", "-1", "", uint8(0xf), uint8(0))
	f.Add(strings.Repeat("1", 255), strings.Repeat("2", 256), "\x7f", "+7", "evt_02", uint8(0xf), uint8(1))
	f.Add("1\x00", "~", "!", "99999999999999999999", "evt_03", uint8(0x5), uint8(8))
	f.Add("1", "2", "3", "1_000", "3", uint8(0xe), uint8(0))
	names := [...]string{"X-Webhook-Delivery", "Webhook-Id", "Elido-Webhook-Id", "Elido-Delivery-Attempt"}
	f.Fuzz(func(t *testing.T, delivery, standard, event, attempt, inBody string, present, twice uint8) {
		h := http.Header{}
		for i, text := range []string{delivery, standard, event, attempt} {
			if present&(1<<i) != 0 {
				h.Add(names[i], text)
			}
			if twice&(1<<i) != 0 {
				h.Add(names[i], text)
			}
		}
		wrong := false
		var id string
		for i, name := range names {
			lines := h[name]
			if len(lines) == 0 {
				continue
			}
			wrong = wrong || len(lines) > 1 || len(lines[0]) > 4096
			if i < 3 {
				wrong = wrong || !naiveID.MatchString(lines[0])
				if id == "" {
					id = lines[0]
				}
			}
		}
		if eventID := h.Get(names[2]); len(h[names[2]]) > 0 {
			wrong = wrong || inBody != "" && inBody != eventID
		}
		ev := Event{EventID: inBody}
		if r := ev.readIDs(h); r != nil {
			require.True(t, wrong, "%v: %v", h, r)
			require.ErrorIs(t, r, ErrMalformedHeader)
			return
		}
		require.False(t, wrong, "%v", h)
		require.Equal(t, id, ev.DeliveryID)
		if want := h.Get(names[2]); want != "" {
			require.Equal(t, want, ev.EventID)
		} else {
			require.Equal(t, inBody, ev.EventID)
		}
		n, err := strconv.Atoi(h.Get(names[3]))
		if err != nil || n < 0 {
			n = 0
		}
		require.Equal(t, n, ev.Attempt)
	})
}

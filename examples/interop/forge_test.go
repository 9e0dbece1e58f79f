package interop_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mac is the signature as the documentation has it, written down once more.
func mac(secret, timestamp, body string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(timestamp + "." + body))
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}

// The example in the documentation is right.
func TestDocumentedSignature(t *testing.T) {
	page, err := os.ReadFile("../../docs/receiving.md")
	require.NoError(t, err)
	value := func(row string) string {
		m := regexp.MustCompile(`(?m)^\| ` + row + ` \| ` + "`(.*)` " + `\|$`).FindSubmatch(page)
		require.NotNil(t, m, row)
		return string(m[1])
	}
	require.Equal(t, value("signature"), mac(value("secret"), value("timestamp"), value("body")))
}

// forgery is a request made by hand. It starts as a genuine one.
type forgery struct {
	method string
	header http.Header
	body   string
}

func (f *forgery) set(name, value string) { f.header[name] = []string{value} }

const (
	signature = "X-Elido-Signature"
	previous  = "X-Elido-Signature-Previous"
	timestamp = "X-Webhook-Timestamp"
	delivery  = "X-Webhook-Delivery"
)

// forge sends requests that are almost right, and some that are.
func (s *sender) forge(secret string) {
	const maxBody = 1 << 20
	const wrong = "whsec_of-somebody-else-entirely"
	// Each request differs in its data's id: package verify knows a signature
	// that it has seen under another delivery id.
	var body string
	replaced := func(old, with string) string { return strings.Replace(body, old, with, 1) }
	padded := func(n int) string { return body + strings.Repeat(" ", n-len(body)) }
	sign := func(f *forgery) { f.set(signature, mac(secret, f.header[timestamp][0], f.body)) }
	at := func(value string) func(*forgery) {
		return func(f *forgery) {
			f.set(timestamp, value)
			sign(f)
		}
	}
	ago := func(seconds int64) func(*forgery) {
		return at(strconv.FormatInt(time.Now().Unix()-seconds, 10))
	}
	carrying := func(body func() string) func(*forgery) {
		return func(f *forgery) {
			f.body = body()
			sign(f)
		}
	}
	text := func(s string) func() string { return func() string { return s } }
	for i, c := range []struct {
		name string
		want int
		do   func(f *forgery)
	}{
		{"genuine", 200, func(*forgery) {}},
		{"nearly stale", 200, ago(290)},
		{"nearly too early", 200, ago(-290)},
		{"stale", 400, ago(301)},
		{"too early", 400, ago(-310)},
		{"a new timestamp, the old signature", 401, func(f *forgery) { f.set(timestamp, strconv.FormatInt(time.Now().Unix()-1, 10)) }},
		{"no timestamp", 400, func(f *forgery) { delete(f.header, timestamp) }},
		{"a sign", 400, at("+1790068442")},
		{"a leading zero", 400, at("0" + strconv.FormatInt(time.Now().Unix(), 10))},
		{"a fraction", 400, at(strconv.FormatInt(time.Now().Unix(), 10) + ".0")},
		{"an exponent", 400, at("1e9")},
		{"an underscore", 400, at("1_790_068_442")},
		{"milliseconds", 400, at(strconv.FormatInt(time.Now().UnixMilli(), 10))},
		{"Arabic digits", 400, at("١٧٩٠٠٦٨٤٤٢")},
		{"two timestamps", 400, func(f *forgery) { f.header[timestamp] = append(f.header[timestamp], "1") }},

		{"one byte changed", 401, func(f *forgery) { f.body = replaced("42", "43") }},
		{"one byte more", 401, func(f *forgery) { f.body += "\n" }},
		{"one byte less", 401, func(f *forgery) { f.body = body[:len(body)-1] }},
		{"parsed and printed again", 401, func(f *forgery) {
			var parsed any
			require.NoError(s, json.Unmarshal([]byte(body), &parsed))
			printed, err := json.Marshal(parsed)
			require.NoError(s, err)
			f.body = string(printed)
		}},
		{"signed with another secret", 401, func(f *forgery) { f.set(signature, mac(wrong, f.header[timestamp][0], body)) }},
		{"the secret without its prefix", 401, func(f *forgery) {
			f.set(signature, mac(strings.TrimPrefix(secret, "whsec_"), f.header[timestamp][0], body))
		}},

		{"no signature", 400, func(f *forgery) { delete(f.header, signature) }},
		{"an empty signature", 400, func(f *forgery) { f.set(signature, "") }},
		{"a prefix and nothing more", 400, func(f *forgery) { f.set(signature, "v1=") }},
		{"no prefix", 400, func(f *forgery) { f.set(signature, f.header[signature][0][len("v1="):]) }},
		{"an unknown version alone", 400, func(f *forgery) { f.set(signature, "v2"+f.header[signature][0][len("v1"):]) }},
		{"upper case", 400, func(f *forgery) { f.set(signature, "v1="+strings.ToUpper(f.header[signature][0][len("v1="):])) }},
		{"cut short", 400, func(f *forgery) { f.set(signature, f.header[signature][0][:len("v1=")+32]) }},
		{"one digit more", 400, func(f *forgery) { f.set(signature, f.header[signature][0]+"0") }},
		{"a list", 400, func(f *forgery) { f.set(signature, f.header[signature][0]+","+f.header[signature][0]) }},
		{"two signatures", 400, func(f *forgery) { f.header[signature] = append(f.header[signature], f.header[signature][0]) }},
		{"the previous signature alone", 200, func(f *forgery) {
			f.set(previous, f.header[signature][0])
			delete(f.header, signature)
		}},
		{"right beside a wrong one", 200, func(f *forgery) {
			f.set(previous, f.header[signature][0])
			f.set(signature, mac(wrong, f.header[timestamp][0], body))
		}},
		{"right beside an unknown version", 200, func(f *forgery) {
			f.set(previous, f.header[signature][0])
			f.set(signature, "v2=later")
		}},
		{"wrong twice", 401, func(f *forgery) {
			f.set(signature, mac(wrong, f.header[timestamp][0], body))
			f.set(previous, f.header[signature][0])
		}},

		{"no delivery id", 400, func(f *forgery) { delete(f.header, delivery) }},
		{"an empty delivery id", 400, func(f *forgery) { f.set(delivery, "") }},
		{"two delivery ids", 400, func(f *forgery) { f.header[delivery] = []string{"1", "2"} }},
		{"no JSON", 400, carrying(text("<html>"))},
		{"not all of it", 400, carrying(func() string { return body[:len(body)-1] })},
		{"no object", 400, carrying(text("[]"))},
		{"null", 400, carrying(text("null"))},
		{"no type", 400, carrying(func() string { return replaced("type", "tipe") })},
		{"data that is no object", 400, carrying(func() string { return replaced(`"data":{`, `"data":[],"more":{`) })},
		{"data that is null", 400, carrying(func() string { return replaced(`"data":{`, `"data":null,"more":{`) })},
		{"no body", 401, func(f *forgery) { f.body = "" }},
		{"as large as allowed", 200, carrying(func() string { return padded(maxBody) })},
		{"too large", 413, carrying(func() string { return padded(maxBody + 1) })},
		{"GET", 405, func(f *forgery) { f.method, f.body = http.MethodGet, "" }},
	} {
		id := strconv.Itoa(900_000 + i)
		body = `{"type":"link.created","workspace_id":42,"data":{"id":` + id + `,"title":"<é & ü>"},"timestamp":"2026-09-21T09:14:02Z"}`
		f := &forgery{method: http.MethodPost, header: http.Header{}, body: body}
		f.set("Content-Type", "application/json")
		f.set(delivery, id)
		ago(0)(f)
		c.do(f)
		status, answer := s.send(f)
		require.Equal(s, c.want, status, "%s: %s", c.name, answer)
		if c.want == http.StatusOK {
			l := s.running.next()
			require.Equal(s, id, l.Delivery, c.name)
			require.False(s, l.Duplicate, c.name)
			require.Equal(s, "<é & ü>", l.Data.Title, c.name)
		}
	}
}

// client keeps no connections, and leaves header names as they are given.
var client = &http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, ExpectContinueTimeout: 2 * time.Second},
}

func (s *sender) send(f *forgery) (status int, answer string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), f.method, s.running.url, bytes.NewReader([]byte(f.body)))
	require.NoError(s, err)
	for name, values := range f.header {
		r.Header[name] = slices.Clone(values)
	}
	if len(f.body) > 1<<20 {
		// A server that does not want the body may close the connection, and
		// then the answer can be lost to whoever is still sending.
		r.Header.Set("Expect", "100-continue")
	}
	resp, err := client.Do(r)
	require.NoError(s, err)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return resp.StatusCode, string(read)
}

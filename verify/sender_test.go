package verify_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

const (
	secret = "whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA="
	other  = "whsec_78p2f0eZCUNgqGc72rKjfmxviWYq5Ee1HkfSWT+swRI="
	third  = "whsec_4wq3JT8KzqK2R15wyX43tvDC/FNQnYWxqLDLk07JMCs="
	plain  = "a-secret-of-somebodys-own-choice"
)

const (
	body     = `{"type":"link.created","workspace_id":42,"data":{"id":91834},"timestamp":"2026-09-21T09:14:02Z"}`
	extended = `{"id":"evt_01","type":"link.created","created_at":"2026-09-21T09:14:02.125Z","data":{"id":91834},"workspace_id":"ws_42"}`
)

// The senders below are written from the description of the schemes, with
// crypto/hmac and nothing of this module.

func mac(key, message string) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(message))
	return h.Sum(nil)
}

func elido(secret, ts, body string) string {
	return "v1=" + hex.EncodeToString(mac(secret, ts+"."+body))
}

func standard(secret, id, ts, body string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err)
	}
	return "v1," + base64.StdEncoding.EncodeToString(mac(string(key), id+"."+ts+"."+body))
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func signV1(secret, ts, body string) http.Header {
	return headers("X-Elido-Signature", elido(secret, ts, body), "X-Webhook-Signature", elido(secret, ts, body),
		"X-Webhook-Timestamp", ts, "X-Webhook-Delivery", "55120", "X-Webhook-Event", "link.created")
}

func signTimed(secret, ts, body string) http.Header {
	return headers("Elido-Signature", "t="+ts+","+elido(secret, ts, body),
		"Elido-Webhook-Id", "evt_01", "Elido-Delivery-Attempt", "3", "X-Webhook-Delivery", "55120")
}

func signStandard(secret, ts, body string) http.Header {
	return headers("webhook-id", "55120", "webhook-timestamp", ts,
		"webhook-signature", standard(secret, "55120", ts, body), "X-Webhook-Delivery", "55120")
}

func merge(hs ...http.Header) http.Header {
	all := http.Header{}
	for _, h := range hs {
		for k, v := range h {
			all[k] = v
		}
	}
	return all
}

func with(h http.Header, pairs ...string) http.Header {
	h = h.Clone()
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func without(h http.Header, names ...string) http.Header {
	h = h.Clone()
	for _, n := range names {
		h.Del(n)
	}
	return h
}

func newVerifier(t testing.TB, secrets ...string) *verify.Verifier {
	t.Helper()
	v, err := verify.New(secrets...)
	require.NoError(t, err)
	return v
}

func now() int64 { return time.Now().Unix() }

func stamp(offset int64) string { return strconv.FormatInt(now()+offset, 10) }

func stampOf(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

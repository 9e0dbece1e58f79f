package verify

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/elido-app/webhook/internal/sig"
)

const benchSecret = "whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA="

// benchBody is an envelope of 600 bytes.
var benchBody = func() []byte {
	b := []byte(`{"type":"link.created","workspace_id":42,"data":{"id":91834,"title":"`)
	const tail = `"},"timestamp":"2026-09-21T09:14:02Z"}`
	b = append(b, bytes.Repeat([]byte("x"), 600-len(b)-len(tail))...)
	return append(b, tail...)
}()

// signed returns headers for body, signed now with all schemes asked for.
func signed(b testing.TB, body []byte, schemes Scheme) http.Header {
	b.Helper()
	key, err := sig.NewKey(benchSecret)
	if err != nil {
		b.Fatal(err)
	}
	standard, err := sig.NewStandardKey(benchSecret)
	if err != nil {
		b.Fatal(err)
	}
	ts := strconv.FormatInt(time.Now().Unix(), 10)
	h := http.Header{sig.HeaderDelivery: {"55120"}}
	mac := key.Elido(ts, body)
	if schemes&ElidoV1 != 0 {
		value := string(sig.AppendElido(nil, mac))
		h[sig.HeaderSignature], h[sig.HeaderSignatureAlias] = []string{value}, []string{value}
		h[sig.HeaderTimestamp] = []string{ts}
	}
	if schemes&ElidoTimed != 0 {
		h[sig.HeaderTimed] = []string{string(sig.AppendTimed(nil, ts, mac))}
	}
	if schemes&StandardWebhooks != 0 {
		h[sig.HeaderStandardID], h[sig.HeaderStandardTimestamp] = []string{"55120"}, []string{ts}
		h[sig.HeaderStandardSignature] = []string{string(sig.AppendStandard(nil, standard.Standard("55120", ts, body)))}
	}
	return h
}

func BenchmarkVerify(b *testing.B) {
	v, err := New(benchSecret)
	if err != nil {
		b.Fatal(err)
	}
	v.Tolerance = time.Hour
	for _, c := range []struct {
		name    string
		schemes Scheme
	}{{"ElidoV1", ElidoV1}, {"ElidoTimed", ElidoTimed}, {"StandardWebhooks", StandardWebhooks}, {"all", allSchemes}} {
		b.Run(c.name+"/600B", func(b *testing.B) {
			h := signed(b, benchBody, c.schemes)
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Verify(h, benchBody); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Event/600B", func(b *testing.B) {
		h := signed(b, benchBody, ElidoV1)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Event(h, benchBody); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("refused/64KB header", func(b *testing.B) {
		h := http.Header{sig.HeaderTimed: {string(bytes.Repeat([]byte("v1=,"), 16<<10))}}
		b.ReportAllocs()
		for b.Loop() {
			if err := v.Verify(h, benchBody); err == nil {
				b.Fatal("accepted")
			}
		}
	})
	b.Run("request", func(b *testing.B) {
		h := signed(b, benchBody, ElidoV1)
		b.ReportAllocs()
		for b.Loop() {
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(benchBody))
			r.Header = h
			if _, err := v.Request(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package verify_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("../testdata/signature-vectors.json")
	require.NoError(t, err)
	var vectors []struct {
		Name       string `json:"name"`
		Secret     string `json:"secret"`
		Timestamp  int64  `json:"timestamp,string"`
		DeliveryID string `json:"delivery_id"`
		Body       []byte `json:"body_base64"`
		Elido      string `json:"elido_signature"`
		Timed      string `json:"stripe_style_signature"`
		Standard   string `json:"standard_webhooks_signature"`
	}
	require.NoError(t, json.Unmarshal(raw, &vectors))
	require.NotEmpty(t, vectors)
	for _, c := range vectors {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Unix(c.Timestamp, 0)))
				ts := strconv.FormatInt(c.Timestamp, 10)
				v := newVerifier(t, c.Secret)
				for scheme, h := range map[string]http.Header{
					"v1":       headers("X-Elido-Signature", c.Elido, "X-Webhook-Timestamp", ts),
					"alias":    headers("X-Webhook-Signature", c.Elido, "X-Webhook-Timestamp", ts),
					"previous": headers("X-Elido-Signature-Previous", c.Elido, "X-Webhook-Timestamp", ts),
					"timed":    headers("Elido-Signature", c.Timed),
					"standard": headers("webhook-id", c.DeliveryID, "webhook-timestamp", ts, "webhook-signature", c.Standard),
				} {
					require.NoError(t, v.Verify(h, c.Body), scheme)
					require.ErrorIs(t, v.Verify(h, append(c.Body[:len(c.Body):len(c.Body)], '\n')), verify.ErrSignature, scheme)
					require.ErrorIs(t, newVerifier(t, plain).Verify(h, c.Body), verify.ErrSignature, scheme)
				}
			})
		})
	}
}

func TestNewRefusesBadSecrets(t *testing.T) {
	_, err := verify.New()
	require.ErrorIs(t, err, verify.ErrNoSecret)
	for _, s := range []string{
		"", "abc", strings.Repeat("x", 23), strings.Repeat("y", 257),
		secret + "\x00", secret + "\n", " " + secret, strings.Repeat("z", 12) + "\t" + strings.Repeat("z", 12),
	} {
		_, err := verify.New(secret, s)
		require.Error(t, err)
		require.ErrorContains(t, err, "secret 2 of 2")
		if s != "" {
			require.NotContains(t, err.Error(), s)
		}
		require.NotContains(t, err.Error(), secret)
	}
}

func TestZeroVerifierRefusesEverything(t *testing.T) {
	ts := stamp(0)
	for _, v := range []*verify.Verifier{{}, {Tolerance: time.Hour, MaxBody: 1 << 30}} {
		for _, key := range []string{"", secret} {
			for _, h := range []http.Header{nil, {}, signV1(key, ts, body), signTimed(key, ts, body)} {
				require.ErrorIs(t, v.Verify(h, []byte(body)), verify.ErrNoSecret)
			}
		}
	}
}

func TestTolerance(t *testing.T) {
	schemes := map[string]func(secret, ts, body string) http.Header{
		"v1": signV1, "timed": signTimed, "standard": signStandard,
	}
	for name, sign := range schemes {
		// Whatever the fraction of the receiver's second, whole ones count.
		for _, fraction := range []time.Duration{0, time.Nanosecond, 500 * time.Millisecond, time.Second - 1} {
			t.Run(fmt.Sprint(name, " +", fraction), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(fraction)
					v := newVerifier(t, secret)
					for _, c := range []struct {
						offset int64
						want   error
					}{
						{0, nil}, {-300, nil}, {300, nil}, {-299, nil}, {299, nil},
						{-301, verify.ErrStale}, {301, verify.ErrFuture},
						{-100_000, verify.ErrStale}, {10 * 365 * 86400, verify.ErrFuture},
					} {
						require.ErrorIs(t, v.Verify(sign(secret, stamp(c.offset), body), []byte(body)), c.want, "%d s", c.offset)
					}
					v.Tolerance = 2*time.Second + 999*time.Millisecond
					require.NoError(t, v.Verify(sign(secret, stamp(-2), body), []byte(body)))
					require.ErrorIs(t, v.Verify(sign(secret, stamp(-3), body), []byte(body)), verify.ErrStale)
					v.Tolerance = -time.Second
					require.ErrorIs(t, v.Verify(sign(secret, stamp(0), body), []byte(body)), verify.ErrStale)
				})
			})
		}
	}
}

// The MAC is right for each of these timestamps; their spelling is not.
func TestTimestampGrammar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVerifier(t, secret)
		n := stamp(0)
		for _, ts := range []string{
			"", "0", "-1", "1e9", n + ".0", "+" + n, "00" + n, " " + n, n + " ", "9223372036854775808",
			"٩٤٦٦٨٤٨٠٠", n + "\x00", "0x" + n, "1000000000000",
		} {
			for name, h := range map[string]http.Header{
				"v1":       {"X-Elido-Signature": {elido(secret, ts, body)}, "X-Webhook-Timestamp": {ts}},
				"timed":    {"Elido-Signature": {"t=" + ts + "," + elido(secret, ts, body)}},
				"standard": {"Webhook-Id": {"1"}, "Webhook-Timestamp": {ts}, "Webhook-Signature": {standard(secret, "1", ts, body)}},
			} {
				require.ErrorIs(t, v.Verify(h, []byte(body)), verify.ErrMalformedHeader, "%s %q", name, ts)
			}
		}
	})
}

func TestOtherBytesAreRefused(t *testing.T) {
	ts := stamp(0)
	v := newVerifier(t, secret)
	for name, h := range map[string]http.Header{
		"v1": signV1(secret, ts, body), "timed": signTimed(secret, ts, body), "standard": signStandard(secret, ts, body),
	} {
		require.NoError(t, v.Verify(h, []byte(body)), name)
		for _, changed := range []string{
			"", body[1:], body[:len(body)-1], body + " ", body + "\n", " " + body,
			strings.ReplaceAll(body, ":", ": "), strings.Replace(body, "42", "43", 1), strings.ToUpper(body), "\ufeff" + body,
		} {
			require.ErrorIs(t, v.Verify(h, []byte(changed)), verify.ErrSignature, "%s %q", name, changed)
		}
	}
}

// What is too much is refused before it costs anything.
func TestRefusesInTime(t *testing.T) {
	v := newVerifier(t, secret)
	large := make([]byte, 8<<20)
	for name, h := range map[string]http.Header{
		"a megabyte of signatures": headers("Elido-Signature", strings.Repeat("v1=00,", 1<<18)),
		"4 KiB of commas":          headers("Elido-Signature", strings.Repeat(",", 4096)),
		"4 KiB of timestamps":      headers("Elido-Signature", strings.Repeat("t=,", 4096/3)),
		"4 KiB of spaces":          headers("webhook-signature", strings.Repeat(" ", 4096)),
		"a megabyte of signature":  headers("X-Elido-Signature", "v1="+strings.Repeat("0", 1<<20)),
		"ten thousand lines":       {"X-Elido-Signature": make([]string, 10_000)},
		"nine signatures":          headers("Elido-Signature", "t="+stamp(0)+strings.Repeat(",v1="+strings.Repeat("0", 64), 9)),
	} {
		fastest := time.Hour
		for range 20 {
			start := time.Now()
			require.ErrorIs(t, v.Verify(h, large), verify.ErrMalformedHeader, name)
			fastest = min(fastest, time.Since(start))
		}
		require.Less(t, fastest, time.Millisecond, name)
	}
}

func TestSecretsOfSomebodysOwnChoice(t *testing.T) {
	ts := stamp(0)
	v := newVerifier(t, plain)
	require.NoError(t, v.Verify(signV1(plain, ts, body), []byte(body)))
	require.NoError(t, v.Verify(signTimed(plain, ts, body), []byte(body)))
	require.ErrorIs(t, v.Verify(signStandard(secret, ts, body), []byte(body)), verify.ErrSignature)
	require.NoError(t, newVerifier(t, plain, secret).Verify(signStandard(secret, ts, body), []byte(body)))
}

func TestSchemesNarrowItDown(t *testing.T) {
	ts := stamp(0)
	signed := map[verify.Scheme]http.Header{
		verify.ElidoV1:          signV1(secret, ts, body),
		verify.ElidoTimed:       signTimed(secret, ts, body),
		verify.StandardWebhooks: signStandard(secret, ts, body),
	}
	v := newVerifier(t, secret)
	for set := verify.Scheme(1); set < 8; set++ {
		v.Schemes = set
		for scheme, h := range signed {
			if set&scheme != 0 {
				require.NoError(t, v.Verify(h, []byte(body)))
			} else {
				require.ErrorIs(t, v.Verify(h, []byte(body)), verify.ErrMissingHeader)
			}
		}
	}
}

// Of several schemes that fail, the error is that of the one that got furthest,
// in whatever order they are tried.
func TestErrorOfTheSchemeThatGotFurthest(t *testing.T) {
	ts := stamp(0)
	missing := func(h http.Header) http.Header {
		return without(h, "X-Webhook-Timestamp", "webhook-timestamp")
	}
	wrong, stale := third, stamp(-400)
	bad := with(signV1(secret, ts, body), "X-Elido-Signature", "v1=0")
	for _, c := range []struct {
		name string
		h    http.Header
		want error
	}{
		{"wrong, stale, malformed", with(merge(bad, signTimed(secret, stale, body), signStandard(wrong, ts, body))), verify.ErrSignature},
		{"stale, malformed", merge(bad, signTimed(secret, stale, body)), verify.ErrStale},
		{"future, missing", merge(missing(signV1(secret, ts, body)), signTimed(secret, stamp(400), body)), verify.ErrFuture},
		{"malformed, missing", merge(bad, missing(signStandard(secret, ts, body))), verify.ErrMalformedHeader},
		{"missing, malformed", merge(missing(signV1(secret, ts, body)), with(signTimed(secret, ts, body), "Elido-Signature", "?")), verify.ErrMalformedHeader},
		{"missing, missing", merge(missing(signV1(secret, ts, body)), missing(signStandard(secret, ts, body))), verify.ErrMissingHeader},
	} {
		require.ErrorIs(t, newVerifier(t, secret).Verify(c.h, []byte(body)), c.want, c.name)
	}
}

func TestVerifyDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops items at random under the race detector")
	}
	ts := stamp(0)
	v := newVerifier(t, other, secret)
	raw := []byte(body)
	for name, h := range map[string]http.Header{
		"v1":       with(signV1(secret, ts, body), "X-Elido-Signature-Previous", elido(third, ts, body)),
		"timed":    signTimed(secret, ts, body),
		"standard": signStandard(secret, ts, body),
	} {
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			if err := v.Verify(h, raw); err != nil {
				t.Error(err)
			}
		}), name)
	}
}

func TestVerifierIsNeverPrinted(t *testing.T) {
	v := newVerifier(t, secret)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		for _, shape := range []any{v, *v, &v, []verify.Verifier{*v}} {
			text := fmt.Sprintf(verb, shape)
			require.NotContains(t, text, secret[6:])
			require.NotContains(t, text, hex.EncodeToString([]byte(secret)))
		}
	}
}

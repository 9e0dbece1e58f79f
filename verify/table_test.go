package verify_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

func TestRefused(t *testing.T) {
	ts := stamp(0)
	v1, timed, std := signV1(secret, ts, body), signTimed(secret, ts, body), signStandard(secret, ts, body)
	right := elido(secret, ts, body)
	digits := strings.TrimPrefix(right, "v1=")
	raw, err := hex.DecodeString(digits)
	require.NoError(t, err)
	flipped := hex.EncodeToString(append([]byte{raw[0] ^ 1}, raw[1:]...))
	stdRight := standard(secret, "55120", ts, body)
	junk := func(n int, sep, item string) string { return strings.TrimSuffix(strings.Repeat(item+sep, n), sep) }
	v0 := "v0=" + digits
	onlyV1 := func(value string) http.Header {
		return headers("X-Elido-Signature", value, "X-Webhook-Timestamp", ts)
	}
	double := func(h http.Header, name string) http.Header {
		h = h.Clone()
		h.Add(name, h.Get(name))
		return h
	}
	for _, c := range []struct {
		name string
		h    http.Header
		want error
	}{
		{"nothing", headers(), verify.ErrMissingHeader},
		{"nil", nil, verify.ErrMissingHeader},
		{"timestamp alone", headers("X-Webhook-Timestamp", ts), verify.ErrMissingHeader},
		{"v1 without timestamp", without(v1, "X-Webhook-Timestamp"), verify.ErrMissingHeader},
		{"v1 with another scheme's timestamp",
			with(without(v1, "X-Webhook-Timestamp"), "webhook-timestamp", ts), verify.ErrMissingHeader},
		{"standard without timestamp", without(std, "webhook-timestamp"), verify.ErrMissingHeader},
		{"standard without id", without(std, "webhook-id"), verify.ErrMissingHeader},

		{"two timestamps", double(v1, "X-Webhook-Timestamp"), verify.ErrMalformedHeader},
		{"two signatures", double(v1, "X-Elido-Signature"), verify.ErrMalformedHeader},
		{"two aliases", double(v1, "X-Webhook-Signature"), verify.ErrMalformedHeader},
		{"two previous", double(with(v1, "X-Elido-Signature-Previous", right), "X-Elido-Signature-Previous"), verify.ErrMalformedHeader},
		{"two timed", double(timed, "Elido-Signature"), verify.ErrMalformedHeader},
		{"two standard", double(std, "webhook-signature"), verify.ErrMalformedHeader},
		{"two standard timestamps", double(std, "webhook-timestamp"), verify.ErrMalformedHeader},
		{"two standard ids", double(std, "webhook-id"), verify.ErrMalformedHeader},
		{"two of another scheme beside a valid one", double(merge(v1, timed), "Elido-Signature"), verify.ErrMalformedHeader},

		{"V1=", onlyV1("V1=" + digits), verify.ErrMalformedHeader},
		{"v1= and nothing", onlyV1("v1="), verify.ErrMalformedHeader},
		{"empty", onlyV1(""), verify.ErrMalformedHeader},
		{"63 digits", onlyV1(right[:66]), verify.ErrMalformedHeader},
		{"65 digits", onlyV1(right + "0"), verify.ErrMalformedHeader},
		{"truncated to 16 bytes", onlyV1(right[:35]), verify.ErrMalformedHeader},
		{"upper case", onlyV1("v1=" + strings.ToUpper(digits)), verify.ErrMalformedHeader},
		{"base64 of the right MAC", onlyV1("v1=" + base64.StdEncoding.EncodeToString(raw)), verify.ErrMalformedHeader},
		{"bare digits", onlyV1(digits), verify.ErrMalformedHeader},
		{"sha256=", onlyV1("sha256=" + digits), verify.ErrMalformedHeader},
		{"a list", onlyV1(right + "," + right), verify.ErrMalformedHeader},
		{"a list with a space", onlyV1(right + ", " + right), verify.ErrMalformedHeader},
		{"another version", onlyV1(v0), verify.ErrMalformedHeader},
		{"a space before", onlyV1(" " + right), verify.ErrMalformedHeader},
		{"the timed value", onlyV1("t=" + ts + "," + right), verify.ErrMalformedHeader},
		{"one bit off", onlyV1("v1=" + flipped), verify.ErrSignature},
		{"zeros", onlyV1("v1=" + strings.Repeat("0", 64)), verify.ErrSignature},
		{"plain SHA-256", onlyV1("v1=" + fmt.Sprintf("%x", sha256.Sum256([]byte(ts+"."+body)))), verify.ErrSignature},
		{"empty key", onlyV1(elido("", ts, body)), verify.ErrSignature},
		{"decoded key", onlyV1("v1=" + hex.EncodeToString(mac(decode(t, secret), ts+"."+body))), verify.ErrSignature},
		{"another secret", onlyV1(elido(other, ts, body)), verify.ErrSignature},
		{"another timestamp", with(v1, "X-Webhook-Timestamp", stamp(1)), verify.ErrSignature},

		{"timed without t", headers("Elido-Signature", right), verify.ErrMalformedHeader},
		{"timed without v1", headers("Elido-Signature", "t="+ts), verify.ErrMalformedHeader},
		{"timed, two t", headers("Elido-Signature", "t="+ts+",t="+ts+","+right), verify.ErrMalformedHeader},
		{"timed, v0 only", headers("Elido-Signature", "t="+ts+","+v0), verify.ErrMalformedHeader},
		{"timed, no =", headers("Elido-Signature", "t="+ts+","+right+",x"), verify.ErrMalformedHeader},
		{"timed, comma at the end", headers("Elido-Signature", "t="+ts+","+right+","), verify.ErrMalformedHeader},
		{"timed, spaces", headers("Elido-Signature", "t="+ts+", "+right), verify.ErrMalformedHeader},
		{"timed, short", headers("Elido-Signature", "t="+ts+","+right[:66]), verify.ErrMalformedHeader},
		{"timed, empty", headers("Elido-Signature", ""), verify.ErrMalformedHeader},
		{"timed, 9 signatures", headers("Elido-Signature", "t="+ts+","+right+","+junk(8, ",", right)), verify.ErrMalformedHeader},
		{"timed, 9 of which 8 unknown", headers("Elido-Signature", "t="+ts+","+right+","+junk(8, ",", v0)), verify.ErrMalformedHeader},
		{"timed, over 4 KiB", headers("Elido-Signature", "t="+ts+","+right+",x="+junk(4096, "", "y")), verify.ErrMalformedHeader},

		{"standard, no version", with(std, "webhook-signature", strings.TrimPrefix(stdRight, "v1,")), verify.ErrMalformedHeader},
		{"standard, v1a only", with(std, "webhook-signature", "v1a"+stdRight[2:]), verify.ErrMalformedHeader},
		{"standard, hex", with(std, "webhook-signature", "v1,"+digits), verify.ErrMalformedHeader},
		{"standard, unpadded", with(std, "webhook-signature", strings.TrimRight(stdRight, "=")), verify.ErrMalformedHeader},
		{"standard, two spaces", with(std, "webhook-signature", stdRight+"  "+stdRight), verify.ErrMalformedHeader},
		{"standard, 9 signatures", with(std, "webhook-signature", stdRight+" "+junk(8, " ", stdRight)), verify.ErrMalformedHeader},
		{"standard, another id", with(std, "webhook-id", "55121", "X-Webhook-Delivery", "55121"), verify.ErrSignature},
		{"standard, full stop in the id", with(std, "webhook-id", "55.120"), verify.ErrMalformedHeader},
		{"standard, empty id", with(std, "webhook-id", ""), verify.ErrMalformedHeader},
		{"standard, control character in the id", with(std, "webhook-id", "5\x7f"), verify.ErrMalformedHeader},
		{"standard, long id", with(std, "webhook-id", strings.Repeat("5", 256)), verify.ErrMalformedHeader},
		{"standard, shadowed id", with(std, "X-Webhook-Delivery", "55121"), verify.ErrMalformedHeader},
		{"standard, repeated delivery", double(std, "X-Webhook-Delivery"), verify.ErrMalformedHeader},
		{"9 signatures in all", with(merge(v1, timed, std), "Elido-Signature", "t="+ts+","+junk(7, ",", right)), verify.ErrMalformedHeader},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := newVerifier(t, secret).Verify(c.h, []byte(body))
			require.ErrorIs(t, err, c.want)
			for _, shown := range []string{secret, digits, body} {
				require.NotContains(t, err.Error(), shown)
			}
		})
	}
}

func decode(t *testing.T, secret string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	require.NoError(t, err)
	return string(raw)
}

func TestAccepted(t *testing.T) {
	ts := stamp(0)
	v1, timed, std := signV1(secret, ts, body), signTimed(secret, ts, body), signStandard(secret, ts, body)
	right, wrong := elido(secret, ts, body), elido(third, ts, body)
	stdRight, stdWrong := standard(secret, "55120", ts, body), standard(third, "55120", ts, body)
	for _, c := range []struct {
		name string
		h    http.Header
	}{
		{"v1", v1},
		{"the alias alone", without(v1, "X-Elido-Signature")},
		{"the signature alone", without(v1, "X-Webhook-Signature")},
		{"the previous alone", without(with(v1, "X-Elido-Signature-Previous", right), "X-Elido-Signature", "X-Webhook-Signature")},
		{"an overlap, receiver still on the old secret", with(v1,
			"X-Elido-Signature", wrong, "X-Webhook-Signature", wrong, "X-Elido-Signature-Previous", right)},
		{"an overlap, receiver already on the new secret", with(v1, "X-Elido-Signature-Previous", wrong)},
		{"an unknown version in the alias", with(v1, "X-Webhook-Signature", "sha256=abc")},
		{"an unknown version in the signature", with(v1, "X-Elido-Signature", "v2=abc")},
		{"timed", timed},
		{"timed, new first, old last", with(timed, "Elido-Signature", "t="+ts+","+wrong+","+right)},
		{"timed, another order", with(timed, "Elido-Signature", right+",t="+ts)},
		{"timed, unknown versions", with(timed, "Elido-Signature", "t="+ts+",v0=6f==,v2=,"+right+",x=y=z")},
		{"timed, 8 signatures", with(timed, "Elido-Signature", "t="+ts+","+strings.Repeat(wrong+",", 7)+right)},
		{"standard", std},
		{"standard, two", with(std, "webhook-signature", stdWrong+" "+stdRight)},
		{"standard, unknown versions", with(std, "webhook-signature", "v1a,xyz "+stdRight+" v2,")},
		{"standard, no delivery header", without(std, "X-Webhook-Delivery")},
		{"all three in an overlap", with(merge(v1, timed, std), "X-Elido-Signature-Previous", wrong,
			"Elido-Signature", "t="+ts+","+right+","+wrong, "webhook-signature", stdRight+" "+stdWrong)},
		{"8 signatures, the alias being none of its own", with(merge(v1, timed),
			"Elido-Signature", "t="+ts+strings.Repeat(","+wrong, 7))},
		{"v1 beside a wrong timed", merge(v1, signTimed(third, ts, body))},
		{"v1 beside a stale timed", merge(v1, signTimed(secret, stamp(-1000), body))},
		{"v1 beside a malformed standard", with(v1, "webhook-signature", "?")},
		{"standard beside a wrong v1", merge(signV1(third, ts, body), std)},
		{"timed beside a malformed v1", with(timed, "X-Elido-Signature", "v1=0")},
		{"v1 beside headers of other products", with(v1, "X-Hub-Signature-256", "sha256=00", "Stripe-Signature", "t=1,v1=0")},
		{"v1 and a stray webhook-id", with(v1, "webhook-id", "1", "webhook-timestamp", "x")},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, newVerifier(t, secret).Verify(c.h, []byte(body)))
			require.NoError(t, newVerifier(t, other, secret).Verify(c.h, []byte(body)), "beside another secret")
			require.ErrorIs(t, newVerifier(t, other).Verify(c.h, []byte(body)), verify.ErrSignature)
		})
	}
}

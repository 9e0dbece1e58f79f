package sig

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// vector is a signature that OpenSSL, Python and two vendors' libraries agree
// on.
type vector struct {
	Name       string `json:"name"`
	Secret     string `json:"secret"`
	Timestamp  string `json:"timestamp"`
	DeliveryID string `json:"delivery_id"`
	Body       []byte `json:"body_base64"`
	Elido      string `json:"elido_signature"`
	Timed      string `json:"stripe_style_signature"`
	Standard   string `json:"standard_webhooks_signature"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/signature-vectors.json")
	require.NoError(t, err)
	var vs []vector
	require.NoError(t, json.Unmarshal(raw, &vs))
	require.NotEmpty(t, vs)
	return vs
}

func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			key, err := NewKey(v.Secret)
			require.NoError(t, err)
			mac := key.Elido(v.Timestamp, v.Body)
			require.Equal(t, v.Elido, string(AppendElido(nil, mac)))
			require.Len(t, v.Elido, ElidoLen)
			require.Equal(t, v.Timed, string(AppendTimed(nil, v.Timestamp, mac)))

			standard, err := NewStandardKey(v.Secret)
			require.NoError(t, err)
			require.Equal(t, v.Standard,
				string(AppendStandard(nil, standard.Standard(v.DeliveryID, v.Timestamp, v.Body))))
		})
	}
}

func TestAppendManyKeepsTheOrder(t *testing.T) {
	a, b := MAC{0xaa}, MAC{0xbb}
	hexA, hexB := hex.EncodeToString(a[:]), hex.EncodeToString(b[:])
	require.Equal(t, "t=5,v1="+hexA+",v1="+hexB, string(AppendTimed(nil, "5", a, b)))
	require.Equal(t,
		"v1,"+base64.StdEncoding.EncodeToString(a[:])+" v1,"+base64.StdEncoding.EncodeToString(b[:]),
		string(AppendStandard(nil, a, b)))
	require.Equal(t, "x v1="+hexA, string(AppendElido([]byte("x "), a)))
}

func TestHeadersAreCanonical(t *testing.T) {
	for _, h := range []string{
		HeaderSignature, HeaderSignatureAlias, HeaderSignaturePrevious, HeaderTimestamp,
		HeaderTimed, HeaderEventID, HeaderAttempt,
		HeaderStandardID, HeaderStandardTimestamp, HeaderStandardSignature,
		HeaderEvent, HeaderDelivery,
	} {
		require.Equal(t, http.CanonicalHeaderKey(h), h)
	}
}

func TestDecodeHex(t *testing.T) {
	m := MAC{0x01, 0x23, 0xab, 31: 0xff}
	good := hex.EncodeToString(m[:])
	var got MAC
	require.True(t, DecodeHex(&got, good))
	require.Equal(t, m, got)
	for name, s := range map[string]string{
		"empty":      "",
		"63":         good[:63],
		"65":         good + "0",
		"62":         good[:62],
		"upper case": strings.ToUpper(good),
		"one upper":  good[:63] + "F",
		"not hex":    good[:63] + "g",
		"space":      " " + good[1:],
		"not ASCII":  good[:62] + "é",
		"base64":     base64.StdEncoding.EncodeToString(m[:]),
	} {
		require.False(t, DecodeHex(&got, s), name)
	}
}

func TestDecodeBase64(t *testing.T) {
	m := MAC{0xfb, 0xff, 31: 0x01}
	good := base64.StdEncoding.EncodeToString(m[:])
	var got MAC
	require.True(t, DecodeBase64(&got, good))
	require.Equal(t, m, got)
	for name, s := range map[string]string{
		"empty":        "",
		"unpadded":     strings.TrimRight(good, "="),
		"url alphabet": base64.URLEncoding.EncodeToString(m[:]),
		"31 bytes":     base64.StdEncoding.EncodeToString(m[:31]),
		"33 bytes":     base64.StdEncoding.EncodeToString(append(m[:], 0)),
		"stray bits":   good[:42] + "F=",
		"newline":      good[:42] + "\n" + good[43:],
		"hex":          hex.EncodeToString(m[:]),
	} {
		require.False(t, DecodeBase64(&got, s), name)
	}
}

func TestMACEqual(t *testing.T) {
	a, b := MAC{1}, MAC{1}
	require.True(t, a.Equal(&b))
	b[31] = 1
	require.False(t, a.Equal(&b))
}

func TestParseTimestamp(t *testing.T) {
	for s, want := range map[string]int64{
		"1":            1,
		"1790068442":   1790068442,
		"999999999999": 999999999999,
	} {
		got, err := ParseTimestamp(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got)
	}
	for _, s := range []string{
		"", "0", "-1", "+1790068442", "01790068442", "001790068442", "1e9", "1790068442.0",
		" 1790068442", "1790068442 ", "1790068442\n", "9223372036854775808", "1000000000000",
		"0x6ab1", "1_000", "١٧٩٠٠٦٨٤٤٢", "1790068442,1790068442", "NaN", "1790068442\x00",
	} {
		_, err := ParseTimestamp(s)
		require.ErrorIs(t, err, ErrTimestamp, "%q", s)
	}
}

func FuzzParseTimestamp(f *testing.F) {
	grammar := regexp.MustCompile(`\A[1-9][0-9]{0,11}\z`)
	for _, s := range []string{"1", "0", "+1", "999999999999", "1000000000000", "1e9", "٥"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTimestamp(s)
		require.Equal(t, grammar.MatchString(s), err == nil, "%q", s)
		if err == nil {
			require.Equal(t, s, strconv.FormatInt(got, 10))
		}
	})
}

// A text that decodes is the one text that encodes to the same.
func FuzzDecode(f *testing.F) {
	f.Add(strings.Repeat("0a", 32))
	f.Add(strings.Repeat("0A", 32))
	f.Add(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfe}, 32)))
	f.Fuzz(func(t *testing.T, s string) {
		var m MAC
		raw, err := hex.DecodeString(s)
		isHex := err == nil && len(raw) == 32 && s == strings.ToLower(s)
		require.Equal(t, isHex, DecodeHex(&m, s), "%q", s)
		if isHex {
			require.Equal(t, raw, m[:])
		}
		raw, err = base64.StdEncoding.DecodeString(s)
		isBase64 := err == nil && len(raw) == 32 && base64.StdEncoding.EncodeToString(raw) == s
		require.Equal(t, isBase64, DecodeBase64(&m, s), "%q", s)
		if isBase64 {
			require.Equal(t, raw, m[:])
		}
	})
}

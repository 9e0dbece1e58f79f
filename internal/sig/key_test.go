package sig

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// RFC 4231, section 4: the test cases whose MAC is not truncated.
func TestRFC4231(t *testing.T) {
	repeat := func(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }
	counting := make([]byte, 25)
	for i := range counting {
		counting[i] = byte(i + 1)
	}
	for _, c := range []struct {
		key, data []byte
		mac       string
	}{
		{repeat(0x0b, 20), []byte("Hi There"),
			"b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
		{[]byte("Jefe"), []byte("what do ya want for nothing?"),
			"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
		{repeat(0xaa, 20), repeat(0xdd, 50),
			"773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
		{counting, repeat(0xcd, 50),
			"82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
		{repeat(0xaa, 131), []byte("Test Using Larger Than Block-Size Key - Hash Key First"),
			"60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
		{repeat(0xaa, 131), []byte("This is a test using a larger than block-size key and a larger than block-size data. " +
			"The key needs to be hashed before being used by the HMAC algorithm."),
			"9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
	} {
		d := digests.Get().(*digest)
		d.prefix = d.prefix[:0]
		mac := d.sum(newKey(c.key), c.data)
		digests.Put(d)
		require.Equal(t, c.mac, hex.EncodeToString(mac[:]))
	}
}

func reference(key []byte, message string) (m MAC) {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message))
	h.Sum(m[:0])
	return m
}

// Keys of every length around the block size, messages of every length around
// two blocks, against crypto/hmac.
func TestAgainstCryptoHMAC(t *testing.T) {
	text := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz+/", 8)
	for n := MinSecretLen; n <= MaxSecretLen; n++ {
		key, err := NewKey(text[:n])
		require.NoError(t, err)
		for l := 0; l < 140; l += 7 {
			require.Equal(t, reference([]byte(text[:n]), "17."+text[:l]), key.Elido("17", []byte(text[:l])))
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=", "55120", "1790068442", []byte("{}"))
	f.Add("short", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, secret, id, timestamp string, body []byte) {
		key, err := NewKey(secret)
		require.Equal(t, CheckSecret(secret), err)
		if err != nil {
			return
		}
		require.Equal(t, reference([]byte(secret), timestamp+"."+string(body)), key.Elido(timestamp, body))

		raw, bad := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		standard, err := NewStandardKey(secret)
		if bad != nil {
			require.ErrorIs(t, err, ErrSecretBase64)
			return
		}
		require.NoError(t, err)
		require.Equal(t, reference(raw, id+"."+timestamp+"."+string(body)), standard.Standard(id, timestamp, body))
	})
}

// Keys share their hash states: signing with many at once must not mix them.
func TestConcurrentUse(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		secret := fmt.Sprintf("a secret of goroutine %d...", i)
		secret = strings.ReplaceAll(secret, " ", "-")
		key, err := NewKey(secret)
		require.NoError(t, err)
		wg.Go(func() {
			for j := range 500 {
				body := fmt.Sprintf("%d/%d", i, j)
				if key.Elido("17", []byte(body)) != reference([]byte(secret), "17."+body) {
					t.Errorf("key %d signed with another key's state", i)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSigningDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops items at random under the race detector")
	}
	key, err := NewKey(NewSecret())
	require.NoError(t, err)
	body := bytes.Repeat([]byte("x"), 600)
	var buf [ElidoLen]byte
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		AppendElido(buf[:0], key.Elido("1790068442", body))
		key.Standard("55120", "1790068442", body)
	}))
}

// No way of printing a key, or what holds it, shows the secret or the states
// made from it.
func TestKeyIsNeverPrinted(t *testing.T) {
	const secret = "whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA="
	key, err := NewKey(secret)
	require.NoError(t, err)
	raw, err := base64.StdEncoding.DecodeString(secret[len(SecretPrefix):])
	require.NoError(t, err)
	inner := key.pads().inner
	canaries := []string{
		secret, secret[len(SecretPrefix):], hex.EncodeToString([]byte(secret)), string(raw), hex.EncodeToString(raw),
		string(inner), hex.EncodeToString(inner), strings.Trim(fmt.Sprintf("%d", inner[4:20]), "[]"), base64.StdEncoding.EncodeToString(inner),
	}
	type exported struct {
		K *Key
		V Key
	}
	type hidden struct {
		k *Key
		v Key
	}
	shapes := map[string]any{
		"value": *key, "pointer": key, "pointer to pointer": &key,
		"fields": exported{key, *key}, "unexported": hidden{key, *key}, "nested": &[]hidden{{key, *key}},
		"slice": []Key{*key}, "array": [1]*Key{key}, "map": map[string]*Key{"k": key}, "any": []any{key, *key},
	}
	clean := func(t *testing.T, text string) {
		t.Helper()
		for _, c := range canaries {
			require.NotContains(t, text, c)
		}
	}
	for name, shape := range shapes {
		for _, verb := range "vsdqxXobeEfFgGtTpUc" {
			for _, flags := range []string{"", "+", "#", "+#", " ", "20.3", "-", "0"} {
				format := "%" + flags + string(verb)
				if verb == 'T' || verb == 'p' {
					continue // the type and the address
				}
				t.Run(name+" "+format, func(t *testing.T) { clean(t, fmt.Sprintf(format, shape)) })
			}
		}
		if out, err := json.Marshal(shape); err == nil {
			clean(t, string(out))
		}
		if out, err := xml.Marshal(shape); err == nil {
			clean(t, string(out))
		}
		for _, h := range []func(*bytes.Buffer) slog.Handler{
			func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var b bytes.Buffer
			slog.New(h(&b)).Info("key", "key", shape)
			clean(t, b.String())
		}
	}
	require.Equal(t, "[redacted]", fmt.Sprintf("%d", key))
	require.Equal(t, "[redacted]", key.String())
	require.Equal(t, "[redacted]", key.GoString())
	out, err := json.Marshal(exported{key, *key})
	require.NoError(t, err)
	require.JSONEq(t, `{"K":"[redacted]","V":"[redacted]"}`, string(out))
}

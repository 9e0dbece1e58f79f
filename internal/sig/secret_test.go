package sig

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckSecret(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name, secret string
		want         error
	}{
		{"empty", "", ErrSecretEmpty},
		{"23 bytes", x(23), ErrSecretLength},
		{"24 bytes", x(24), nil},
		{"256 bytes", x(256), nil},
		{"257 bytes", x(257), ErrSecretLength},
		{"bytes, not runes", strings.Repeat("é", 12), nil},
		{"NUL at the end", x(24) + "\x00", ErrSecretNUL},
		{"NUL inside", x(12) + "\x00" + x(12), ErrSecretNUL},
		{"space", x(24) + " ", ErrSecretSpace},
		{"newline", x(24) + "\n", ErrSecretSpace},
		{"carriage return", "\r" + x(24), ErrSecretSpace},
		{"tab", x(12) + "\t" + x(12), ErrSecretSpace},
		{"no-break space", x(24) + "\u00a0", ErrSecretSpace},
		{"line separator", x(24) + "\u2028", ErrSecretSpace},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, CheckSecret(c.secret))
			_, err := NewKey(c.secret)
			require.Equal(t, c.want, err)
			if c.want != nil {
				_, err = NewStandardKey(c.secret)
				require.Equal(t, c.want, err)
			}
		})
	}
}

func TestNewSecret(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s := NewSecret()
		require.False(t, seen[s], "a secret came twice")
		seen[s] = true
		require.NoError(t, CheckSecret(s))
		rest, ok := strings.CutPrefix(s, "whsec_")
		require.True(t, ok)
		raw, err := base64.StdEncoding.Strict().DecodeString(rest)
		require.NoError(t, err)
		require.Len(t, raw, 32)
		_, err = NewStandardKey(s)
		require.NoError(t, err)
	}
}

func TestStandardKeySecrets(t *testing.T) {
	raw := strings.Repeat("\xfb", 24)
	text := base64.StdEncoding.EncodeToString([]byte(raw))
	want := reference([]byte(raw), "a.1.b")
	for _, s := range []string{text, "whsec_" + text} {
		key, err := NewStandardKey(s)
		require.NoError(t, err)
		require.Equal(t, want, key.Standard("a", "1", []byte("b")))
	}
	for _, s := range []string{
		"whsec_" + base64.URLEncoding.EncodeToString([]byte(raw)),
		"whsec_" + text[:31],
		"a-secret-of-my-own-choice!",
		"WHSEC_" + text,
	} {
		_, err := NewStandardKey(s)
		require.ErrorIs(t, err, ErrSecretBase64)
		require.NotContains(t, err.Error(), s)
		_, err = NewKey(s)
		require.NoError(t, err, "the other schemes take it")
	}
}

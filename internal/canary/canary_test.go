package canary

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryFormIsFound(t *testing.T) {
	const secret = `c4nary/+"<T0k3n>&=ofThirty-Two`
	c := New("token", secret)
	require.Equal(t, "token", c.String())
	asJSON, err := json.Marshal(map[string]any{"a": secret, "b": []byte(secret)})
	require.NoError(t, err)
	for name, text := range map[string]string{
		"itself":      secret,
		"in text":     "before " + secret + " after",
		"half of it":  secret[5:21],
		"hex":         hex.EncodeToString([]byte("xy" + secret)),
		"%X":          fmt.Sprintf("%X", secret),
		"% x":         fmt.Sprintf("% x", secret),
		"%d":          fmt.Sprintf("%d", []byte("ab"+secret+"c")),
		"%v":          fmt.Sprint(struct{ B []byte }{[]byte(secret)}),
		"%#v":         fmt.Sprintf("%#v", []byte(secret)),
		"%q":          fmt.Sprintf("%q", secret),
		"%+q":         fmt.Sprintf("%+q", secret),
		"%U":          fmt.Sprintf("%U", []rune(secret)),
		"%o":          fmt.Sprintf("%o", []byte(secret)),
		"%b":          fmt.Sprintf("%b", []byte(secret)),
		"JSON":        string(asJSON),
		"JSON twice":  fmt.Sprintf("%q", asJSON),
		"query":       url.QueryEscape(secret),
		"path":        url.PathEscape(secret),
		"upper":       strings.ToUpper(secret),
		"UTF-16":      "\x00" + utf16(secret, 1),
		"little":      utf16(secret, 0) + "\x00",
		"Basic":       base64.StdEncoding.EncodeToString([]byte("user:" + secret)),
		"Basic, url":  base64.URLEncoding.EncodeToString([]byte("u:" + secret + "z")),
		"after three": base64.RawStdEncoding.EncodeToString([]byte("abc" + secret)),
	} {
		require.NotEmpty(t, c.In([]byte(text)), name)
	}
	for _, text := range []string{"", "c4nary", secret[:11], strings.Repeat("x", 1000), "[redacted]"} {
		require.Empty(t, c.In([]byte(text)))
	}
	require.NotEmpty(t, New("short", "hunter2").In([]byte("a hunter2 b")))
}

package interop_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/getsentry/sentry-go"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/channel"
	"github.com/elido-app/webhook/internal/egress"
)

// ours is what a DSN means to package channel: where requests go, and with which
// keys.
func ours(dsn string) (target *url.URL, key, secret string, err error) {
	settings, credential, err := channel.Options{}.Save(channel.Sentry, nil, "", map[string]string{"dsn": dsn})
	if err != nil {
		return nil, "", "", err
	}
	c, err := channel.Options{}.Open(channel.Sentry, settings, credential)
	if err != nil {
		return nil, "", "", err
	}
	// What is allowed of hosts and paths is the same for all kinds of endpoint.
	if target, err = egress.ParseURL(c.URL(), egress.Options{AllowLoopback: true}); err != nil {
		return nil, "", "", err
	}
	_, fields, _ := strings.Cut(c.Header().Get("X-Sentry-Auth"), " ")
	for field := range strings.SplitSeq(fields, ", ") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "sentry_key":
			key = value
		case "sentry_secret":
			secret = value
		}
	}
	return target, key, secret, nil
}

// requireAgreement checks that Sentry's own parser takes a DSN that ours takes,
// and sends to the same place under the same keys.
func requireAgreement(t *testing.T, dsn string, target *url.URL, key, secret string) {
	t.Helper()
	theirs, err := sentry.NewDsn(strings.TrimSpace(dsn))
	require.NoError(t, err, dsn)
	require.Equal(t, theirs.GetPublicKey(), key, dsn)
	require.Equal(t, theirs.GetSecretKey(), secret, dsn)
	api := theirs.GetAPIURL()
	require.Equal(t, api.Scheme, target.Scheme, dsn)
	require.Equal(t, strings.ToLower(api.Hostname()), target.Hostname(), dsn)
	require.Equal(t, path.Clean(api.Path), path.Clean(target.Path), dsn) // "host//1" is odd, but clear
	port := strings.TrimLeft(target.Port(), "0")
	if port == map[string]string{"https": "443", "http": "80"}[target.Scheme] {
		port = "" // theirs leaves it out
	}
	require.Equal(t, api.Port(), port, dsn)
}

var goodDSNs = []string{
	"https://0123456789abcdef0123456789abcdef@o1.ingest.sentry.io/42",
	"https://0123456789abcdef0123456789abcdef@o4506.ingest.us.sentry.io/4506000000000000",
	"https://0123456789abcdef0123456789abcdef@o4506.ingest.de.sentry.io/4506000000000000",
	"https://public:secret@sentry.example.com/1",
	"https://public@sentry.example.com:8443/1",
	"https://public@sentry.example.com:443/1",
	"https://public@sentry.example.com/a/path/17",
	"https://public@[2606:4700:4700::1111]:9000/1",
	"http://public@localhost:9000/1",
	"HTTPS://public@sentry.example.com/1",
}

var badDSNs = []string{
	"", "x", "https://", "https://host/42", "https://key@host", "https://key@host/", "https://key@/42", "https://@host/42",
	"ftp://key@host/42", "key@host/42", "https://key@host:port/42", "https://key with spaces@host/42", "https://key\r\nX: y@host/42",
}

func TestSentryReadsDSNsAlike(t *testing.T) {
	for _, dsn := range goodDSNs {
		target, key, secret, err := ours(dsn)
		require.NoError(t, err, dsn)
		requireAgreement(t, dsn, target, key, secret)
	}
	for _, dsn := range badDSNs {
		_, err := sentry.NewDsn(dsn)
		require.Error(t, err, dsn)
		_, _, _, err = ours(dsn)
		require.Error(t, err, dsn)
	}
}

// Whatever ours takes, Sentry's takes, and understands the same. Ours may refuse
// more.
func FuzzSentryReadsDSNsAlike(f *testing.F) {
	for _, dsn := range append(goodDSNs, badDSNs...) {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if target, key, secret, err := ours(dsn); err == nil {
			requireAgreement(t, dsn, target, key, secret)
		}
	})
}

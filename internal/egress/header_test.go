package egress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckHeaders(t *testing.T) {
	require.NoError(t, CheckHeaders(nil))
	require.NoError(t, CheckHeaders(map[string]string{
		"Authorization": "Bearer abc==", "X-Api-Key": "!~", "x-tenant": "", "X-Elidoso": "a", "X_Elidoso": "a", "Webhook": "a", "A": "a b  c",
		"X-Long": strings.Repeat("a", maxHeaderBytes-len("X-Long")), "Accept": "application/json",
	}))

	const secret = "s3cret"
	for _, name := range []string{
		"X-Elido-Signature", "x-elido-signature-previous", "X-Elido-Anything", "X-WEBHOOK-TIMESTAMP", "X-Webhook-Delivery", "Elido-Signature",
		"elido-webhook-id", "webhook-id", "Webhook-Signature", "Host", "Content-Length", "content-type", "Content-Encoding", "Content-Digest",
		"Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Upgrade", "Accept-Encoding",
		"Idempotency-Key", "IDEMPOTENCY-KEY", "X-Idempotency-Key", "Expect", "User-Agent", "Cookie", "Date", "Forwarded", "X-Forwarded-For",
		"True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "X-Cluster-Client-IP", "Fly-Client-IP", "Fastly-Client-IP", "X-Envoy-External-Address",
		"X-Forwarded", "Forwarded-For", "X-Original-Host", "X-Original-URL", "X-Rewrite-URL", "X-Host", "Metadata", "Metadata-Flavor",
		"X_Forwarded_For", "x-real_ip", "X_Elido_Signature", "X_WEBHOOK-Delivery", "Content_Length",
	} {
		err := CheckHeaders(map[string]string{"Authorization": "a", name: secret})
		require.Equal(t, &RuleError{"the header " + name + " is reserved"}, err)
	}
	for _, value := range []string{secret + "\r\nX: y", secret + "\x00", "\t" + secret, " " + secret, secret + " ", "ü" + secret, secret + "\x7f", secret + strings.Repeat("a", maxHeaderBytes)} {
		err := CheckHeaders(map[string]string{"X-Key": value})
		require.ErrorContains(t, err, "the header X-Key ")
		require.NotContains(t, err.Error(), secret)
	}
	for _, name := range []string{"", "a b", "a:", "a\r\nb", "ü", "a\x00", "(a)", strings.Repeat("a", 129), "a\xff"} {
		err := CheckHeaders(map[string]string{name: secret})
		require.ErrorContains(t, err, "a header's name must be")
		require.NotContains(t, err.Error(), secret)
	}
	for range 20 { // whatever the map's order
		err := CheckHeaders(map[string]string{"X-A": "1", "x-a": "2"})
		require.EqualError(t, err, "the header x-a is given twice, in different letter case")
		err = CheckHeaders(map[string]string{"Host": "1", "Date": "2", "Expect": "3"})
		require.EqualError(t, err, "the header Date is reserved")
	}
	many := make(map[string]string)
	for i := range maxHeaders {
		many[fmt.Sprint("X-", i)] = ""
	}
	require.NoError(t, CheckHeaders(many))
	many["Y"] = ""
	require.EqualError(t, CheckHeaders(many), "there must not be more than 32 extra headers")
}

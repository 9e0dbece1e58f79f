package webhook_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// gzipBomb is 50 MB of zeros in 50 KB.
func gzipBomb() string {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	zip.Write(make([]byte, 1<<20))
	zip.Close()
	return strings.Repeat(b.String(), 50) // RFC 1952: members follow one another
}

func resetting(text string) replier {
	return func(c net.Conn, _ int64) bool {
		io.WriteString(c, text)
		if text != "" {
			time.Sleep(50 * time.Millisecond) // else the reset overtakes the text
		}
		c.(*net.TCPConn).SetLinger(0)
		return false
	}
}

// What receivers may do, and what the log then says.
func TestAnswers(t *testing.T) {
	const (
		delivered = webhook.StatusDelivered
		pending   = webhook.StatusPending // and attempted once
	)
	bomb := gzipBomb()
	long := strings.Repeat("0123456789abcdef", 2048)
	w := outside(t, webhook.Config{})
	for i, c := range []struct {
		name     string
		reply    replier
		state    webhook.Status
		status   int
		err      string
		response string
		cut      bool
	}{
		{"200", answering(okAnswer), delivered, 200, "", "ok", false},
		{"204", closing("HTTP/1.1 204 No Content\r\n\r\n"), delivered, 204, "", "", false},
		{"299", closing("HTTP/1.1 299 \r\n\r\nabc"), delivered, 299, "", "abc", false},
		{"HTTP/1.0", closing("HTTP/1.0 201 Created\r\n\r\nabc"), delivered, 201, "", "abc", false},
		{"after 103", closing("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + okAnswer), delivered, 200, "", "ok", false},
		{"101", answering("HTTP/1.1 101 Switching Protocols\r\n\r\n"), pending, 101, "HTTP 101 Switching Protocols", "", false},
		{"101 with a protocol", answering("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nabc"), pending, 101, "HTTP 101 Switching Protocols", "", false},
		{"099", closing("HTTP/1.1 099 Odd\r\n\r\nabc"), pending, 99, "HTTP 99", "abc", false},
		{"000", closing("HTTP/1.1 000 Odd\r\n\r\nabc"), pending, 0, "the answer is not valid HTTP", "abc", false},
		{"199 and nothing more", closing("HTTP/1.1 199 Odd\r\n\r\n"), pending, 0, "connection closed before an answer", "", false},
		{"300", closing("HTTP/1.1 300 M\r\n\r\n"), pending, 300, "HTTP 300 Multiple Choices (redirects are not followed)", "", false},
		{"304", closing("HTTP/1.1 304 N\r\nContent-Length: 3\r\n\r\nabc"), pending, 304, "HTTP 304 Not Modified (redirects are not followed)", "", false},
		{"400", closing("HTTP/1.1 400 B\r\n\r\n{\"error\":\"stale timestamp\"}"), pending, 400, "HTTP 400 Bad Request", `{"error":"stale timestamp"}`, false},
		{"410", closing("HTTP/1.1 410 G\r\n\r\n"), pending, 410, "HTTP 410 Gone", "", false},
		{"500", closing("HTTP/1.1 500 \r\n\r\n" + long), pending, 500, "HTTP 500 Internal Server Error", long[:16<<10], true},
		{"600", closing("HTTP/1.1 600 X\r\n\r\n"), pending, 600, "HTTP 600", "", false},
		{"999", closing("HTTP/1.1 999 X\r\n\r\n"), pending, 999, "HTTP 999", "", false},
		{"1000", closing("HTTP/1.1 1000 X\r\n\r\n"), pending, 0, "the answer is not valid HTTP", "", false},
		{"not HTTP", closing("SSH-2.0-OpenSSH_9.2p1\r\n"), pending, 0, "the answer is not valid HTTP", "", false},
		{"two lengths", closing("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc"), pending, 0, "the answer is not valid HTTP", "", false},
		{"no answer", closing(""), pending, 0, "connection closed before an answer", "", false},
		{"half a head", closing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"), pending, 0, "connection closed before an answer", "", false},
		{"reset after the request", resetting(""), pending, 0, "connection reset", "", false},
		{"reset in the head", resetting("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"), pending, 0, "connection closed before an answer", "", false},
		{"reset in the body", resetting("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), delivered, 200, "", "abc", true},
		{"truncated body", closing("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), delivered, 200, "", "abc", true},
		{"truncated chunks", closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), delivered, 200, "", "abc", true},
		{"broken chunks", closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"), delivered, 200, "", "abc", true},
		{"truncated, of a failure", closing("HTTP/1.1 502 B\r\nContent-Length: 9\r\n\r\nabc"), pending, 502, "HTTP 502 Bad Gateway", "abc", true},
		{"exactly 16 KiB", closing("HTTP/1.1 200 OK\r\n\r\n" + long[:16<<10]), delivered, 200, "", long[:16<<10], false},
		{"16 KiB and a byte", closing("HTTP/1.1 200 OK\r\n\r\n" + long[:16<<10+1]), delivered, 200, "", long[:16<<10], true},
		{"1 GiB", flood("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", "abcdefgh"), delivered, 200, "", strings.Repeat("abcdefgh", 2048), true},
		{"gzip bomb", answering(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)),
			delivered, 200, "", bomb[:16<<10], true},
		{"endless 103s", flood("", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"), pending, 0, "the answer's headers are too large", "", false},
		{"endless headers", flood("HTTP/1.1 200 OK\r\n", "A: b\r\n"), pending, 0, "the answer's headers are too large", "", false},
		{"an endless header", flood("HTTP/1.1 200 OK\r\nA: ", "b"), pending, 0, "the answer's headers are too large", "", false},
		{"an endless status line", flood("HTTP/1.1 200 ", "OK"), pending, 0, "the answer's headers are too large", "", false},
		{"an escape in a header", closing("HTTP/1.1 200 OK\r\nA: \x1b[31m\r\n\r\n"), pending, 0, "the answer is not valid HTTP", "", false},
		{"escapes for a terminal", closing("HTTP/1.1 500 \x1b[2J\x1b]0;owned\x07\r\n\r\n\x1b[31mred\x1b[0m\x00\xff"),
			pending, 500, "HTTP 500 Internal Server Error", "\x1b[31mred\x1b[0m\x00\xff", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := listen(t, c.reply)
			w := *w
			w.T = t
			d, a := w.attempt(int64(i+1), webhook.EndpointParams{URL: "http://" + r.host + "/hooks"})
			require.EqualValues(t, 1, r.requests.Load())
			require.Equal(t, c.state, d.Status)
			require.Equal(t, 1, d.Attempts)
			require.Equal(t, c.status, d.LastStatus)
			require.Equal(t, c.status, a.Status)
			require.Equal(t, c.err, string(a.Error))
			require.Equal(t, c.err, string(d.LastError))
			require.True(t, c.response == string(a.Response), "%.100q", a.Response)
			require.Equal(t, c.cut, a.ResponseCut)
			require.NotContains(t, string(r.bytes()), "Accept-Encoding")
			shown, err := json.Marshal([]any{d, a})
			require.NoError(t, err)
			for _, b := range shown {
				require.False(t, b < ' ' || b == 0x7f, "a control character is shown as it is")
			}
		})
	}
	require.NotContains(t, w.log.String(), "owned")
	require.NotContains(t, w.log.String(), "\x1b")
}

func TestDroppedResponses(t *testing.T) {
	w := outside(t, webhook.Config{DropResponses: true})
	r := listen(t, closing("HTTP/1.1 500 \r\n\r\nconfidential"))
	_, a := w.attempt(1, webhook.EndpointParams{URL: "http://" + r.host})
	require.Equal(t, 500, a.Status)
	require.Empty(t, a.Response)
	require.False(t, a.ResponseCut)
}

// What comes after an answer is not the next one.
func TestJunkAfterAnAnswerHarmsNoOther(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 204 No Content\r\n\r\njunk",
		"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\njunk",
		okAnswer + "HTTP/1.1 500 Smuggled\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 500 Mine\r\nContent-Length: 0\r\n\r\n" + okAnswer,
	} {
		r := listen(t, answering(answer))
		w := outside(t, webhook.Config{})
		w.endpoint(webhook.EndpointParams{URL: "http://" + r.host})
		var ids []int64
		for range 10 {
			ids = append(ids, w.publish(webhook.Event{}).DeliveryIDs[0])
		}
		n, err := w.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10, n)
		require.EqualValues(t, 10, r.requests.Load())
		want := answer[len("HTTP/1.1 "):][:3]
		for _, id := range ids {
			a := w.attempts(id)
			require.Len(t, a, 1)
			require.Equal(t, want, fmt.Sprint(a[0].Status))
			require.NotContains(t, string(a[0].Response), "junk")
		}
	}
}

// A connection that dies under a request is where net/http is tempted to send
// it again. What the receiver counts is what the log has.
func TestOneRequestForOneAttempt(t *testing.T) {
	for name, die := range map[string]replier{"close": closing(""), "reset": resetting(""), "half an answer": closing("HTTP/1.1 2")} {
		t.Run(name, func(t *testing.T) {
			r := listen(t, func(c net.Conn, n int64) bool {
				if n%2 == 0 {
					return die(c, n)
				}
				return answering(okAnswer)(c, n)
			})
			w := outside(t, webhook.Config{})
			w.endpoint(webhook.EndpointParams{URL: "http://" + r.host})
			var ids []int64
			for range 10 {
				ids = append(ids, w.publish(webhook.Event{}).DeliveryIDs[0])
			}
			_, err := w.RunOnce(t.Context())
			require.NoError(t, err)
			delivered, attempts := 0, 0
			for _, id := range ids {
				d := w.delivery(id)
				attempts += len(w.attempts(id))
				if d.Status == webhook.StatusDelivered {
					delivered++
				}
			}
			require.Equal(t, 5, delivered)
			require.Equal(t, 10, attempts)
			require.EqualValues(t, 10, r.requests.Load())
			require.EqualValues(t, 5, r.accepted.Load(), "the connections were kept alive")
			require.Zero(t, strings.Count(strings.ToLower(string(r.bytes())), "idempotency-key"))
		})
	}
}

func TestRedirectsAreLoggedAndNotFollowed(t *testing.T) {
	second := listen(t, answering(okAnswer))
	w := outside(t, webhook.Config{})
	workspaceID := int64(0)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{"http://" + second.host + "/", "//" + second.host, "http://[::1", "", "\x80", "javascript:alert(1)"} {
			r := listen(t, answering(fmt.Sprintf("HTTP/1.1 %d Moved\r\nLocation: %s\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n", status, location)))
			workspaceID++
			d, a := w.attempt(workspaceID, webhook.EndpointParams{URL: "http://" + r.host})
			require.Equal(t, webhook.StatusPending, d.Status)
			require.Equal(t, status, a.Status)
			require.Contains(t, string(a.Error), "redirects are not followed")
			w.again(workspaceID)
			require.EqualValues(t, 2, r.requests.Load())
			require.NotContains(t, string(r.bytes()), "Cookie")
		}
	}
	require.Zero(t, second.accepted.Load())
}

// No body goes to a server that is not proven to be the right one.
func TestUntrustedTLSGetsNoBody(t *testing.T) {
	ca := newAuthority(t)
	hour := time.Now().Add(time.Hour)
	good := ca.issue(t, "hooks.example", hour)
	w := dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{AllowLoopback: true, RootCAs: ca.pool}})
	for i, c := range []struct {
		name   string
		config *tls.Config
		err    string
	}{
		{"good", &tls.Config{Certificates: []tls.Certificate{good}}, ""},
		{"TLS 1.2", &tls.Config{Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS12}, ""},
		{"TLS 1.1", &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "TLS: the handshake failed"},
		{"self-signed", &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}, "TLS: the certificate is not trusted"},
		{"of another authority", &tls.Config{Certificates: []tls.Certificate{newAuthority(t).issue(t, "hooks.example", hour)}}, "TLS: the certificate is not trusted"},
		{"expired", &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(-time.Minute))}},
			"TLS: the certificate has expired or is not valid yet"},
		{"of another host", &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "other.example", hour)}}, "TLS: the certificate is for another host"},
		{"no TLS", nil, "TLS: the handshake failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r *socket
			if c.config != nil {
				r = listenTLS(t, c.config, answering(okAnswer))
			} else {
				r = listen(t, answering("HTTP/1.1 400 Bad Request\r\n\r\n"))
			}
			w := *w
			w.T = t
			d, a := w.attempt(int64(i+1), webhook.EndpointParams{URL: "https://hooks.example:" + r.port() + "/"})
			require.Equal(t, c.err, string(a.Error))
			require.EqualValues(t, 1, r.accepted.Load())
			if c.err == "" {
				require.Equal(t, webhook.StatusDelivered, d.Status)
				require.EqualValues(t, 1, r.requests.Load())
				return
			}
			require.Equal(t, webhook.StatusPending, d.Status)
			require.Zero(t, a.Status)
			require.Zero(t, r.requests.Load())
			require.NotContains(t, string(r.bytes()), "91834")
		})
	}
}

// selfSigned is a certificate for hooks.example that nobody else has signed.
func selfSigned(t testing.TB) tls.Certificate {
	a := newAuthority(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"hooks.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

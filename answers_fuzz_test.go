package webhook_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// Whatever a receiver answers, one request is one attempt, which ends in time,
// keeps little, and is a success exactly if it says 2xx.
func FuzzAnswer(f *testing.F) {
	for _, answer := range []string{
		okAnswer, "HTTP/1.1 204 No Content\r\n\r\njunk", "HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "HTTP/1.1 000 Z\r\n\r\n", "HTTP/1.1 999 X\r\n\r\n",
		"HTTP/1.1 103 E\r\nLink: a\r\n\r\n" + okAnswer, "HTTP/1.1 429 T\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc",
		"HTTP/1.0 200 OK\r\n\r\nabc", "HTTP/1.1 302 F\r\nLocation: http://[::1\r\n\r\n", "HTTP/1.1 200 OK\nA:\tb\n c\n\n", "HTTP/2.0 200 OK\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"SSH-2.0-OpenSSH\r\n", "\x16\x03\x01", "", "\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 18446744073709551616\r\n\r\n",
	} {
		f.Add([]byte(answer), uint16(len(answer)/2), uint16(0), true)
		f.Add([]byte(answer), uint16(12), uint16(1000), false)
	}
	f.Fuzz(func(t *testing.T, answer []byte, split, pause uint16, leave bool) {
		piped(t, webhook.Config{Logger: quiet()}, func(w *world, p *pipes) {
			first, rest := answer[:min(int(split), len(answer))], answer[min(int(split), len(answer)):]
			p.handle = p.handler(func(c net.Conn, _ int64) bool {
				_, err := c.Write(first)
				time.Sleep(time.Duration(pause) * time.Millisecond)
				if err == nil {
					_, err = c.Write(rest)
				}
				if !leave {
					_, _ = io.Copy(io.Discard, c)
				}
				return err == nil && leave
			})
			start := time.Now()
			d, a := w.attempt(workspace, webhook.EndpointParams{URL: pipeURL})
			require.LessOrEqual(w, time.Since(start), 11*time.Second)
			require.EqualValues(w, 1, p.requests.Load())
			require.EqualValues(w, 1, p.accepted.Load())
			require.Equal(w, 1, d.Attempts)
			require.Equal(w, 1, a.Number)
			require.Equal(w, a.Status, d.LastStatus)
			require.LessOrEqual(w, len(a.Response), 16<<10)
			success := a.Status >= 200 && a.Status <= 299
			require.Equal(w, success, d.Status == webhook.StatusDelivered)
			require.Equal(w, success, len(a.Error) == 0)
			require.True(w, a.Status >= 0 && a.Status <= 999)
			if a.Status == 0 {
				require.Contains(w, failures, string(a.Error))
			}
			if !success {
				wait := d.NextAttemptAt.Sub(start)
				require.GreaterOrEqual(w, wait, 5*time.Minute)
				require.LessOrEqual(w, wait, 24*time.Hour+11*time.Second)
			}
		})
	})
}

// failures are the texts for requests without an answer, of those that a
// receiver can bring about after it took the connection.
var failures = []string{
	"no answer within the time limit", "connection reset", "connection closed before an answer", "the answer's headers are too large",
	"the answer is not valid HTTP", "the request failed",
}

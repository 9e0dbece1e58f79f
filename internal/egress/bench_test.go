package egress

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkDo posts 600 bytes to a receiver that allocates nothing, so that
// the allocations counted are the sender's.
func BenchmarkDo(b *testing.B) {
	r := serveConns(b, func(c net.Conn) {
		buf := make([]byte, 4096)
		for at := 0; ; {
			n, err := c.Read(buf[at:])
			if err != nil {
				return
			}
			at += n
			head := bytes.Index(buf[:at], []byte("\r\n\r\n"))
			if head < 0 || at < head+4+600 {
				continue
			}
			at = 0
			if _, err := io.WriteString(c, ok); err != nil {
				return
			}
		}
	})
	c := newClient(b, Options{AllowLoopback: true, IdlePerHost: 64})
	u, err := ParseURL("http://"+r.host+"/hooks", c.options)
	require.NoError(b, err)
	req := Request{
		URL: u,
		Header: http.Header{
			"Content-Type": {"application/json"}, "User-Agent": {"Elido-Webhooks/1.0"}, "X-Elido-Signature": {"v1=0123456789abcdef0123456789abcdef"},
			"X-Webhook-Event": {"link.created"}, "X-Webhook-Delivery": {"42"}, "X-Webhook-Timestamp": {"1789981200"},
		},
		Body: make([]byte, 600),
	}
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a := c.Do(b.Context(), req, nil); a.Err != nil || a.Status != 200 {
				b.Error(a.Err)
				return
			}
		}
	})
}

// BenchmarkCheck is what Do does before each request.
func BenchmarkCheck(b *testing.B) {
	u, err := ParseURL("https://hooks.customer.example.com/elido/events?tenant=42", Options{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if rule := checkTarget(u, &Options{}); rule != "" {
			b.Fatal(rule)
		}
	}
}

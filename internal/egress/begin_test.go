package egress

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBeganComesWithTheRequest has receivers that answer only to a request that
// was said to have begun: Began waits for no answer, and there is none without.
func TestBeganComesWithTheRequest(t *testing.T) {
	ca := newAuthority(t)
	var begun atomic.Pointer[chan struct{}]
	reply := func(c net.Conn, _ int64) bool {
		<-*begun.Load()
		_, err := io.WriteString(c, ok)
		return err == nil
	}
	plain := serve(t, reply)
	secure := &receiver{}
	secure.listen(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(time.Hour))}}, func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err = io.Copy(io.Discard, req.Body); err != nil || !reply(c, 0) {
				return
			}
		}
	})
	proxy := serveProxy(t, plain.host, "")
	direct := Options{AllowLoopback: true, RootCAs: ca.pool, Resolver: resolveTo("127.0.0.1")}
	proxied := direct
	proxied.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy.host})
	replaced := Options{AllowLoopback: true, Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		_, err := io.ReadAll(r.Body)
		<-*begun.Load()
		return &http.Response{StatusCode: 200}, err
	})}
	for name, test := range map[string]struct {
		options Options
		url     string
	}{
		"plain":    {direct, "http://" + plain.host},
		"TLS":      {direct, "https://hooks.example:" + secure.port()},
		"proxy":    {proxied, "http://localhost:1/a"},
		"replaced": {replaced, "http://localhost:1/a"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, test.options)
			for range 2 { // the second on the connection of the first
				now := make(chan struct{})
				begun.Store(&now)
				var asked, began atomic.Int64
				r := newRequest(t, c, test.url)
				r.Sending = func() bool { asked.Add(1); return true }
				r.Began = func() {
					if began.Add(1) == 1 {
						require.EqualValues(t, 1, asked.Load())
						close(now)
					}
				}
				require.Equal(t, 200, do(t, t.Context(), c, r, nil).Status)
				require.Positive(t, began.Load())
				r.Sending = func() bool { return false }
				r.Began = func() { t.Error("what may not be sent has begun") }
				require.Error(t, c.Do(t.Context(), r, nil).Err)
			}
		})
	}
}

// TestBeganComesAfterTheWrite holds up the write.
func TestBeganComesAfterTheWrite(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	conn := newConn(near, host{})
	var began atomic.Int64
	r := &Request{Began: func() { began.Add(1) }}
	written := make(chan error)
	go func() { written <- conn.begin(r, []byte("ab")) }()
	buf := make([]byte, 1)
	_, err := far.Read(buf) // half of it
	require.NoError(t, err)
	require.Zero(t, began.Load())
	_, err = far.Read(buf)
	require.NoError(t, err)
	require.NoError(t, <-written)
	require.EqualValues(t, 1, began.Load())
}

package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A receiver is a raw TCP server that counts what reaches it.
type receiver struct {
	host     string // host:port
	accepted atomic.Int64
	requests atomic.Int64
	lastHead atomic.Pointer[string]
}

// serve starts a receiver. For each request, read with its whole body, reply
// is called with its number, from 1; it says whether to read another.
func serve(t testing.TB, reply func(c net.Conn, n int64) (more bool)) *receiver {
	r := &receiver{}
	r.listen(t, nil, func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			var head strings.Builder
			req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(oneByte{br}, &head)))
			if err != nil {
				return
			}
			text := head.String()
			r.lastHead.Store(&text)
			if _, err := io.CopyN(io.Discard, br, req.ContentLength); err != nil {
				return
			}
			if !reply(c, r.requests.Add(1)) {
				return
			}
		}
	})
	return r
}

// oneByte keeps a bufio.Reader from taking more than a request's head.
type oneByte struct{ r *bufio.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

// serveConns starts a receiver that hands over bare connections.
func serveConns(t testing.TB, handle func(net.Conn)) *receiver {
	r := &receiver{}
	r.listen(t, nil, handle)
	return r
}

func (r *receiver) listen(t testing.TB, config *tls.Config, handle func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.host = l.Addr().String()
	var open sync.Map
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.accepted.Add(1)
			open.Store(c, nil)
			group.Go(func() {
				defer open.Delete(c)
				defer c.Close()
				if config != nil {
					handle(tls.Server(c, config))
					return
				}
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		for done := false; !done; { // a connection may still be on its way in
			open.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
			finished := make(chan struct{})
			go func() { group.Wait(); close(finished) }()
			select {
			case <-finished:
				done = true
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

func (r *receiver) port() string { _, port, _ := net.SplitHostPort(r.host); return port }

// answers is a reply that writes text and reads on.
func answers(text string) func(net.Conn, int64) bool {
	return func(c net.Conn, _ int64) bool {
		_, err := io.WriteString(c, text)
		return err == nil
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func newClient(t testing.TB, o Options) *Client {
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func newRequest(t testing.TB, c *Client, raw string) Request {
	u, err := ParseURL(raw, c.options)
	require.NoError(t, err)
	return Request{URL: u, Header: http.Header{"X-Secret": {canary}}, Body: []byte(`{"a":1}`)}
}

const canary = "c4nary"

// post sends one request and checks what holds for every answer.
func post(t testing.TB, c *Client, raw string) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // against a hanging test only
	defer cancel()
	return do(t, ctx, c, newRequest(t, c, raw), nil)
}

func do(t testing.TB, ctx context.Context, c *Client, r Request, answered func()) Answer {
	t.Helper()
	calls := 0
	a := c.Do(ctx, r, func() {
		calls++
		if answered != nil {
			answered()
		}
	})
	require.LessOrEqual(t, len(a.Body), keepLimit)
	if a.Err == nil {
		require.Equal(t, 1, calls)
		require.NotZero(t, a.Status)
		require.False(t, a.Refused || a.Final || a.TimedOut)
		return a
	}
	require.LessOrEqual(t, calls, 1)
	require.Zero(t, a.Status)
	text := a.Err.Error()
	for _, private := range []string{canary, r.URL.String(), r.URL.Host, r.URL.Hostname(), r.URL.Port(), "127.0.0.1"} {
		if private != "" {
			require.NotContains(t, text, private)
		}
	}
	if f, ok := errors.AsType[Failure](a.Err); ok {
		require.Contains(t, failureTexts, text)
		require.Equal(t, f.Timeout(), a.TimedOut)
		require.Equal(t, f == AddressRefused, a.Refused)
		require.False(t, a.Final)
		return a
	}
	require.IsType(t, &RuleError{}, a.Err)
	require.True(t, a.Final)
	return a
}

// resolverFunc is a Resolver.
type resolverFunc func(ctx context.Context, host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if network != "ip" {
		return nil, fmt.Errorf("network %q", network)
	}
	return f(ctx, host)
}

// resolveTo gives every name the same addresses.
func resolveTo(texts ...string) resolverFunc {
	addrs := make([]netip.Addr, len(texts))
	for i, text := range texts {
		addrs[i] = netip.MustParseAddr(text)
	}
	return func(context.Context, string) ([]netip.Addr, error) { return addrs, nil }
}

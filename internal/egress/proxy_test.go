package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serveProxy starts an HTTP proxy that connects everything to target, or
// answers CONNECT with refusal if that is not empty.
func serveProxy(t testing.TB, target, refusal string) *receiver {
	r := &receiver{}
	r.listen(t, nil, func(c net.Conn) {
		br := bufio.NewReader(c)
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		r.requests.Add(1)
		line := req.Method + " " + req.RequestURI + " " + req.Header.Get("Proxy-Authorization")
		r.lastHead.Store(&line)
		if refusal != "" {
			io.WriteString(c, refusal)
			return
		}
		up, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer up.Close()
		if req.Method == http.MethodConnect {
			io.WriteString(c, "HTTP/1.1 200 Connected\r\n\r\n")
		} else {
			req.Write(up)
		}
		go func() { io.Copy(up, br); up.Close() }()
		io.Copy(c, up)
	})
	return r
}

func TestProxy(t *testing.T) {
	ca := newAuthority(t)
	target := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(time.Hour))}}, ok)
	proxy := serveProxy(t, target.host, "")
	var dialled atomic.Int64
	options := Options{
		RootCAs: ca.pool,
		Resolver: resolverFunc(func(_ context.Context, host string) ([]netip.Addr, error) {
			require.Equal(t, "direct.example", host, "a proxied name was looked up")
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}),
		Proxy: func(r *http.Request) (*url.URL, error) {
			switch r.URL.Hostname() {
			case "direct.example":
				return nil, nil
			case "fault.example":
				return nil, errors.New(canary)
			}
			return &url.URL{Scheme: "http", Host: proxy.host, User: url.UserPassword("u", "p")}, nil
		},
	}
	c := newClient(t, options) // the proxy's loopback address needs no permission
	for range 2 {
		require.Equal(t, 200, post(t, c, "https://hooks.example").Status)
	}
	require.Equal(t, "CONNECT hooks.example:443 Basic dTpw", *proxy.lastHead.Load())
	require.EqualValues(t, 1, proxy.accepted.Load())
	require.EqualValues(t, 2, target.requests.Load())

	// The URL's own rules hold behind a proxy too, ...
	_, err := ParseURL("https://10.0.0.1/", options)
	require.EqualError(t, err, ruleAddress)
	a := c.Do(t.Context(), Request{URL: &url.URL{Scheme: "https", Host: "10.0.0.1"}}, nil)
	require.True(t, a.Refused && a.Final)

	// ... and a request that goes round the proxy is guarded, even to the
	// proxy's own address.
	tap(c, func(context.Context, string) error { dialled.Add(1); return nil })
	require.Equal(t, AddressRefused, post(t, c, "https://direct.example:"+proxy.port()).Err)
	require.Zero(t, dialled.Load())
	require.Equal(t, ProxyFailed, post(t, c, "https://fault.example").Err)
	require.EqualValues(t, 1, proxy.accepted.Load())

	// Plain http (loopback only) goes through as well.
	plain := serve(t, answers(ok))
	proxy = serveProxy(t, plain.host, "")
	options.AllowLoopback = true
	require.Equal(t, 200, post(t, newClient(t, options), "http://localhost:1/a").Status)
	require.Equal(t, "POST http://localhost:1/a Basic dTpw", *proxy.lastHead.Load())
}

func TestTLSProxy(t *testing.T) {
	ca := newAuthority(t)
	target := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(time.Hour))}}, ok)
	r := &receiver{}
	r.listen(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "proxy.example", time.Now().Add(time.Hour))}}, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		up, err := net.Dial("tcp", target.host)
		if err != nil {
			return
		}
		defer up.Close()
		io.WriteString(c, "HTTP/1.1 200 Connected\r\n\r\n")
		go func() { io.Copy(up, c); up.Close() }()
		io.Copy(c, up)
	})
	c := newClient(t, Options{RootCAs: ca.pool, Proxy: http.ProxyURL(&url.URL{Scheme: "https", Host: r.host})})
	require.Equal(t, 200, post(t, c, "https://hooks.example").Status)
	require.Equal(t, 200, post(t, c, "https://hooks.example").Status)
	require.EqualValues(t, 1, r.accepted.Load())
}

func TestProxyFailures(t *testing.T) {
	proxied := func(host string) *Client {
		return newClient(t, Options{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: host})})
	}
	for _, refusal := range []string{"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "HTTP/1.1 204 No\r\n\r\n", "HTTP/1.1 503 " + canary + "\r\n\r\n"} {
		r := serveProxy(t, "", refusal)
		require.Equal(t, ProxyFailed, post(t, proxied(r.host), "https://hooks.example").Err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	require.Equal(t, ProxyFailed, post(t, proxied(l.Addr().String()), "https://hooks.example").Err)

	// One that accepts and says nothing does not hold up Close.
	silent := serveConns(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	c := proxied(silent.host)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Equal(t, ConnectTimeout, do(t, ctx, c, newRequest(t, c, "https://hooks.example"), nil).Err)
	c.Close()
	c.dialer.mu.Lock()
	defer c.dialer.mu.Unlock()
	require.Empty(t, c.dialer.proxied)
}

// The environment is read once per process, so each run is a process.
func TestProxyFromEnvironmentIsIgnored(t *testing.T) {
	const child = "EGRESS_TEST_CHILD"
	if os.Getenv(child) == "" {
		recorder := serveConns(t, func(net.Conn) {})
		address := "http://" + recorder.host
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), child+"=1", "NO_PROXY=", "no_proxy=")
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
			cmd.Env = append(cmd.Env, name+"="+address)
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "PASS")
		require.Zero(t, recorder.accepted.Load())
		return
	}
	if u, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: "hooks.example"}}); err != nil || u == nil {
		t.Fatal("the environment names no proxy")
	}
	ca := newAuthority(t)
	r := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(time.Hour))}}, ok)
	c := newClient(t, Options{AllowLoopback: true, RootCAs: ca.pool, Resolver: resolveTo("127.0.0.1")})
	require.Equal(t, 200, post(t, c, "https://hooks.example:"+r.port()).Status)
}

// What holds for answers holds for those that come by way of a proxy.
func TestProxiedAnswersAreTakenAsTheyAre(t *testing.T) {
	second := serve(t, answers(ok))
	for _, test := range []struct {
		answer, body string
		status       int
	}{
		{"HTTP/1.1 302 Found\r\nLocation: http://" + second.host + "\r\nContent-Length: 0\r\n\r\n", "", 302},
		{"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nzzzzz", "zzzzz", 200},
	} {
		target := serve(t, answers(test.answer))
		proxy := serveProxy(t, target.host, "")
		c := newClient(t, Options{AllowLoopback: true, Proxy: func(*http.Request) (*url.URL, error) {
			return &url.URL{Scheme: "http", Host: proxy.host}, nil
		}})
		a := post(t, c, "http://localhost:"+target.port())
		require.NoError(t, a.Err)
		require.Equal(t, test.status, a.Status)
		require.Equal(t, test.body, string(a.Body))
		require.NotContains(t, *target.lastHead.Load(), "Accept-Encoding")
		require.EqualValues(t, 1, target.requests.Load())
	}
	require.Zero(t, second.accepted.Load())
}

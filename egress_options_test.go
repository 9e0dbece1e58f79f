package webhook_test

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
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

func tlsConfig(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: certificates}
}

func TestAllowLoopback(t *testing.T) {
	r := listen(t, answering(okAnswer))
	w := outside(t, webhook.Config{})
	for i, host := range []string{"127.0.0.1", "localhost", "LOCALHOST"} {
		d, a := w.attempt(int64(i+1), webhook.EndpointParams{URL: "http://" + host + ":" + r.port() + "/"})
		require.Equal(t, webhook.StatusDelivered, d.Status, "%s: %s", host, a.Error)
	}
	// It allows no more than it says.
	for _, raw := range []string{"http://127.0.0.2/", "http://10.0.0.1/", "https://10.0.0.1/", "http://example.com/", "https://169.254.169.254/", "http://a.localhost/"} {
		_, _, err := w.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: raw, Events: []string{"link.*"}})
		invalid(t, err, "url")
	}
	w = dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{AllowLoopback: true, Resolver: resolvesTo("10.0.0.1")}})
	_, a := w.attempt(1, webhook.EndpointParams{URL: "https://inside.example/"})
	require.Equal(t, "the address is not allowed", string(a.Error))
}

func TestAllowPrefixesRootCAsAndResolver(t *testing.T) {
	ca := newAuthority(t)
	r := listenTLS(t, tlsConfig(ca.issue(t, "hooks.example", time.Now().Add(time.Hour))), answering(okAnswer))
	var asked atomic.Int64
	egress := webhook.Egress{
		AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		RootCAs:       ca.pool,
		Resolver: resolverFunc(func(_ context.Context, host string) ([]netip.Addr, error) {
			asked.Add(1)
			switch host {
			case "hooks.example":
				return addresses("127.0.0.1"), nil
			case "other.example":
				return addresses("127.0.0.2"), nil
			case "both.example":
				return addresses("127.0.0.1", "127.0.0.2"), nil
			}
			return nil, errors.New("c4nary: " + host)
		}),
	}
	w := dispatcherOnResolver(t, webhook.Config{Egress: egress})
	for i, c := range []struct{ host, err string }{
		{"hooks.example", ""},
		{"127.0.0.1", ""}, // a literal address, and a certificate for it
		{"other.example", "the address is not allowed"},
		{"both.example", "the address is not allowed"},
		{"unknown.example", "the host name could not be looked up"},
	} {
		d, a := w.attempt(int64(i+1), webhook.EndpointParams{URL: "https://" + c.host + ":" + r.port() + "/"})
		require.Equal(t, c.err, string(a.Error), c.host)
		require.Equal(t, c.err == "", d.Status == webhook.StatusDelivered)
	}
	require.EqualValues(t, 4, asked.Load())
	require.NotContains(t, w.log.String(), "c4nary")
	// Plain http is for loopback, which is another option.
	_, _, err := w.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "http://127.0.0.1/", Events: []string{"link.*"}})
	invalid(t, err, "url")

	egress.RootCAs = nil // the system's, which do not know this authority
	w = dispatcherOnResolver(t, webhook.Config{Egress: egress})
	_, a := w.attempt(1, webhook.EndpointParams{URL: "https://hooks.example:" + r.port() + "/"})
	require.Contains(t, string(a.Error), "TLS: the certificate is not")
	require.EqualValues(t, 2, r.requests.Load())
}

func TestClientCertificate(t *testing.T) {
	ca := newAuthority(t)
	own := ca.issue(t, "hooks.example", time.Now().Add(time.Hour))
	var offered atomic.Int64
	config := tlsConfig(own)
	config.ClientAuth = tls.RequireAnyClientCert
	config.VerifyConnection = func(s tls.ConnectionState) error { offered.Add(int64(len(s.PeerCertificates))); return nil }
	r := listenTLS(t, config, answering(okAnswer))
	egress := webhook.Egress{AllowLoopback: true, RootCAs: ca.pool}
	endpoint := webhook.EndpointParams{URL: "https://hooks.example:" + r.port() + "/"}
	d, _ := dispatcherOnResolver(t, webhook.Config{Egress: egress}).attempt(1, endpoint)
	require.Equal(t, webhook.StatusPending, d.Status)
	require.Zero(t, r.requests.Load())
	egress.Certificates = []tls.Certificate{own}
	d, a := dispatcherOnResolver(t, webhook.Config{Egress: egress}).attempt(1, endpoint)
	require.Equal(t, webhook.StatusDelivered, d.Status, "%s", a.Error)
	require.EqualValues(t, 1, offered.Load())
}

// A proxy that the host names is used, trusted, and never by accident.
func TestProxy(t *testing.T) {
	ca := newAuthority(t)
	target := listenTLS(t, tlsConfig(ca.issue(t, "hooks.example", time.Now().Add(time.Hour))), answering(okAnswer))
	var line atomic.Value
	proxy := accept(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		line.Store(req.Method + " " + req.RequestURI + " " + req.Header.Get("Proxy-Authorization"))
		if req.Host == "refused.example:443" {
			io.WriteString(c, "HTTP/1.1 403 c4nary\r\n\r\n")
			return
		}
		up, err := net.Dial("tcp", target.host)
		if err != nil {
			return
		}
		defer up.Close()
		io.WriteString(c, "HTTP/1.1 200 Connected\r\n\r\n")
		go func() { io.Copy(up, r); up.Close() }()
		io.Copy(c, up)
	})
	var made dials
	w := dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{
		RootCAs: ca.pool,
		Resolver: resolverFunc(func(_ context.Context, host string) ([]netip.Addr, error) {
			require.Equal(t, "direct.example", host, "a proxied name was looked up")
			return addresses("127.0.0.1"), nil
		}),
		Proxy: func(r *http.Request) (*url.URL, error) {
			switch r.URL.Hostname() {
			case "direct.example":
				return nil, nil
			case "fault.example":
				return nil, errors.New("c4nary")
			case "panic.example":
				panic("c4nary")
			}
			return &url.URL{Scheme: "http", Host: proxy.host, User: url.UserPassword("u", "c4nary")}, nil
		},
	}})
	w.DialWith(made.dial) // which is not how one gets to a proxy
	d, a := w.attempt(1, webhook.EndpointParams{URL: "https://hooks.example/"})
	require.Equal(t, webhook.StatusDelivered, d.Status, "%s", a.Error)
	require.Equal(t, "CONNECT hooks.example:443 Basic dTpjNG5hcnk=", line.Load())
	require.EqualValues(t, 1, target.requests.Load())

	// What goes past the proxy is guarded.
	_, a = w.attempt(2, webhook.EndpointParams{URL: "https://direct.example:" + proxy.port() + "/"})
	require.Equal(t, "the address is not allowed", string(a.Error))
	_, _, err := w.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "https://" + proxy.host + "/", Events: []string{"link.*"}})
	invalid(t, err, "url")
	for i, host := range []string{"fault.example", "refused.example"} {
		_, a = w.attempt(int64(3+i), webhook.EndpointParams{URL: "https://" + host + "/"})
		require.Equal(t, "the proxy gave no connection", string(a.Error), host)
	}
	w.endpoint(webhook.EndpointParams{WorkspaceID: 9, URL: "https://panic.example/"})
	w.publish(webhook.Event{WorkspaceID: 9})
	_, err = w.RunOnce(t.Context())
	require.NoError(t, err)
	require.Empty(t, made.list)
	require.EqualValues(t, 2, proxy.accepted.Load())
	require.NotContains(t, w.log.String(), "c4nary")
}

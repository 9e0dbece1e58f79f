// Package egress sends requests to addresses that strangers chose. It is the
// one place in the module that makes an HTTP transport.
//
// What it promises about every request: no connection to an address outside
// the public Internet unless the host allowed it, checked when the connection
// is made; no redirect followed, no cookie sent, no proxy taken from the
// environment, no answer decompressed; one request on the wire for one call
// of [Client.Do]; a bounded share of memory whatever the receiver answers;
// and no error that repeats a URL, an address, a port or a header.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"
)

const (
	// connectLimit bounds name lookup, TCP and TLS together. net/http
	// detaches dials from the request's context, so they need a bound of
	// their own.
	connectLimit = 10 * time.Second

	// idleLimit is below the idle close of common servers (Node: 5 s): a
	// POST on a connection that the other side is closing is a failed
	// attempt.
	idleLimit = 3 * time.Second

	defaultIdlePerHost = 8

	handshakeLimit = 32 << 10 // of what a server may send before TLS is up
	sessionLimit   = 16 << 10 // of what is kept of a TLS session, to resume it

	headerLimit = 64 << 10 // of an answer's status line and headers, 1xx answers included
	headerLines = 1000     // of the same: net/http spends up to 100 bytes on each
	readLimit   = 64 << 10 // of an answer's body
	keepLimit   = 16 << 10 // of what was read
)

// A Resolver looks up host names. [net.Resolver] implements it.
// LookupNetIP must honour ctx and be safe for concurrent use.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options says what a [Client] may reach and how. The zero value reaches the
// public Internet directly over TLS.
type Options struct {
	// AllowLoopback permits 127.0.0.0/8 and ::1, and plain http to the hosts
	// localhost, 127.0.0.1 and [::1]. For local development.
	AllowLoopback bool

	// AllowPrefixes permits addresses that the policy of [Public] refuses.
	// IPv4 and IPv4-mapped IPv6 spellings mean the same.
	AllowPrefixes []netip.Prefix

	// Resolver looks up host names; localhost is never asked of it.
	// Defaults to net.DefaultResolver.
	Resolver Resolver

	// Proxy names the proxy for a request, nil for none; the request it is
	// given is for reading only. Defaults to no proxy: the environment is
	// never consulted. Proxies are trusted, so connections to them pass
	// unchecked, and a proxied host name is the proxy's to look up and to
	// guard; the rules for the URL, literal addresses included, still hold.
	Proxy func(*http.Request) (*url.URL, error)

	// RootCAs verifies servers. Defaults to the system's.
	RootCAs *x509.CertPool

	// Certificates are offered to servers that ask for a client certificate.
	Certificates []tls.Certificate

	// IdlePerHost is how many idle connections are kept per host.
	// Defaults to 8.
	IdlePerHost int

	// Dial opens connections to targets in place of the operating system, in
	// tests. It is given addresses that the guard has passed, to the last check;
	// all that is done over a connection is as ever.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Transport replaces the whole transport, in tests. The rules for the
	// URL, literal addresses included, still hold; Resolver, Proxy, RootCAs,
	// Certificates, IdlePerHost and Dial have no effect.
	Transport http.RoundTripper
}

// A Client sends requests under one set of [Options]. It is safe for
// concurrent use.
type Client struct {
	options   Options
	dialer    *dialer           // nil when Options.Transport is set
	wire      *wire             // likewise
	transport http.RoundTripper // that one, or what speaks to proxies
}

// New returns a Client. It starts no goroutine and opens no connection. The
// error names the option that is not valid.
func New(o Options) (*Client, error) {
	if o.IdlePerHost < 0 {
		return nil, errors.New("IdlePerHost is negative")
	}
	for _, p := range o.AllowPrefixes {
		if !p.IsValid() {
			return nil, errors.New("AllowPrefixes has a prefix that is not valid")
		}
	}
	o.AllowPrefixes = slices.Clone(o.AllowPrefixes)
	perHost := o.IdlePerHost
	if perHost == 0 {
		perHost = defaultIdlePerHost
	}
	c := &Client{options: o, transport: o.Transport}
	if c.transport == nil {
		c.dialer = newDialer(o)
		c.wire = &wire{dial: c.dialer.dial, dialTLS: c.dialer.dialTLS, idle: pool{perHost: perHost}}
		c.transport = newTransport(c.dialer, perHost)
	}
	return c, nil
}

// newTransport returns what speaks to proxies. Requests that go through none do
// not come here.
func newTransport(d *dialer, perHost int) *http.Transport {
	// HTTP/1.1 only: over HTTP/2 one connection is shared by every request
	// to a host, and so is its fate.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  proxyOf,
		OnProxyConnectResponse: checkConnect,
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		TLSClientConfig:        d.tls, // behind a proxy; dialTLS uses it otherwise
		TLSHandshakeTimeout:    connectLimit,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    perHost, // no MaxConnsPerHost: endpoints share hosts
		IdleConnTimeout:        idleLimit,
		MaxResponseHeaderBytes: headerLimit,
		Protocols:              protocols,
	}
}

// Close ends the dials under way, waits for them, and closes idle connections.
// The caller first ends the requests that are running. The Client may be used
// again afterwards.
func (c *Client) Close() {
	if c.wire != nil {
		c.dialer.close()
		c.wire.idle.close()
	}
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// proxyKey is the context key of the proxy chosen for a request. The choice
// travels in the context because net/http hands a dial nothing but that and an
// address, and an address alone does not say whether it is a trusted proxy's
// or a target's.
type proxyKey struct{}

func proxyOf(r *http.Request) (*url.URL, error) { return proxyFrom(r.Context()), nil }

func proxyFrom(ctx context.Context) *url.URL {
	u, _ := ctx.Value(proxyKey{}).(*url.URL)
	return u
}

func checkConnect(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return ProxyFailed
	}
	return nil
}

var _ Resolver = (*net.Resolver)(nil)

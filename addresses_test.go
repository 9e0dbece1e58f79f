package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// resolverFunc is a resolver of the host's.
type resolverFunc func(ctx context.Context, host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return f(ctx, host)
}

func addresses(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParseAddr(text)
	}
	return list
}

func resolvesTo(texts ...string) resolverFunc {
	list := addresses(texts...)
	return func(context.Context, string) ([]netip.Addr, error) { return list, nil }
}

// dispatcherOnResolver is a world in which every name is 127.0.0.1, unless
// config has a resolver.
func dispatcherOnResolver(t testing.TB, config webhook.Config) *world {
	if config.Egress.Resolver == nil {
		config.Egress.Resolver = resolvesTo("127.0.0.1")
	}
	return dispatcherOn(t, memorystore.New(memorystore.Options{}), config)
}

// dials notes the connections a Dispatcher would make, and makes those to the
// loopback interface.
type dials struct {
	mu   sync.Mutex
	list []string
}

// all returns what was dialled.
func (d *dials) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.list = append(d.list, address)
	d.mu.Unlock()
	if to := netip.MustParseAddrPort(address); to.Addr().IsLoopback() {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

const refusedAddresses = `
	127.0.0.1 127.0.0.2 0.0.0.0 0.0.0.1 10.0.0.1 172.16.0.1 192.168.0.1 169.254.169.254
	100.64.0.1 100.100.100.200 168.63.129.16 192.0.0.192 192.0.2.1 198.18.0.1 192.88.99.1 224.0.0.1 239.255.255.250
	240.0.0.1 255.255.255.255 ::1 :: fe80::1 fec0::1 fd00:ec2::254 ::ffff:127.0.0.1 ::127.0.0.1 ::ffff:0:7f00:1
	64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::a9fe:a9fe 2002:7f00:1::1 2001:0:4136:e378:8000:63bf:3fff:fdd2
	2001:db8::1 3fff::1 5f00::1 100::1 100:0:0:1::1 4000::1`

// Of each, the rule that it breaks.
var refusedURLs = map[string]string{
	"https://c4nary:pw@example.com/":        "user name or password",
	"https://c4nary@example.com/":           "user name or password",
	"https://discord.com@c4nary.example/":   "user name or password",
	"https://example.com/#c4nary":           "fragment",
	"http:///c4nary":                        "must have a host",
	"https://?c4nary":                       "must have a host",
	"https://c4nary.example:0/":             "port",
	"https://c4nary.example:99999/":         "port",
	"https://example.com/c4nary\r\nX: y":    "control characters",
	"https://example.com/c4nary\n":          "control characters",
	"https://example.com/c4nary\x00":        "control characters",
	"https://example.com/c4nary b":          "white space",
	" https://c4nary.example/":              "white space",
	"ftp://c4nary.example/":                 "https://",
	"file:///c4nary":                        "https://",
	"javascript:c4nary":                     "https://",
	"http://c4nary.example/":                "https://",
	"https://example.com/c4nary" + longPath: "2048 bytes",
	"https://c4nary..b/":                    "host name",
	"https://-c4nary.com/":                  "host name",
	"http://①②⑦.⓪.⓪.①/c4nary":               "ASCII",
	"https://c4nary.localhost/":             "localhost",
	"https://localhost./c4nary":             "host name",
	"http://localhost/c4nary":               "AllowLoopback",
	"http://127.0.0.1/c4nary":               "AllowLoopback",
	"http://[::1]:8080/c4nary":              "AllowLoopback",
	"https://127.1/c4nary":                  "four decimal numbers",
	"https://2130706433/c4nary":             "four decimal numbers",
	"https://0x7f000001/c4nary":             "four decimal numbers",
	"https://0177.0.0.1/c4nary":             "four decimal numbers",
	"https://0/c4nary":                      "four decimal numbers",
	"https://[fe80::1%25eth0]/c4nary":       "host name",
	"https://example.com/c4nary%zz":         "percent sign",
	"":                                      "empty",
}

var longPath = strings.Repeat("a", 2048)

func TestURLsRefusedAtSave(t *testing.T) {
	refused := map[string]string{}
	for raw, rule := range refusedURLs {
		refused[raw] = rule
	}
	for text := range strings.FieldsSeq(refusedAddresses) {
		if strings.Contains(text, ":") {
			text = "[" + text + "]"
		}
		refused["https://"+text+"/c4nary"] = "address"
	}
	bubble(t, webhook.Config{}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		for raw, rule := range refused {
			p := webhook.EndpointParams{WorkspaceID: workspace, URL: raw, Events: []string{"link.*"}}
			_, _, created := w.CreateEndpoint(w.Context(), p)
			p.Secret = webhook.NewSecret("a-secret-of-another-system")
			_, imported := w.ImportEndpoint(w.Context(), webhook.ImportParams{EndpointParams: p, CreatedAt: time.Now()})
			_, updated := w.UpdateEndpoint(w.Context(), workspace, e.ID, webhook.EndpointUpdate{URL: &raw})
			for _, err := range []error{created, imported, updated} {
				invalid(w, err, "url")
				require.ErrorContains(w, err, rule, "%q", raw)
				require.NotContains(w, err.Error(), "c4nary")
			}
		}
		list, err := w.Endpoints(w.Context(), workspace, 0, 0)
		require.NoError(w, err)
		require.Equal(w, []webhook.Endpoint{e}, list)
		require.NotContains(w, w.log.String(), "c4nary")

		for raw, want := range map[string]string{
			"HTTPS://EXAMPLE.com/A":           "https://example.com/A",
			"https://8.8.8.8/":                "https://8.8.8.8/",
			"https://[2606:4700:4700::1111]/": "https://[2606:4700:4700::1111]/",
		} {
			e, _ := w.endpoint(webhook.EndpointParams{URL: raw})
			require.Equal(w, want, e.URL)
		}
	})
}

func TestEscapesInAPathStayOnTheWire(t *testing.T) {
	r := listen(t, answering(okAnswer))
	w := outside(t, webhook.Config{})
	d, _ := w.attempt(1, webhook.EndpointParams{URL: "http://" + r.host + "/a%0d%0aX-Evil:%20yes//b%2Fc/../d?x=%0d%0a&y[]=1"})
	require.Equal(t, webhook.StatusDelivered, d.Status)
	require.True(t, strings.HasPrefix(string(r.bytes()), "POST /a%0d%0aX-Evil:%20yes//b%2Fc/../d?x=%0d%0a&y[]=1 HTTP/1.1\r\nHost: "+r.host+"\r\n"), "%q", r.bytes())
}

// What is saved under other rules than are in force now is final, and costs no
// connection.
func TestARefusedLiteralIsFinal(t *testing.T) {
	r := accept(t, func(net.Conn) {})
	st := memorystore.New(memorystore.Options{})
	before := dispatcherOn(t, st, webhook.Config{Egress: webhook.Egress{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	before.endpoint(webhook.EndpointParams{URL: "https://" + r.host + "/"})
	w := dispatcherOn(t, st, webhook.Config{})
	w.T = t
	d, a := w.again(workspace)
	require.Equal(t, webhook.StatusFailed, d.Status)
	require.Contains(t, string(a.Error), "loopback")
	require.NotContains(t, string(a.Error), "127.0.0.1")
	require.Zero(t, r.accepted.Load())
}

// A name that leads inside is a failed attempt like any other: a mistake in DNS
// costs a retry, not the event.
func TestNamesThatLeadInside(t *testing.T) {
	r := accept(t, func(net.Conn) {})
	many := make([]netip.Addr, 0, 41)
	for i := range 40 {
		many = append(many, netip.AddrFrom4([4]byte{8, 8, 4, byte(i)}))
	}
	names := map[string][]netip.Addr{
		"mixed.example":  addresses("8.8.8.8", "127.0.0.1"),
		"mixed6.example": addresses("8.8.8.8", "2606:4700:4700::1111", "::1"),
		"last.example":   append(many, netip.MustParseAddr("10.0.0.1")),
	}
	for text := range strings.FieldsSeq(refusedAddresses) {
		names[strings.NewReplacer(":", "-", ".", "-").Replace("x"+text+"x")+".example"] = addresses(text)
	}
	dns := serveNames(t, func(name string) []netip.Addr { return append([]netip.Addr{}, names[name]...) })
	var made dials
	w := dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{Resolver: dns.resolver()}})
	w.DialWith(made.dial)
	workspaceID := int64(0)
	for name := range names {
		workspaceID++
		d, a := w.attempt(workspaceID, webhook.EndpointParams{URL: "https://" + name + ":" + r.port() + "/"})
		require.Equal(t, webhook.StatusPending, d.Status, name)
		require.Equal(t, 1, d.Attempts)
		require.Equal(t, "the address is not allowed", string(a.Error), name)
	}
	_, a := w.attempt(1000, webhook.EndpointParams{URL: "https://nowhere.example/"})
	require.Equal(t, "the host name was not found", string(a.Error))
	require.Empty(t, made.all())
	require.Zero(t, r.accepted.Load())
	for _, text := range []string{"127.0.0.1", "10.0.0.1", "example", r.port()} {
		require.NotContains(t, w.log.String(), text)
	}
}

func TestRebindingGetsNowhere(t *testing.T) {
	r := accept(t, func(net.Conn) {})
	var mu sync.Mutex
	asked := 0
	dns := serveNames(t, func(string) []netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		asked++ // for IPv4 and for IPv6 addresses
		if asked <= 2 {
			return addresses("8.8.8.8")
		}
		return addresses("127.0.0.1")
	})
	var made dials
	w := dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{Resolver: dns.resolver()}})
	w.DialWith(made.dial)
	w.endpoint(webhook.EndpointParams{URL: "https://rebind.example:" + r.port() + "/"})
	var errs []string
	for range 3 {
		_, a := w.again(workspace)
		errs = append(errs, string(a.Error))
	}
	require.Equal(t, []string{"connection refused", "the address is not allowed", "the address is not allowed"}, errs)
	require.Equal(t, []string{"8.8.8.8:" + r.port()}, made.all(), "what was looked up and vetted is what is dialled")
	require.Equal(t, 3, dns.asked("rebind.example"), "one lookup for each attempt")
	require.Zero(t, r.accepted.Load())
}

func TestAtMostEightAddressesAreTried(t *testing.T) {
	var many []netip.Addr
	for i := range 500 {
		many = append(many, netip.AddrFrom4([4]byte{8, 8, byte(i >> 8), byte(i)}))
	}
	dns := serveNames(t, func(string) []netip.Addr { return many })
	var made dials
	w := dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{Resolver: dns.resolver()}})
	w.DialWith(made.dial)
	d, a := w.attempt(1, webhook.EndpointParams{URL: "https://many.example/"})
	require.Equal(t, webhook.StatusPending, d.Status)
	require.Equal(t, "connection refused", string(a.Error))
	require.Len(t, made.all(), 8)

	// Silent ones share the time, they do not multiply it.
	piped(t, webhook.Config{Egress: webhook.Egress{Resolver: resolverFunc(func(context.Context, string) ([]netip.Addr, error) { return many, nil })}},
		func(w *world, _ *pipes) {
			w.DialWith(func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() })
			start := time.Now()
			_, a := w.attempt(1, webhook.EndpointParams{URL: "https://many.example/"})
			require.Equal(w, "no connection within the time limit", string(a.Error))
			require.Equal(w, 10*time.Second, time.Since(start))
		})
}

func TestSilentNameserver(t *testing.T) {
	dns := serveNames(t, func(string) []netip.Addr { return addresses("8.8.8.8") })
	_, err := dns.resolver().LookupNetIP(t.Context(), "ip", "hooks.example") // what package net keeps is not of the bubble
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		defer group.Wait()
		silent := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			group.Go(func() { io.Copy(io.Discard, theirs); theirs.Close() })
			return ours, nil
		}}
		w := dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{Resolver: silent}})
		start := time.Now()
		d, a := w.attempt(1, webhook.EndpointParams{URL: "https://hooks.example/"})
		require.LessOrEqual(t, time.Since(start), 10*time.Second)
		require.Greater(t, time.Since(start), 5*time.Second)
		require.Equal(t, webhook.StatusPending, d.Status)
		require.Equal(t, "no connection within the time limit", string(a.Error))
	})
}

// The environment is read once for a process, so this takes one of its own.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	const child = "WEBHOOK_TEST_PROXIED"
	if os.Getenv(child) == "" {
		recorder := accept(t, func(net.Conn) {})
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), child+"=1", "NO_PROXY=", "no_proxy=", "REQUEST_METHOD=")
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
			cmd.Env = append(cmd.Env, name+"=http://"+recorder.host)
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "PASS")
		require.Zero(t, recorder.accepted.Load())
		return
	}
	for _, scheme := range []string{"http", "https"} {
		u, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "hooks.example"}})
		require.NoError(t, err)
		require.NotNil(t, u, "the environment names no proxy")
	}
	ca := newAuthority(t)
	r := listenTLS(t, tlsConfig(ca.issue(t, "hooks.example", time.Now().Add(time.Hour))), answering(okAnswer))
	w := dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{AllowLoopback: true, RootCAs: ca.pool}})
	d, a := w.attempt(1, webhook.EndpointParams{URL: fmt.Sprintf("https://hooks.example:%s/", r.port())})
	require.Equal(t, webhook.StatusDelivered, d.Status, "%s", a.Error)
	plain := listen(t, answering(okAnswer))
	d, a = w.attempt(2, webhook.EndpointParams{URL: "http://localhost:" + plain.port() + "/"})
	require.Equal(t, webhook.StatusDelivered, d.Status, "%s", a.Error)
}

package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// tap makes c's guard report every address it lets pass, and what f answers
// decides whether the connection is made.
func tap(c *Client, f func(ctx context.Context, addr string) error) {
	guard := c.dialer.control
	c.dialer.guarded.Control = nil
	c.dialer.guarded.ControlContext = func(ctx context.Context, network, address string, raw syscall.RawConn) error {
		if err := guard(network, address, raw); err != nil {
			return err
		}
		return f(ctx, address)
	}
}

var errUnreachable = &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}

func TestNamesThatResolveInside(t *testing.T) {
	r := serveConns(t, func(net.Conn) {})
	var dialled atomic.Int64
	for name, addrs := range map[string][]string{
		"loopback":         {"127.0.0.1"},
		"mapped":           {"::ffff:127.0.0.1"},
		"private":          {"10.0.0.1"},
		"metadata":         {"fd00:ec2::254"},
		"zone":             {"fe80::1%lo"},
		"mixed":            {"8.8.8.8", "127.0.0.1"},
		"mixed, last":      {"8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::1"},
		"beyond the eight": {"8.8.0.1", "8.8.0.2", "8.8.0.3", "8.8.0.4", "8.8.0.5", "8.8.0.6", "8.8.0.7", "8.8.0.8", "127.0.0.1"},
		"the zero Addr":    nil,
	} {
		resolver := resolveTo(addrs...)
		if addrs == nil {
			resolver = func(context.Context, string) ([]netip.Addr, error) { return make([]netip.Addr, 1), nil }
		}
		c := newClient(t, Options{Resolver: resolver})
		tap(c, func(context.Context, string) error { dialled.Add(1); return errUnreachable })
		a := post(t, c, "https://inside.example:"+r.port())
		require.Equal(t, AddressRefused, a.Err, name)
		require.EqualError(t, a.Err, "the address is not allowed")
		require.True(t, a.Refused)
		require.False(t, a.Final, "a DNS mistake may be put right")
	}
	require.Zero(t, dialled.Load())
	require.Zero(t, r.accepted.Load())
}

func TestRebinding(t *testing.T) {
	r := serveConns(t, func(net.Conn) {})
	var lookups, dialled atomic.Int64
	c := newClient(t, Options{Resolver: resolverFunc(func(context.Context, string) ([]netip.Addr, error) {
		if lookups.Add(1)%2 == 1 {
			return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	})})
	tap(c, func(_ context.Context, address string) error {
		require.Equal(t, "8.8.8.8:"+r.port(), address)
		dialled.Add(1)
		return errUnreachable
	})
	for i := range 6 {
		a := post(t, c, "https://rebind.example:"+r.port())
		require.Equal(t, []error{Unreachable, AddressRefused}[i%2], a.Err)
	}
	require.EqualValues(t, 3, dialled.Load(), "an address was looked up but not the one dialled")
	require.EqualValues(t, 6, lookups.Load())
	require.Zero(t, r.accepted.Load())
}

// The dial hook is the last line: even if vetting were skipped, it refuses.
func TestControl(t *testing.T) {
	d := newDialer(local)
	for _, address := range []string{"127.0.0.1:80", "[::1]:80", "8.8.8.8:1", "[::ffff:127.0.0.1]:80", "[2606:4700:4700::1111]:443"} {
		require.NoError(t, d.control("tcp", address, nil), address)
	}
	for _, address := range []string{
		"127.0.0.1%lo:80", "[::1%lo]:80", "[fe80::1%eth0]:80", "10.0.0.1:80", "", ":80", "127.0.0.1", "localhost:80", "[", "::1:80", "/run/x.sock", "8.8.8.8:x", "\x00",
	} {
		require.Equal(t, AddressRefused, d.control("tcp", address, nil), address)
	}
	_, err := d.connectTo(t.Context(), netip.MustParseAddr("10.0.0.1"), "80")
	require.ErrorIs(t, err, AddressRefused)
	for _, address := range []string{"", "a", "a:b:c", "[::1"} {
		_, err := d.connect(t.Context(), "tcp", address)
		require.Equal(t, AddressRefused, err)
	}
}

func TestAtMostEightDials(t *testing.T) {
	var addrs []string
	for i := range 500 {
		addrs = append(addrs, fmt.Sprintf("8.8.%d.%d", i/250, i%250), "8.8.8.8")
	}
	addrs = append(addrs, "2606:4700:4700::1111")
	c := newClient(t, Options{Resolver: resolveTo(addrs...)})
	var mu sync.Mutex
	var dialled []string
	tap(c, func(_ context.Context, address string) error {
		mu.Lock()
		defer mu.Unlock()
		dialled = append(dialled, address)
		return errUnreachable
	})
	require.Equal(t, Unreachable, post(t, c, "https://many.example").Err)
	require.Len(t, dialled, maxDials)
	require.Equal(t, "8.8.0.0:443", dialled[0])
	require.Contains(t, dialled, "[2606:4700:4700::1111]:443")
}

// Several silent addresses share the time; they do not multiply it.
func TestSilentAddresses(t *testing.T) {
	c := newClient(t, local)
	c.dialer.limit = 100 * time.Millisecond
	var dials atomic.Int64
	tap(c, func(ctx context.Context, _ string) error { dials.Add(1); <-ctx.Done(); return ctx.Err() })
	a := c.Do(t.Context(), newRequest(t, c, "http://localhost"), nil)
	require.Equal(t, ConnectTimeout, a.Err)
	require.True(t, a.TimedOut)
	require.NotZero(t, dials.Load())
}

// Plain http to localhost must stay on the machine whatever DNS says.
func TestLocalhostIsNotLookedUp(t *testing.T) {
	r := serve(t, answers(ok))
	c := newClient(t, Options{AllowLoopback: true, Resolver: resolverFunc(func(context.Context, string) ([]netip.Addr, error) {
		t.Error("localhost was looked up")
		return nil, nil
	})})
	require.Equal(t, 200, post(t, c, "http://localhost:"+r.port()).Status)
}

func TestAllowedPrefix(t *testing.T) {
	r := serve(t, answers(ok))
	c := newClient(t, Options{AllowPrefixes: prefixes("127.0.0.1/32"), Resolver: resolveTo("127.0.0.1")})
	conn, err := c.dialer.dial(t.Context(), "tcp", "internal.example:"+r.port())
	require.NoError(t, err)
	conn.Close()
	c = newClient(t, Options{AllowPrefixes: prefixes("127.0.0.1/32"), Resolver: resolveTo("127.0.0.1", "127.0.0.2")})
	require.Equal(t, AddressRefused, post(t, c, "https://internal.example:"+r.port()).Err)
}

func TestLookupFailures(t *testing.T) {
	for _, test := range []struct {
		failure  Failure
		resolver resolverFunc
	}{
		{NameNotFound, func(_ context.Context, host string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", Name: host, Server: "127.0.0.1:53", IsNotFound: true}
		}},
		{NameNotFound, func(context.Context, string) ([]netip.Addr, error) { return nil, nil }},
		{ConnectTimeout, func(_ context.Context, host string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
		}},
		{LookupFailed, func(_ context.Context, host string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "server misbehaving", Name: host, Server: "127.0.0.1:53", IsTemporary: true}
		}},
		{LookupFailed, func(_ context.Context, host string) ([]netip.Addr, error) { return nil, errors.New(host + canary) }},
		{LookupFailed, func(context.Context, string) ([]netip.Addr, error) { panic("resolver") }},
	} {
		require.Equal(t, test.failure, post(t, newClient(t, Options{Resolver: test.resolver}), "https://hooks.example").Err)
	}
}

// net/http detaches a dial from its request, so the dial has its own bound.
func TestSilentResolver(t *testing.T) {
	silent := resolverFunc(func(ctx context.Context, _ string) ([]netip.Addr, error) { <-ctx.Done(); return nil, ctx.Err() })
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{Resolver: silent})
		req := newRequest(t, c, "https://hooks.example")
		start := time.Now()
		a := do(t, t.Context(), c, req, nil)
		require.Equal(t, ConnectTimeout, a.Err)
		require.Equal(t, connectLimit, time.Since(start))
		require.Equal(t, connectLimit, a.Latency)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, ConnectTimeout, do(t, ctx, c, req, nil).Err)
		require.Equal(t, connectLimit+time.Second, time.Since(start))
		c.Close()
		require.Equal(t, connectLimit+time.Second, time.Since(start), "Close waited for the dial's bound")
		synctest.Wait()
	})
}

func TestCloseEndsDials(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	c := newClient(t, Options{Resolver: resolverFunc(func(ctx context.Context, _ string) ([]netip.Addr, error) {
		close(entered)
		<-ctx.Done()
		time.Sleep(50 * time.Millisecond) // Close must wait for this
		close(left)
		return nil, ctx.Err()
	})})
	done := make(chan Answer)
	req := newRequest(t, c, "https://hooks.example")
	go func() { done <- c.Do(context.Background(), req, nil) }()
	<-entered
	c.Close()
	select {
	case <-left:
	default:
		t.Error("Close returned before the dial")
	}
	require.Equal(t, Cancelled, (<-done).Err)
}

func TestCloseAndGoOn(t *testing.T) {
	r := serve(t, answers(ok))
	c := newClient(t, local)
	for i := range int64(3) {
		require.Equal(t, 200, post(t, c, "http://"+r.host).Status)
		require.Equal(t, 200, post(t, c, "http://"+r.host).Status)
		require.Equal(t, i+1, r.accepted.Load(), "Close left a connection open")
		c.Close()
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				c.Do(context.Background(), Request{URL: newRequest(t, c, "http://"+r.host).URL}, nil)
				c.Close()
			}
		})
	}
	group.Wait()
}

func TestIdleConnections(t *testing.T) {
	var inside sync.WaitGroup
	inside.Add(5)
	r := serve(t, func(c net.Conn, n int64) bool {
		if n <= 5 {
			inside.Done()
			inside.Wait() // five at once
		}
		_, err := io.WriteString(c, ok)
		return err == nil
	})
	c := newClient(t, Options{AllowLoopback: true, IdlePerHost: 3})
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() { post(t, c, "http://"+r.host) })
	}
	group.Wait()
	require.EqualValues(t, 5, r.accepted.Load())

	transport := c.transport.(*http.Transport)
	require.Equal(t, 3, transport.MaxIdleConnsPerHost)
	require.Zero(t, transport.MaxConnsPerHost)
	require.Equal(t, 3*time.Second, transport.IdleConnTimeout)
	require.True(t, transport.DisableCompression)
	require.EqualValues(t, 64<<10, transport.MaxResponseHeaderBytes)
	require.Equal(t, "{HTTP1}", transport.Protocols.String())
	require.True(t, slices.Equal([]string{"http/1.1"}, transport.TLSClientConfig.NextProtos))
}

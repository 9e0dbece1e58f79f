package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// loopbacks is what localhost means, whatever a resolver would say
// (RFC 6761 §6.3): plain http to it must not leave the machine.
var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// A dialer opens connections to allowed addresses only.
type dialer struct {
	options  Options
	resolver Resolver
	tls      *tls.Config
	guarded  net.Dialer
	trusted  net.Dialer    // to proxies
	limit    time.Duration // connectLimit

	mu      sync.Mutex
	current *generation
	proxied map[*proxyConn]struct{} // open connections to proxies
}

// A generation is the dials begun between one close and the next. With one
// for each, close waits for a group that nothing joins any more.
type generation struct {
	ctx    context.Context
	cancel context.CancelFunc
	dials  sync.WaitGroup
}

func newGeneration() *generation {
	ctx, cancel := context.WithCancel(context.Background())
	return &generation{ctx: ctx, cancel: cancel}
}

func newDialer(o Options) *dialer {
	d := &dialer{
		options:  o,
		resolver: o.Resolver,
		limit:    connectLimit,
		tls: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			RootCAs:      o.RootCAs,
			Certificates: o.Certificates,
			NextProtos:   []string{"http/1.1"},
			// Connections are short-lived (idleLimit), so a receiver that
			// hears from us now and then is spared most of the handshake.
			ClientSessionCache: smallSessions{tls.NewLRUClientSessionCache(256)},
		},
		current: newGeneration(),
		proxied: make(map[*proxyConn]struct{}),
	}
	if d.resolver == nil {
		d.resolver = net.DefaultResolver
	}
	d.guarded.Control = d.control
	return d
}

// dial opens a plain connection.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, done := d.begin(ctx)
	defer done()
	return d.connect(ctx, network, address)
}

// dialTLS opens one with TLS. It does the handshake itself so
// that lookup, TCP and TLS share one bound, and a fault of TLS is known as one.
func (d *dialer) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, done := d.begin(ctx)
	defer done()
	raw, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := d.tls.Clone()
	config.ServerName, _, _ = net.SplitHostPort(address)
	shaking := &handshakeConn{Conn: raw, left: handshakeLimit}
	conn := tls.Client(shaking, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, handshakeError{err}
	}
	shaking.done = true
	return conn, nil
}

// A handshakeConn bounds what a TLS handshake reads. A server may send a
// thousand certificates, and crypto/tls parses them all before it looks at one,
// into fifteen times the memory. Chains that are meant seriously have 3 to 8 KiB.
type handshakeConn struct {
	net.Conn
	left int
	done bool
}

// NetConn returns the connection underneath, as that of TLS does.
func (c *handshakeConn) NetConn() net.Conn { return c.Conn }

func (c *handshakeConn) Read(p []byte) (int, error) {
	if c.done {
		return c.Conn.Read(p)
	}
	if c.left == 0 {
		return 0, ChainTooLong
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// smallSessions keeps sessions that are not too large to keep: tickets and
// chains are as long as a server likes.
type smallSessions struct{ tls.ClientSessionCache }

func (c smallSessions) Put(key string, session *tls.ClientSessionState) {
	if session != nil && !small(session) {
		session = nil // nor may it replace one that is
	}
	c.ClientSessionCache.Put(key, session)
}

func small(session *tls.ClientSessionState) bool {
	ticket, state, err := session.ResumptionState()
	if err != nil || len(ticket) > sessionLimit {
		return false
	}
	b, err := state.Bytes()
	return err == nil && len(ticket)+len(b) <= sessionLimit
}

// begin registers a dial and bounds it: in time, and by close.
func (d *dialer) begin(ctx context.Context) (_ context.Context, done func()) {
	d.mu.Lock()
	g := d.current
	g.dials.Add(1)
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	stop := context.AfterFunc(g.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		g.dials.Done()
	}
}

// close ends the dials under way, waits for them, and closes the connections
// to proxies.
func (d *dialer) close() {
	d.mu.Lock()
	g := d.current
	d.current = newGeneration()
	d.mu.Unlock()
	g.cancel()
	g.dials.Wait()

	d.mu.Lock()
	conns := d.proxied
	d.proxied = make(map[*proxyConn]struct{})
	d.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if proxyFrom(ctx) != nil {
		return d.connectProxy(ctx, network, address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, AddressRefused
	}
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	return race(ctx, addrs, func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
		return d.connectTo(ctx, addr, port)
	})
}

// resolve returns the addresses of host to try, in that order. One address
// that is not allowed spoils them all: a name that points inside as well as
// outside is an attack or a mistake.
func (d *dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	if literal, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{literal}
	} else if host == "localhost" {
		addrs = loopbacks
	} else if addrs, err = d.lookup(ctx, host); err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if !d.options.allowed(addr) {
			return nil, AddressRefused
		}
	}
	if len(addrs) == 0 {
		return nil, NameNotFound
	}
	return interleave(addrs), nil
}

func (d *dialer) lookup(ctx context.Context, host string) (addrs []netip.Addr, err error) {
	defer func() {
		// The transport looks up on a goroutine of its own, where a panic of
		// the host's resolver would end the process.
		if recover() != nil {
			addrs, err = nil, LookupFailed
		}
	}()
	addrs, err = d.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, lookupFailure(ctx, err)
	}
	return addrs, nil
}

func (d *dialer) connectTo(ctx context.Context, addr netip.Addr, port string) (net.Conn, error) {
	address := net.JoinHostPort(addr.String(), port)
	if d.options.Dial != nil {
		if err := d.control("tcp", address, nil); err != nil {
			return nil, err
		}
		return d.options.Dial(ctx, "tcp", address)
	}
	return d.guarded.DialContext(ctx, "tcp", address)
}

// control has the last word on every guarded connection: it sees the very
// address the kernel is about to connect to.
func (d *dialer) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil || !d.options.allowed(target.Addr()) {
		return AddressRefused
	}
	return nil
}

// connectProxy connects to a proxy the host named. Such connections are kept
// track of, because net/http goes on with them (CONNECT, then TLS) on its own,
// and close must be able to end that too.
func (d *dialer) connectProxy(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := d.trusted.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := &proxyConn{Conn: raw, dialer: d}
	d.mu.Lock()
	d.proxied[conn] = struct{}{}
	d.mu.Unlock()
	return conn, nil
}

type proxyConn struct {
	net.Conn
	dialer *dialer
}

func (c *proxyConn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.proxied, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

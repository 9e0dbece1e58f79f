package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// The receivers here are bare connections: they can do what no HTTP server does.

// wireTap notes what receivers get.
type wireTap struct {
	accepted atomic.Int64
	requests atomic.Int64
	read     atomic.Int64 // bytes that the sender took from its side of a pipe

	mu   sync.Mutex
	wire bytes.Buffer // all bytes of requests
	at   []time.Time  // of whole requests
}

// times are when requests had arrived.
func (w *wireTap) times() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]time.Time(nil), w.at...)
}

func (w *wireTap) bytes() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.wire.Bytes())
}

func (w *wireTap) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wire.Write(p)
}

// A replier answers the n-th request, which was read with its body, and says
// whether to read another on this connection.
type replier func(c net.Conn, n int64) (more bool)

// handler makes a replier into one for connections.
func (w *wireTap) handler(reply replier) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(io.TeeReader(c, w))
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			w.mu.Lock()
			w.at = append(w.at, time.Now())
			w.mu.Unlock()
			if !reply(c, w.requests.Add(1)) {
				return
			}
		}
	}
}

// answering is a replier that writes text.
func answering(text string) replier {
	return func(c net.Conn, _ int64) bool {
		_, err := io.WriteString(c, text)
		return err == nil
	}
}

// closing is one that closes the connection after that.
func closing(text string) replier {
	return func(c net.Conn, _ int64) bool {
		_, _ = io.WriteString(c, text)
		return false
	}
}

// flood writes text, and then more for as long as it is taken.
func flood(text, more string) replier {
	for len(more) < 32<<10 {
		more += more
	}
	return func(c net.Conn, _ int64) bool {
		_, err := io.WriteString(c, text)
		for err == nil {
			_, err = io.WriteString(c, more)
		}
		return false
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// A socket is a receiver on the loopback interface.
type socket struct {
	wireTap
	host string // host:port
}

func (s *socket) port() string { _, port, _ := net.SplitHostPort(s.host); return port }

// listen starts a receiver that replies.
func listen(t testing.TB, reply replier) *socket {
	s := &socket{}
	s.serve(t, nil, s.handler(reply))
	return s
}

// listenTLS is listen with TLS.
func listenTLS(t testing.TB, config *tls.Config, reply replier) *socket {
	s := &socket{}
	s.serve(t, config, s.handler(reply))
	return s
}

// accept starts a receiver that is handed bare connections.
func accept(t testing.TB, handle func(net.Conn)) *socket {
	s := &socket{}
	s.serve(t, nil, handle)
	return s
}

func (s *socket) serve(t testing.TB, config *tls.Config, handle func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.host = l.Addr().String()
	var open sync.Map
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			open.Store(c, nil)
			group.Go(func() {
				defer open.Delete(c)
				defer c.Close()
				if config != nil {
					handle(tls.Server(c, config))
				} else {
					handle(c)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		finished := make(chan struct{})
		go func() { group.Wait(); close(finished) }()
		for { // a connection may still be on its way in
			open.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
			select {
			case <-finished:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

// outside returns a Dispatcher that is not running, on a memory store, with the
// real network, of which it may reach the loopback interface.
func outside(t testing.TB, config webhook.Config) *world {
	config.Egress.AllowLoopback = true
	return dispatcherOn(t, memorystore.New(memorystore.Options{}), config)
}

// dispatcherOn makes a world with the network that config says.
func dispatcherOn(t testing.TB, st store.Store, config webhook.Config) *world {
	w := &world{store: st, net: &network{}, log: &logged{}, stop: func() {}}
	w.T, _ = t.(*testing.T)
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var err error
	w.Dispatcher, err = webhook.New(st, config)
	require.NoError(t, err)
	return w
}

// attempt publishes an event of a workspace of its own to an endpoint of its own
// and makes one pass.
func (w *world) attempt(workspaceID int64, p webhook.EndpointParams) (webhook.Delivery, webhook.Attempt) {
	w.Helper()
	p.WorkspaceID = workspaceID
	w.endpoint(p)
	return w.again(workspaceID)
}

// again publishes another event and makes one pass.
func (w *world) again(workspaceID int64) (webhook.Delivery, webhook.Attempt) {
	w.Helper()
	id := w.publish(webhook.Event{WorkspaceID: workspaceID}).DeliveryIDs[0]
	_, err := w.RunOnce(w.Context())
	require.NoError(w, err)
	d, err := w.Delivery(w.Context(), workspaceID, id)
	require.NoError(w, err)
	list, err := w.Attempts(w.Context(), workspaceID, id)
	require.NoError(w, err)
	require.Len(w, list, 1)
	return d, list[0]
}

// pipes is a network in memory: it has no time of its own, so that in a bubble
// everything happens at an exact instant.
type pipes struct {
	wireTap
	handle func(net.Conn)
	closed chan time.Time // when the sender closed a connection
	group  sync.WaitGroup
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	p.accepted.Add(1)
	ours, theirs := net.Pipe()
	p.group.Go(func() {
		defer theirs.Close()
		p.handle(theirs)
	})
	return &pipeEnd{Conn: ours, p: p}, nil
}

type pipeEnd struct {
	net.Conn
	p    *pipes
	once sync.Once
}

func (e *pipeEnd) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	e.p.read.Add(int64(n))
	return n, err
}

func (e *pipeEnd) Close() error {
	e.once.Do(func() {
		select {
		case e.p.closed <- time.Now():
		default:
		}
	})
	return e.Conn.Close()
}

// piped runs a test in a bubble with a Dispatcher whose connections are pipes. It
// is not running yet, and may reach the loopback addresses.
func piped(t *testing.T, config webhook.Config, test func(w *world, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := outside(t, config)
		p := &pipes{closed: make(chan time.Time, 1000)}
		w.DialWith(p.dial)
		defer func() {
			w.stop()
			p.group.Wait()
		}()
		test(w, p)
	})
}

// pipeURL is an endpoint behind a pipe.
const pipeURL = "http://127.0.0.1/hooks"

// anAuthority issues certificates.
type anAuthority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *anAuthority {
	a := &anAuthority{pool: x509.NewCertPool()}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.pool.AddCert(a.cert)
	return a
}

// issue makes a certificate for a name and 127.0.0.1.
func (a *anAuthority) issue(t testing.TB, name string, notAfter time.Time) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter, DNSNames: []string{name},
	}
	if name == "hooks.example" {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

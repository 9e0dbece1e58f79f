package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An authority issues certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	a := &authority{pool: x509.NewCertPool()}
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

func (a *authority) issue(t testing.TB, name string, notAfter time.Time) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter,
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveTLS starts a receiver that answers over TLS.
func serveTLS(t testing.TB, config *tls.Config, answer string) *receiver {
	r := &receiver{}
	r.listen(t, config, func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			r.requests.Add(1)
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
	return r
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	hour := time.Now().Add(time.Hour)
	good := []tls.Certificate{ca.issue(t, "hooks.example", hour)}
	for _, test := range []struct {
		name    string
		config  *tls.Config
		failure error
	}{
		{"good", &tls.Config{Certificates: good}, nil},
		{"HTTP/2 offered", &tls.Config{Certificates: good, NextProtos: []string{"h2", "http/1.1"}}, nil},
		{"TLS 1.2", &tls.Config{Certificates: good, MaxVersion: tls.VersionTLS12}, nil},
		{"TLS 1.1", &tls.Config{Certificates: good, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, HandshakeFailed},
		{"no HTTP", &tls.Config{Certificates: good, NextProtos: []string{"x"}}, HandshakeFailed},
		{"expired", &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(-time.Minute))}}, CertificateExpired},
		{"wrong host", &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "other.example", hour)}}, CertificateHost},
		{"not trusted", &tls.Config{Certificates: []tls.Certificate{newAuthority(t).issue(t, "hooks.example", hour)}}, CertificateUntrusted},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := serveTLS(t, test.config, ok)
			c := newClient(t, Options{AllowLoopback: true, Resolver: resolveTo("127.0.0.1"), RootCAs: ca.pool})
			a := post(t, c, "https://hooks.example:"+r.port())
			require.Equal(t, test.failure, a.Err)
			require.EqualValues(t, 1, r.accepted.Load())
			if test.failure != nil {
				require.Zero(t, r.requests.Load(), "a body was sent")
				return
			}
			require.Equal(t, 200, a.Status)
			require.Equal(t, 200, post(t, c, "https://hooks.example:"+r.port()).Status)
			require.EqualValues(t, 1, r.accepted.Load())
			require.EqualValues(t, 2, r.requests.Load())
			if test.name == "good" { // a literal address is verified as one
				require.Equal(t, 200, post(t, c, "https://127.0.0.1:"+r.port()).Status)
			}
		})
	}
}

func TestSystemRootsAreTheDefault(t *testing.T) {
	r := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{newAuthority(t).issue(t, "hooks.example", time.Now().Add(time.Hour))}}, ok)
	c := newClient(t, Options{AllowLoopback: true, Resolver: resolveTo("127.0.0.1")})
	require.Contains(t, []error{CertificateUntrusted, CertificateInvalid}, post(t, c, "https://hooks.example:"+r.port()).Err)
	require.Zero(t, r.requests.Load())
}

func TestClientCertificate(t *testing.T) {
	ca := newAuthority(t)
	own := ca.issue(t, "hooks.example", time.Now().Add(time.Hour))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		r := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: version}, ok)
		options := Options{AllowLoopback: true, Resolver: resolveTo("127.0.0.1"), RootCAs: ca.pool}
		a := post(t, newClient(t, options), "https://hooks.example:"+r.port())
		// In TLS 1.3 the refusal follows the handshake and may be lost to a reset.
		require.Contains(t, []error{HandshakeFailed, ConnectionReset}, a.Err)
		require.Zero(t, r.requests.Load())
		options.Certificates = []tls.Certificate{own}
		require.Equal(t, 200, post(t, newClient(t, options), "https://hooks.example:"+r.port()).Status)
	}
}

func TestNotTLS(t *testing.T) {
	r := serveConns(t, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	c := newClient(t, local)
	require.Equal(t, HandshakeFailed, post(t, c, "https://"+r.host).Err)
}

func TestSilentHandshake(t *testing.T) {
	r := serveConns(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	c := newClient(t, local)
	c.dialer.limit = 100 * time.Millisecond // lookup, TCP and TLS together
	a := post(t, c, "https://"+r.host)
	require.Equal(t, ConnectTimeout, a.Err)

	c = newClient(t, local)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Equal(t, ConnectTimeout, do(t, ctx, c, newRequest(t, c, "https://"+r.host), nil).Err)
}

// With few requests a new connection each time is the rule, so a session is
// taken up again instead of verified anew.
func TestSessionsAreResumed(t *testing.T) {
	ca := newAuthority(t)
	resumed := make(chan bool, 2)
	r := serveTLS(t, &tls.Config{
		Certificates:     []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(time.Hour))},
		VerifyConnection: func(s tls.ConnectionState) error { resumed <- s.DidResume; return nil },
	}, ok)
	c := newClient(t, Options{AllowLoopback: true, Resolver: resolveTo("127.0.0.1"), RootCAs: ca.pool})
	for _, want := range []bool{false, true} {
		require.Equal(t, 200, post(t, c, "https://hooks.example:"+r.port()).Status)
		require.Equal(t, want, <-resumed)
		c.Close()
	}
}

// padded is a certificate with others behind it that have nothing to do with
// it, of about so many bytes in all.
func (a *authority) padded(t testing.TB, name string, bytes int) tls.Certificate {
	cert := a.issue(t, name, time.Now().Add(time.Hour))
	size := len(cert.Certificate[0])
	for i := int64(3); ; i++ {
		template := &x509.Certificate{SerialNumber: big.NewInt(i), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
		require.NoError(t, err)
		if size += len(der); size > bytes {
			return cert
		}
		cert.Certificate = append(cert.Certificate, der)
	}
}

func TestLongChains(t *testing.T) {
	ca := newAuthority(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for size, failure := range map[int]error{24 << 10: nil, 40 << 10: ChainTooLong, 200 << 10: ChainTooLong} {
			r := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.padded(t, "hooks.example", size)}, MaxVersion: version}, ok)
			c := newClient(t, Options{AllowLoopback: true, Resolver: resolveTo("127.0.0.1"), RootCAs: ca.pool})
			for range 2 {
				require.Equal(t, failure, post(t, c, "https://hooks.example:"+r.port()).Err, "%d bytes", size)
			}
			if failure != nil {
				require.Zero(t, r.requests.Load(), "a body was sent")
			}
		}
	}
}

// What a server hands out for resumption stays in memory: it must be small.
func TestLargeSessionsAreNotKept(t *testing.T) {
	ca := newAuthority(t)
	for _, test := range []struct {
		name          string
		ticket, chain int
		resumed       bool
	}{
		{"small", 1 << 10, 0, true},
		{"a large ticket", 40 << 10, 0, false},
		{"a long chain", 1 << 10, 24 << 10, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			resumed := make(chan bool, 3)
			config := &tls.Config{
				Certificates:     []tls.Certificate{ca.padded(t, "hooks.example", test.chain)},
				VerifyConnection: func(s tls.ConnectionState) error { resumed <- s.DidResume; return nil },
			}
			config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
				session.Extra = append(session.Extra, make([]byte, test.ticket))
				return config.EncryptTicket(state, session)
			}
			config.UnwrapSession = config.DecryptTicket
			r := serveTLS(t, config, ok)
			c := newClient(t, Options{AllowLoopback: true, Resolver: resolveTo("127.0.0.1"), RootCAs: ca.pool})
			for i := range 3 {
				require.Equal(t, 200, post(t, c, "https://hooks.example:"+r.port()).Status)
				require.Equal(t, i > 0 && test.resumed, <-resumed)
				c.Close()
			}
		})
	}
}

package egress

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A kept-alive connection that dies under a request is where net/http is
// tempted to send it again.
func TestOneRequestPerCall(t *testing.T) {
	for name, die := range map[string]func(net.Conn){
		"close": func(net.Conn) {},
		"reset": func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) },
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, func(c net.Conn, n int64) bool {
				if n%2 == 0 {
					die(c)
					return false
				}
				_, err := io.WriteString(c, ok)
				return err == nil
			})
			c := newClient(t, local)
			req := newRequest(t, c, "http://"+r.host)
			// Even were a caller to break the rule, there is no body to rewind.
			req.Header = http.Header{"Idempotency-Key": {"a"}, "X-Idempotency-Key": {"a"}}
			for i := range int64(20) {
				a := do(t, t.Context(), c, req, nil)
				if i%2 == 0 {
					require.NoError(t, a.Err)
				} else {
					require.Contains(t, []error{ConnectionClosed, ConnectionReset}, a.Err)
				}
				require.Equal(t, i+1, r.requests.Load())
			}
			require.EqualValues(t, 10, r.accepted.Load())
		})
	}
}

func TestResetAfterRequest(t *testing.T) {
	r := serve(t, func(c net.Conn, _ int64) bool { c.(*net.TCPConn).SetLinger(0); return false })
	require.Equal(t, ConnectionReset, post(t, newClient(t, local), "http://"+r.host).Err)
	require.EqualValues(t, 1, r.requests.Load())
}

func TestEarlyAnswer(t *testing.T) {
	release := make(chan struct{})
	r := serveConns(t, func(c net.Conn) {
		io.ReadFull(c, make([]byte, 100))
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		<-release
	})
	c := newClient(t, local)
	req := newRequest(t, c, "http://"+r.host)
	req.Body = make([]byte, 16<<20)
	a := do(t, t.Context(), c, req, nil)
	close(release)
	require.NoError(t, a.Err)
	require.Equal(t, 413, a.Status)
}

// standardLog catches what net/http prints, which holds what a receiver sent.
func standardLog(t *testing.T) *bytes.Buffer {
	var printed bytes.Buffer
	before := log.Writer()
	log.SetOutput(&printed)
	t.Cleanup(func() { log.SetOutput(before) })
	return &printed
}

// A receiver that talks without being asked loses its connection, and nothing
// else happens.
func TestUnasked(t *testing.T) {
	printed := standardLog(t)
	said := make(chan struct{})
	for _, junk := range []string{"junk", ok, "HTTP/1.1 408 Request Timeout\r\n\r\n", "\n"} {
		r := serve(t, func(c net.Conn, _ int64) bool {
			io.WriteString(c, ok)
			time.Sleep(20 * time.Millisecond) // the connection waits in the pool by now
			_, err := io.WriteString(c, junk)
			io.Copy(io.Discard, c) // until it is given up
			said <- struct{}{}
			return err == nil
		})
		c := newClient(t, local)
		for i := range int64(3) {
			a := post(t, c, "http://"+r.host)
			require.NoError(t, a.Err)
			require.Equal(t, "ok", string(a.Body))
			<-said
			require.Equal(t, i+1, r.accepted.Load())
		}
	}
	// Before the first request, as other protocols greet.
	r := serveConns(t, func(c net.Conn) {
		io.WriteString(c, "220 mail.example ESMTP\r\n")
		io.Copy(io.Discard, c)
	})
	for range 20 { // the greeting may come before the request is sent, or after
		require.Equal(t, AnswerMalformed, post(t, newClient(t, local), "http://"+r.host).Err)
	}
	require.Empty(t, printed.String())
}

// net/http logs what it finds on an idle connection, so an empty log shows
// that the connection was given up before.
func TestTrailingJunk(t *testing.T) {
	found := standardLog(t)
	ca := newAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(time.Hour))}}
	for _, answer := range []string{
		"HTTP/1.1 204 No Content\r\n\r\njunk",
		"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
		ok + "HTTP/1.1 500 Smuggled\r\nContent-Length: 0\r\n\r\n",
	} {
		plain, secure := serve(t, answers(answer)), serveTLS(t, config, answer)
		c := newClient(t, Options{AllowLoopback: true, RootCAs: ca.pool})
		for _, url := range []string{"http://" + plain.host, "https://" + secure.host} {
			for range 100 {
				a := post(t, c, url)
				require.NoError(t, a.Err)
				require.Less(t, a.Status, 300)
			}
		}
		require.EqualValues(t, 100, plain.accepted.Load())
		require.EqualValues(t, 100, secure.accepted.Load())
		c.Close()
	}
	require.Empty(t, found.String())
}

// Many servers close a connection that has been idle for a while. A request must
// not be the one to find out.
func TestAClosedConnectionIsNotUsedAgain(t *testing.T) {
	ca := newAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "hooks.example", time.Now().Add(time.Hour))}}
	closed := make(chan struct{}, 1)
	closing := func(c net.Conn, answer string) {
		_, _ = io.WriteString(c, answer)
		_ = c.Close()
		closed <- struct{}{}
	}
	plain := serve(t, func(c net.Conn, _ int64) bool { closing(c, ok); return false })
	secure := &receiver{}
	secure.listen(t, config, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 4096)); err == nil {
			closing(c, ok)
		}
	})
	c := newClient(t, Options{AllowLoopback: true, RootCAs: ca.pool})
	for _, url := range []string{"http://" + plain.host, "https://" + secure.host} {
		for range 50 {
			require.NoError(t, post(t, c, url).Err)
			<-closed
			time.Sleep(time.Millisecond) // for the end of the connection to come over
		}
	}
	require.EqualValues(t, 50, plain.accepted.Load())
	require.EqualValues(t, 50, secure.accepted.Load())
}

// What idles is closed after the idle limit, whether or not there are requests.
func TestIdleConnectionsAreClosed(t *testing.T) {
	ended := make(chan time.Time, 2)
	r := serveConns(t, func(c net.Conn) {
		for {
			if _, err := c.Read(make([]byte, 4096)); err != nil {
				ended <- time.Now()
				return
			}
			_, _ = io.WriteString(c, ok)
		}
	})
	c := newClient(t, local)
	require.NoError(t, post(t, c, "http://"+r.host).Err)
	idle := time.Now()
	require.GreaterOrEqual(t, (<-ended).Sub(idle), idleLimit-100*time.Millisecond)
	require.NoError(t, post(t, c, "http://"+r.host).Err)
	require.EqualValues(t, 2, r.accepted.Load())
	c.Close()
	<-ended // at once
}

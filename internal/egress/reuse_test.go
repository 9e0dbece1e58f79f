package egress

import (
	"io"
	"log"
	"net"
	"net/http"
	"testing"

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

func TestTrailingJunk(t *testing.T) {
	before := log.Writer()
	log.SetOutput(io.Discard) // net/http says what it found
	t.Cleanup(func() { log.SetOutput(before) })
	for _, answer := range []string{"HTTP/1.1 204 No Content\r\n\r\njunk", ok + "HTTP/1.1 500 Smuggled\r\nContent-Length: 0\r\n\r\n"} {
		r := serve(t, answers(answer))
		c := newClient(t, local)
		for range 300 {
			a := post(t, c, "http://"+r.host)
			require.NoError(t, a.Err)
			require.Less(t, a.Status, 300)
		}
	}
}

package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// A wire is an HTTP/1.1 client (RFC 9112) for one kind of request: a POST
// whose body is at hand. The goroutine that calls writes the request and reads
// the answer; net/http's parser makes sense of it.
//
// net/http's Transport hands every request to two goroutines of a connection
// and back, which takes longer than the work itself; it learns that a
// connection ended, or holds bytes nobody asked for, at about the time the next
// request takes it; and it repeats requests. Here a connection is looked at
// before it is used again, and one call is one request.
type wire struct {
	dial, dialTLS func(ctx context.Context, network, address string) (net.Conn, error)
	idle          pool
}

// An exchange is what came of a round trip.
type exchange struct {
	answer *http.Response
	body   []byte
	cut    bool
}

// do makes one round trip. answered is called between the answer's head and its
// body. An error means that there is no head.
func (w *wire) do(ctx context.Context, r *Request, answered func()) (exchange, error) {
	for {
		c := w.idle.take(hostOf(r.URL))
		if c == nil {
			var err error
			if c, err = w.open(ctx, r.URL); err != nil {
				return exchange{}, err
			}
		}
		if r.Sending != nil && !r.Sending() {
			w.idle.put(c)
			return exchange{}, Cancelled
		}
		x, keep, err := c.exchange(ctx, r, answered)
		if keep {
			w.idle.put(c)
		} else {
			c.drop()
		}
		if !errors.Is(err, errUnsent) {
			return x, err
		}
	}
}

// open connects to where a URL points.
func (w *wire) open(ctx context.Context, u *url.URL) (*conn, error) {
	dial, port := w.dial, "80"
	if u.Scheme == "https" {
		dial, port = w.dialTLS, "443"
	}
	if p := u.Port(); p != "" {
		port = p
	}
	raw, err := dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	switch {
	case errors.Is(err, AddressRefused):
		return nil, err
	case err != nil && (isTimeout(err) || errors.Is(context.Cause(ctx), context.DeadlineExceeded)):
		return nil, ConnectTimeout // the request's time was up, or the dial's, which is the same
	case err != nil && ctx.Err() != nil:
		return nil, Cancelled
	case err != nil:
		return nil, err
	}
	return newConn(raw, hostOf(u)), nil
}

// host is what connections have in common that can serve the same requests.
type host struct{ scheme, authority string }

func hostOf(u *url.URL) host { return host{u.Scheme, u.Host} }

// conn is one connection and what is read from it.
type conn struct {
	net.Conn
	host  host
	read  *bufio.Reader
	input input // what read reads
	quiet func() bool
	cut   func() // abort

	used  bool      // there was an exchange on it
	since time.Time // when it became idle
}

func newConn(raw net.Conn, h host) *conn {
	c := &conn{Conn: raw, host: h, input: input{conn: raw}, quiet: quietness(raw)}
	c.read = bufio.NewReader(&c.input)
	c.cut = c.abort
	return c
}

// drop closes the connection at once: TLS would first try to say goodbye, for
// up to 5 seconds if nobody reads.
func (c *conn) drop() {
	if t, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		_ = t.NetConn().Close()
		return
	}
	_ = c.Close()
}

// abort ends whatever the connection is doing.
func (c *conn) abort() { _ = c.SetDeadline(time.Unix(1, 0)) }

// afterFunc is context.AfterFunc, without what that needs for contexts that
// cannot do it themselves.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if c, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return c.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// errUnsent is the error of an exchange on a connection that was used before
// and turned out to be closed: not a byte of the request went out.
var errUnsent = errors.New("nothing was sent")

// exchange sends a request and reads the answer. keep says that the connection
// can serve another.
func (c *conn) exchange(ctx context.Context, r *Request, answered func()) (x exchange, keep bool, err error) {
	stop := afterFunc(ctx, c.cut)
	defer stop()
	upload, err := c.send(r)
	if err != nil {
		return x, false, err
	}
	defer func() {
		if !keep && upload.done != nil {
			c.drop()
			<-upload.done
		}
	}()
	if x.answer, err = c.readHead(); err != nil { //nolint:bodyclose // what was read to its end or goes with the connection needs no closing
		return x, false, err
	}
	if answered != nil {
		answered()
	}
	if x.answer.StatusCode == http.StatusSwitchingProtocols {
		return x, false, nil // its body is the bare connection
	}
	var whole bool
	x.body, x.cut, whole = readBody(x.answer.Body, x.answer.ContentLength)
	keep = whole && !x.answer.Close && c.read.Buffered() == 0 && upload.complete() && stop()
	c.used = true
	return x, keep, nil
}

// readHead reads an answer's status line and headers, and skips those of
// interim answers (RFC 9110 §15.2).
func (c *conn) readHead() (*http.Response, error) {
	c.input.begin()
	defer c.input.end()
	for {
		answer, err := http.ReadResponse(c.read, plainPOST)
		if err != nil {
			return nil, c.input.explain()
		}
		if code := answer.StatusCode; code < 100 || code > 199 || code == http.StatusSwitchingProtocols {
			return answer, nil
		}
	}
}

// plainPOST is what http.ReadResponse needs to know of the request.
var plainPOST = &http.Request{Method: http.MethodPost}

// input measures an answer's head and remembers why there is no more of it.
type input struct {
	conn    io.Reader
	limited bool
	bytes   int // so far
	lines   int
	err     error
}

func (in *input) begin() { *in = input{conn: in.conn, limited: true} }

func (in *input) end() { in.limited = false }

func (in *input) Read(p []byte) (n int, err error) {
	// As there is a need for more, all that was read is head.
	if in.limited && (in.bytes >= headerLimit || in.lines >= headerLines) {
		in.err = AnswerTooLarge
		return 0, in.err
	}
	n, err = in.conn.Read(p)
	if in.limited {
		in.bytes += n
		in.lines += bytes.Count(p[:n], []byte("\n"))
	}
	if err != nil {
		in.err = err
	}
	return n, err
}

// explain says why what was read is no head.
func (in *input) explain() error {
	switch {
	case in.err == nil:
		return AnswerMalformed
	case errors.Is(in.err, io.EOF), errors.Is(in.err, io.ErrUnexpectedEOF):
		return ConnectionClosed
	}
	return in.err
}

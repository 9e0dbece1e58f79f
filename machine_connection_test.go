package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
)

// A connection is what a receiver does on the connection of one request, after
// which it closes it. It is spoken to by net/http itself.
type connection struct {
	refused bool // there is none
	read    int  // bytes of the request to read; 0: all of it
	write   string
	hold    bool // then leave it open until the other side closes it
}

// connections are how receivers break off, by kind of behaviour.
var connections = map[string]connection{
	"refused":          {refused: true},
	"half a request":   {read: 20},
	"reset":            {},
	"silent":           {hold: true},
	"half a header":    {write: "HTTP/1.1 200 OK\r\nContent-Le"},
	"stuck header":     {write: "HTTP/1.1 200 OK\r\nContent-Le", hold: true},
	"half a body":      {write: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"},
	"half a refusal":   {write: "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\nhalf"},
	"trickle":          {write: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", hold: true},
	"something else":   {write: "220 mail.example ESMTP\r\n"},
	"an endless chunk": {write: "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nhalf", hold: true},
}

// carry makes a request on such a connection.
func (c connection) carry(r *http.Request, body []byte) (*http.Response, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			if c.refused {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			ours, theirs := net.Pipe()
			go c.serve(theirs)
			return ours, nil
		},
	}
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	return transport.RoundTrip(again)
}

func (c connection) serve(conn net.Conn) {
	defer conn.Close()
	if c.read > 0 {
		_, _ = io.ReadFull(conn, make([]byte, c.read))
		return
	}
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil {
		return // the other side gave up
	}
	if _, err = io.WriteString(conn, c.write); err == nil && c.hold {
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		panic(err)
	}
}

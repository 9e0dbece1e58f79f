package egress

import (
	"slices"
	"strconv"
	"sync"
)

// alongside is the length of a body, in bytes, above which it is written while
// the answer is read: a receiver may answer without reading it all. Shorter ones
// fit into the buffers of any connection.
const alongside = 16 << 10

// heads holds what requests are put together in.
var heads = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// An upload is a body on its way.
type upload struct {
	done chan struct{} // nil if it was written at once
	err  error         // valid once done is closed
}

// complete reports whether all of it went out.
func (u *upload) complete() bool {
	if u.done == nil {
		return true
	}
	select {
	case <-u.done:
		return u.err == nil
	default:
		return false
	}
}

// send writes a request. That not all of it can be written is no error: the
// receiver may have closed the connection with an answer.
func (c *conn) send(r *Request) (*upload, error) {
	buf := heads.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 2*alongside {
			heads.Put(buf)
		}
	}()
	head, err := appendHead((*buf)[:0], r)
	*buf = head
	if err != nil {
		return nil, err
	}
	if len(r.Body) <= alongside {
		head = append(head, r.Body...)
		*buf = head
		return &upload{}, c.begin(r, *buf)
	}
	if err := c.begin(r, head); err != nil {
		return nil, err
	}
	u := &upload{done: make(chan struct{})}
	go func() {
		defer close(u.done)
		_, u.err = c.Write(r.Body)
	}()
	return u, nil
}

// begin writes the first bytes of a request.
func (c *conn) begin(r *Request, b []byte) error {
	n, err := c.Write(b)
	if n == 0 && err != nil && c.used {
		return errUnsent
	}
	if r.Began != nil {
		r.Began()
	}
	return nil
}

// appendHead appends the request line and the headers (RFC 9112 §3 and §5).
func appendHead(b []byte, r *Request) ([]byte, error) {
	b = append(b, "POST "...)
	b = append(b, r.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, r.URL.Host...)
	b = append(b, "\r\n"...)
	var space [16]string
	names := space[:0]
	for name := range r.Header {
		if !ours(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names) // so that requests look alike
	for _, name := range names {
		for _, value := range r.Header[name] {
			if !isToken(name) || !isFieldValue(value) {
				return b, RequestFailed
			}
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, value...)
			b = append(b, "\r\n"...)
		}
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(r.Body)), 10)
	return append(b, "\r\n\r\n"...), nil
}

// ours reports whether a header is for the wire alone to write.
func ours(name string) bool {
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection":
		return true
	}
	return false
}

// isFieldValue reports whether a value may be written as it is (RFC 9110 §5.5).
func isFieldValue(s string) bool {
	for i := range len(s) {
		if b := s[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

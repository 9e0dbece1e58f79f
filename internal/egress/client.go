package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"
)

// A Request is one POST.
type Request struct {
	// URL comes from [ParseURL]. It is only read, so requests may share it.
	URL *url.URL

	// Header is sent as it is, names in canonical form. It is only read, so
	// requests may share it. It must not hold Idempotency-Key,
	// X-Idempotency-Key or Expect: net/http gives them a meaning of its own.
	Header http.Header

	// Body is sent with its length. It must not change any more, even after
	// Do has returned: a receiver may answer before it has read everything.
	Body []byte

	// Sending, if not nil, is asked when there is a connection and before a byte
	// is written: false keeps the request from going out. It may be asked
	// again, should net/http have to take another connection.
	Sending func() bool

	// Began, set if Sending is, is called when the first bytes were written,
	// which is some moments after Sending was asked; at once where that cannot
	// be seen, which is behind a proxy. It may be called again, or never if
	// there comes nothing of the request.
	Began func()
}

// An Answer is what became of a [Request]. Err is nil once a status line and
// headers have arrived, whatever the status (000 apart, which is none) and
// whatever happened to the body.
type Answer struct {
	Status int         // of the answer; 0 if there is none
	Header http.Header // of the answer
	Body   []byte      // its first 16 KiB, as they came over the wire
	Cut    bool        // Body is not the whole body

	Latency time.Duration // until the headers or the error
	Err     error         // a Failure or a *RuleError

	Refused  bool // no request was made because the address is not allowed
	Final    bool // the URL itself breaks a rule, so repeating cannot help
	TimedOut bool // no connection or no answer in time
}

// Do sends r and reads the answer: at most 64 KiB of its body, of which it
// keeps 16 KiB. The request ends when ctx does, also while the body is read; a
// cause that wraps context.DeadlineExceeded makes it TimedOut, any other
// [Cancelled]. Do sets no deadline of its own except on connecting.
//
// answered, if not nil, is called once when status line and headers have
// arrived and before the body is read, so that the caller can shorten the
// deadline.
func (c *Client) Do(ctx context.Context, r Request, answered func()) Answer {
	if rule := checkTarget(r.URL, &c.options); rule != "" {
		return Answer{
			Err:     &RuleError{rule},
			Refused: rule == ruleAddress || rule == ruleLoopback,
			Final:   true,
		}
	}
	start := time.Now()
	answer, err := c.send(ctx, r)
	latency := time.Since(start)
	if err != nil {
		f := classify(ctx, err)
		return Answer{Err: f, Latency: latency, Refused: f == AddressRefused, TimedOut: f.Timeout()}
	}
	if answered != nil {
		answered()
	}
	a := Answer{Status: answer.StatusCode, Header: answer.Header, Latency: latency}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		// Its body is the bare connection and would be read as one.
		_ = answer.Body.Close()
		return a
	}
	if answer.StatusCode <= 0 { // "000" parses
		a.Status, a.Err = 0, AnswerMalformed
	}
	a.Body, a.Cut = readBody(answer.Body, answer.ContentLength)
	_ = answer.Body.Close()
	return a
}

// send makes the round trip. GetBody stays nil: with it, net/http would repeat
// a POST that it thinks safe to repeat, and one call would be two requests.
func (c *Client) send(ctx context.Context, r Request) (*http.Response, error) {
	req := c.template.WithContext(ctx)
	req.URL, req.Header = r.URL, r.Header
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if len(r.Body) > 0 {
		// net/http knows this pair of types and sends headers and body in
		// one write.
		req.Body = io.NopCloser(bytes.NewReader(r.Body))
		req.ContentLength = int64(len(r.Body))
	} else {
		req.Body = http.NoBody
	}
	if c.options.Proxy != nil && c.dialer != nil {
		proxy, err := c.options.Proxy(req)
		if err != nil {
			return nil, ProxyFailed
		}
		if proxy != nil {
			req = req.WithContext(context.WithValue(ctx, proxyKey{}, proxy))
		}
	}
	if r.Sending != nil {
		if c.dialer == nil { // a replaced transport: this is as close as it gets
			if !r.Sending() {
				return nil, Cancelled
			}
			if req.Body == http.NoBody {
				r.Began()
			} else {
				req.Body = &firstRead{req.Body, r.Began}
			}
		} else {
			req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) {
					if !r.Sending() {
						_ = info.Conn.Close()
						return
					}
					if conn, ok := info.Conn.(*exactConn); ok {
						conn.began.Store(&r.Began)
					} else {
						r.Began()
					}
				},
			}))
		}
	}
	answer, err := c.transport.RoundTrip(req)
	switch {
	case err != nil:
		return nil, err
	case answer == nil: // a replaced transport may do anything
		return nil, RequestFailed
	case answer.Body == nil:
		answer.Body = http.NoBody
	}
	return answer, nil
}

// firstRead is a request's body that tells when it is first read.
type firstRead struct {
	io.ReadCloser
	began func()
}

func (b *firstRead) Read(p []byte) (int, error) {
	b.began()
	return b.ReadCloser.Read(p)
}

// buffers holds what bodies of unknown or great length are read into.
var buffers = sync.Pool{New: func() any { return new([keepLimit]byte) }}

// readBody reads up to readLimit bytes and keeps up to keepLimit. A body read
// to its end lets its connection be used again.
func readBody(body io.Reader, length int64) (kept []byte, cut bool) {
	switch {
	case body == http.NoBody || length == 0:
		return nil, false
	case length > 0 && length <= 1024:
		// Short enough to be believed: read in place.
		kept = make([]byte, length)
		n, err := fill(body, kept)
		return kept[:n:n], n < len(kept) && err != nil
	}
	buf := buffers.Get().(*[keepLimit]byte)
	defer buffers.Put(buf)
	n, err := fill(body, buf[:])
	kept = bytes.Clone(buf[:n])
	if err != nil {
		return kept, !errors.Is(err, io.EOF)
	}
	// buf is full. Whether that was all is known only by reading on.
	more := 0
	for err == nil && keepLimit+more < readLimit {
		n, err = fill(body, buf[:])
		more += n
	}
	return kept, more > 0 || !errors.Is(err, io.EOF)
}

// fill reads until buf is full or the reader ends. Unlike io.ReadFull it
// returns the reader's own error, so that a truncated body is told from a
// whole one.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}

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
	// again, should the request have to take another connection.
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
	var latency time.Duration
	x, err := c.roundTrip(ctx, &r, func() {
		latency = time.Since(start)
		if answered != nil {
			answered()
		}
	})
	if err != nil {
		f := classify(ctx, err)
		return Answer{Err: f, Latency: time.Since(start), Refused: f == AddressRefused, TimedOut: f.Timeout()}
	}
	a := Answer{Status: x.answer.StatusCode, Header: x.answer.Header, Body: x.body, Cut: x.cut, Latency: latency}
	if a.Status <= 0 { // "000" parses
		a.Status, a.Err = 0, AnswerMalformed
	}
	return a
}

// roundTrip makes the request over the wire, or by way of a transport of the
// host's or a proxy.
func (c *Client) roundTrip(ctx context.Context, r *Request, answered func()) (exchange, error) {
	if c.wire == nil {
		req := c.request(ctx, r)
		if r.Sending != nil { // this is as close as it gets
			if !r.Sending() {
				return exchange{}, Cancelled
			}
			if req.Body == http.NoBody {
				r.Began()
			} else {
				req.Body = &firstRead{req.Body, r.Began}
			}
		}
		return c.through(req, answered)
	}
	if c.options.Proxy == nil {
		return c.wire.do(ctx, r, answered)
	}
	proxy, err := c.options.Proxy(c.request(ctx, r))
	switch {
	case err != nil:
		return exchange{}, ProxyFailed
	case proxy == nil:
		return c.wire.do(ctx, r, answered)
	}
	connected := false
	ctx = httptrace.WithClientTrace(context.WithValue(ctx, proxyKey{}, proxy), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			connected = true
			switch {
			case r.Sending == nil:
			case r.Sending():
				r.Began()
			default:
				_ = info.Conn.Close()
			}
		},
	})
	x, err := c.through(c.request(ctx, r), answered)
	if err != nil && !connected && classify(ctx, err) == Timeout {
		err = ConnectTimeout // dials have the same limit: which one ended it is chance
	}
	return x, err
}

// request puts a request as net/http has it. GetBody stays nil: with it,
// net/http would repeat a POST that it thinks safe to repeat, and one call would
// be two requests.
func (c *Client) request(ctx context.Context, r *Request) *http.Request {
	req := plainPOST.WithContext(ctx)
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
	return req
}

// through makes the request with a transport.
func (c *Client) through(req *http.Request, answered func()) (x exchange, err error) {
	x.answer, err = c.transport.RoundTrip(req) //nolint:bodyclose // it is, below
	switch {
	case err != nil:
		return x, err
	case x.answer == nil: // a replaced transport may do anything
		return x, RequestFailed
	case x.answer.Body == nil:
		x.answer.Body = http.NoBody
	}
	answered()
	if x.answer.StatusCode != http.StatusSwitchingProtocols { // whose body is the bare connection
		x.body, x.cut, _ = readBody(x.answer.Body, x.answer.ContentLength)
	}
	_ = x.answer.Body.Close()
	return x, nil
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

// readBody reads up to readLimit bytes and keeps up to keepLimit. Whole says
// that the body was read to its end, so that its connection can be used again;
// cut, that kept is not all of it.
func readBody(body io.Reader, length int64) (kept []byte, cut, whole bool) {
	switch {
	case body == http.NoBody || length == 0:
		return nil, false, true
	case length > 0 && length <= 1024:
		// Short enough to be believed: read in place.
		kept = make([]byte, length)
		n, err := fill(body, kept)
		whole = n == len(kept)
		return kept[:n:n], !whole && err != nil, whole
	}
	buf := buffers.Get().(*[keepLimit]byte)
	defer buffers.Put(buf)
	n, err := fill(body, buf[:])
	kept = bytes.Clone(buf[:n])
	// If buf is full, whether that was all is known only by reading on.
	more := 0
	for err == nil && keepLimit+more < readLimit {
		n, err = fill(body, buf[:])
		more += n
	}
	whole = errors.Is(err, io.EOF)
	return kept, more > 0 || !whole, whole
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

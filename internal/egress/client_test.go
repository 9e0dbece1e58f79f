package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var local = Options{AllowLoopback: true}

func TestOnTheWire(t *testing.T) {
	r := serve(t, answers(ok))
	c := newClient(t, local)
	req := newRequest(t, c, "http://"+r.host+"/a%0d%0ab%2F//c?x=%2F&y[]=1")
	req.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"Elido-Webhooks/1.0"}}
	a := do(t, t.Context(), c, req, nil)
	require.NoError(t, a.Err)
	require.Equal(t, 200, a.Status)
	require.Equal(t, "ok", string(a.Body))
	require.Equal(t, "2", a.Header.Get("Content-Length"))
	require.Positive(t, a.Latency)
	require.False(t, a.Cut)
	// Nothing else: no Accept-Encoding, no Expect, no Idempotency-Key.
	require.Equal(t, "POST /a%0d%0ab%2F//c?x=%2F&y[]=1 HTTP/1.1\r\nHost: "+r.host+"\r\nContent-Type: application/json\r\n"+
		"User-Agent: Elido-Webhooks/1.0\r\nContent-Length: 7\r\n\r\n", *r.lastHead.Load())

	req.Header, req.Body = nil, nil
	require.Equal(t, 200, do(t, t.Context(), c, req, nil).Status)
	require.Contains(t, *r.lastHead.Load(), "Content-Length: 0\r\n")
	require.EqualValues(t, 1, r.accepted.Load())
}

func TestStatuses(t *testing.T) {
	for line, status := range map[string]int{
		"HTTP/1.1 200 OK": 200, "HTTP/1.1 204": 204, "HTTP/1.0 201 \x1b[31mred": 201, "HTTP/1.1 299 ": 299,
		"HTTP/1.1 099 Odd": 99, "HTTP/1.1 300 M": 300, "HTTP/1.1 304 N": 304, "HTTP/1.1 600 X": 600, "HTTP/1.1 999 X": 999,
		"HTTP/1.1 101 S": 101, "HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: x": 101,
		"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 202 A": 202, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 410 G": 410,
	} {
		r := serve(t, func(c net.Conn, _ int64) bool {
			io.WriteString(c, line+"\r\nConnection: close\r\n\r\n")
			return false
		})
		a := post(t, newClient(t, local), "http://"+r.host)
		require.NoError(t, a.Err, line)
		require.Equal(t, status, a.Status, line)
		require.EqualValues(t, 1, r.requests.Load())
	}
}

func TestMalformed(t *testing.T) {
	for answer, failure := range map[string]Failure{
		"HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n":                       AnswerMalformed,
		"HTTP/1.1 2x0 OK\r\n\r\n":                                              AnswerMalformed,
		"HTTP/1.1 1000 OK\r\n\r\n":                                             AnswerMalformed,
		"HTTP/1.1 -12 OK\r\n\r\n":                                              AnswerMalformed,
		"HTTP/1.1\r\n\r\n":                                                     AnswerMalformed,
		"HTTP/x 200 OK\r\n\r\n":                                                AnswerMalformed,
		"SSH-2.0-OpenSSH_9.2p1\r\n":                                            AnswerMalformed,
		"\x16\x03\x01\x00\x00\r\n":                                             AnswerMalformed,
		"HTTP/1.1 200 OK\r\nA: \x1b[31m\r\n\r\n":                               AnswerMalformed,
		"HTTP/1.1 200 OK\r\nno colon\r\n\r\n":                                  AnswerMalformed,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc": AnswerMalformed,
		"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nabc":                     AnswerMalformed,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc":                0, // failed, whatever the name
		"HTTP/1.1 200 OK\r\nA: b":                                              ConnectionClosed,
		"HTTP/1.":                                                              ConnectionClosed,
		"":                                                                     ConnectionClosed,
	} {
		r := serve(t, func(c net.Conn, _ int64) bool { io.WriteString(c, answer); return false })
		a := post(t, newClient(t, local), "http://"+r.host)
		require.Error(t, a.Err)
		if failure != 0 {
			require.Equal(t, failure, a.Err, "%q", answer)
		}
		require.EqualValues(t, 1, r.requests.Load())
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	second := serve(t, answers(ok))
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{"http://" + second.host + "/", "http://[::1"} {
			r := serve(t, answers(fmt.Sprintf("HTTP/1.1 %d Moved\r\nLocation: %s\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n", status, location)))
			c := newClient(t, local)
			for range 2 {
				a := post(t, c, "http://"+r.host)
				require.NoError(t, a.Err)
				require.Equal(t, status, a.Status)
				require.NotContains(t, *r.lastHead.Load(), "Cookie")
			}
		}
	}
	require.Zero(t, second.accepted.Load())
}

// counting makes c count the bytes it reads.
func counting(c *Client) *atomic.Int64 {
	var read atomic.Int64
	dial := c.wire.dial
	c.wire.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return countingConn{conn, &read}, nil
	}
	return &read
}

type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// forever writes text and then more for as long as the other side takes it.
func forever(text, more string) func(net.Conn, int64) bool {
	more = strings.Repeat(more, 1+32<<10/len(more))
	return func(c net.Conn, _ int64) bool {
		_, err := io.WriteString(c, text)
		for err == nil {
			_, err = io.WriteString(c, more)
		}
		return false
	}
}

func TestEndlessAnswers(t *testing.T) {
	zeros := new(bytes.Buffer)
	zip := gzip.NewWriter(zeros)
	for range 50 {
		zip.Write(make([]byte, 1<<20))
	}
	zip.Close()
	bomb := zeros.String()
	for _, test := range []struct {
		name    string
		reply   func(net.Conn, int64) bool
		failure error
		body    string // prefix
	}{
		{"early hints", forever("", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"), AnswerTooLarge, ""},
		{"headers", forever("HTTP/1.1 200 OK\r\n", "A: b\r\n"), AnswerTooLarge, ""},
		{"one header", forever("HTTP/1.1 200 OK\r\nA: ", "b"), AnswerTooLarge, ""},
		{"status line", forever("HTTP/1.1 200 ", "OK"), AnswerTooLarge, ""},
		{"1 GiB", forever("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", "abcd"), nil, "abcdabcd"},
		{"until close", forever("HTTP/1.1 200 OK\r\n\r\n", "abcd"), nil, "abcdabcd"},
		{"chunks", forever("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "4\r\nabcd\r\n"), nil, "abcdabcd"},
		{"gzip bomb", answers(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", len(bomb)) + bomb), nil, bomb[:keepLimit]},
	} {
		t.Run(test.name, func(t *testing.T) {
			gone := make(chan struct{})
			r := serve(t, func(c net.Conn, n int64) bool {
				test.reply(c, n)
				io.Copy(io.Discard, c)
				close(gone)
				return false
			})
			c := newClient(t, local)
			read := counting(c)
			a := do(t, t.Context(), c, newRequest(t, c, "http://"+r.host), nil) // a context that does not end
			c.Close()                                                           // ends it if it is idle
			select {
			case <-gone:
			case <-time.After(20 * time.Second):
				t.Error("the connection is still open")
			}
			require.EqualValues(t, 1, r.requests.Load())
			require.Less(t, read.Load(), int64(1<<20))
			if test.failure != nil {
				require.Equal(t, test.failure, a.Err)
				return
			}
			require.NoError(t, a.Err)
			require.Equal(t, 200, a.Status)
			require.True(t, a.Cut)
			require.Len(t, a.Body, keepLimit)
			require.True(t, strings.HasPrefix(string(a.Body), test.body))
			require.NotContains(t, *r.lastHead.Load(), "Accept-Encoding")
		})
	}
}

// What the documentation says of the limits, whatever the constants say.
func TestAnswerLimits(t *testing.T) {
	for name, head := range map[string]string{
		"long":        "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n",
		"until close": "HTTP/1.1 200 OK\r\n\r\n",
	} {
		r := serve(t, forever(head, "abcd"))
		c := newClient(t, local)
		read := counting(c)
		a := post(t, c, "http://"+r.host)
		require.NoError(t, a.Err, name)
		require.Len(t, a.Body, 16<<10, name)
		require.True(t, a.Cut, name)
		require.GreaterOrEqual(t, read.Load(), int64(60<<10), name)
		require.LessOrEqual(t, read.Load(), int64(72<<10), "%s: 64 KiB, and what net/http reads ahead", name)
	}
	r := serve(t, forever("HTTP/1.1 200 OK\r\n", "A: b\r\n"))
	c := newClient(t, local)
	read := counting(c)
	require.Equal(t, AnswerTooLarge, post(t, c, "http://"+r.host).Err)
	require.LessOrEqual(t, read.Load(), int64(72<<10))
}

func TestBodySizes(t *testing.T) {
	for _, size := range []int{0, 1, 1024, 1025, keepLimit - 1, keepLimit, keepLimit + 1, readLimit - 1, readLimit, readLimit + 1, 2 * readLimit} {
		for _, chunked := range []bool{false, true} {
			body := strings.Repeat("x", size)
			head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
			if chunked {
				head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
				if size > 0 {
					body = fmt.Sprintf("%x\r\n%s\r\n", size, body)
				}
				body += "0\r\n\r\n"
			}
			r := serve(t, answers(head+body))
			c := newClient(t, local)
			for range 3 {
				a := post(t, c, "http://"+r.host)
				require.NoError(t, a.Err)
				require.Len(t, a.Body, min(size, keepLimit))
				require.Equal(t, size > keepLimit, a.Cut, "%d %t", size, chunked)
			}
			require.EqualValues(t, 3, r.requests.Load())
			if size < readLimit {
				require.EqualValues(t, 1, r.accepted.Load(), "a body of %d bytes cost its connection (chunked: %t)", size, chunked)
			}
		}
	}
}

func TestBrokenBodies(t *testing.T) {
	for name, reply := range map[string]func(net.Conn, int64) bool{
		"short": func(c net.Conn, _ int64) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
			return false
		},
		"long": func(c net.Conn, _ int64) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nabc")
			return false
		},
		"no last chunk": func(c net.Conn, _ int64) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
			return false
		},
		"bad chunk": func(c net.Conn, _ int64) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")
			return false
		},
		"reset": func(c net.Conn, _ int64) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
			time.Sleep(50 * time.Millisecond) // else the reset overtakes the bytes
			c.(*net.TCPConn).SetLinger(0)
			return false
		},
	} {
		r := serve(t, reply)
		a := post(t, newClient(t, local), "http://"+r.host)
		require.NoError(t, a.Err, name)
		require.Equal(t, 200, a.Status)
		require.True(t, a.Cut, name)
		require.Equal(t, "abc", string(a.Body), name)
		require.EqualValues(t, 1, r.requests.Load())
	}
}

func TestTricklingBodyIsCut(t *testing.T) {
	r := serve(t, func(c net.Conn, _ int64) bool {
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
		for err == nil {
			time.Sleep(5 * time.Millisecond)
			_, err = io.WriteString(c, "x")
		}
		return false
	})
	c := newClient(t, local)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	a := do(t, ctx, c, newRequest(t, c, "http://"+r.host), func() {
		time.AfterFunc(200*time.Millisecond, func() { cancel(errors.New("body")) })
	})
	require.NoError(t, a.Err)
	require.Equal(t, 200, a.Status)
	require.True(t, a.Cut)
	require.NotEmpty(t, a.Body)
	require.Equal(t, strings.Repeat("x", len(a.Body)), string(a.Body))
}

func TestSilence(t *testing.T) {
	arrived := make(chan struct{}, 10)
	r := serve(t, func(c net.Conn, _ int64) bool {
		arrived <- struct{}{}
		io.Copy(io.Discard, c) // until the other side is gone
		return false
	})
	c := newClient(t, local)
	req := newRequest(t, c, "http://"+r.host)
	for _, test := range []struct {
		cause   error
		failure Failure
	}{
		{fmt.Errorf("10 s to the headers: %w", context.DeadlineExceeded), Timeout},
		{errors.New("shutting down"), Cancelled},
		{nil, Cancelled},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-arrived; cancel(test.cause) }()
		require.Equal(t, test.failure, do(t, ctx, c, req, nil).Err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Equal(t, Timeout, do(t, ctx, c, req, nil).Err)
	requests := r.requests.Load()
	require.Equal(t, ConnectTimeout, do(t, ctx, c, req, nil).Err, "an ended context")
	require.Equal(t, requests, r.requests.Load())
}

func TestConnectionRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	require.Equal(t, ConnectionRefused, post(t, newClient(t, local), "http://"+l.Addr().String()).Err)
}

func TestReplacedTransport(t *testing.T) {
	var calls int
	var answer *http.Response
	var fault error
	c := newClient(t, Options{
		Proxy: http.ProxyURL(nil),
		Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			calls++
			require.Nil(t, r.GetBody)
			require.EqualValues(t, 7, r.ContentLength)
			return answer, fault
		}),
	})
	_, fault = newRequest(t, c, "https://example.com/"), errors.New("https://example.com/ says "+canary)
	require.Equal(t, RequestFailed, post(t, c, "https://example.com/").Err)
	fault = context.DeadlineExceeded
	require.Equal(t, Timeout, post(t, c, "https://example.com/").Err)
	fault = nil
	require.Equal(t, RequestFailed, post(t, c, "https://example.com/").Err)
	answer = &http.Response{StatusCode: 202}
	require.Equal(t, 202, post(t, c, "https://example.com/").Status)
	answer = &http.Response{StatusCode: 202, ContentLength: -1, Body: io.NopCloser(strings.NewReader("abc"))}
	require.Equal(t, "abc", string(post(t, c, "https://example.com/").Body))
	require.Equal(t, 5, calls)

	inside := newRequest(t, newClient(t, local), "http://127.0.0.1/")
	a := c.Do(t.Context(), inside, nil)
	require.Equal(t, &RuleError{ruleLoopback}, a.Err)
	require.True(t, a.Refused && a.Final)
	require.Equal(t, 5, calls)
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestNewNamesTheOption(t *testing.T) {
	_, err := New(Options{IdlePerHost: -1})
	require.ErrorContains(t, err, "IdlePerHost")
	_, err = New(Options{AllowPrefixes: make([]netip.Prefix, 1)})
	require.ErrorContains(t, err, "AllowPrefixes")
}

func TestFailureTexts(t *testing.T) {
	for f := RequestFailed; f <= ChainTooLong; f++ {
		require.NotEmpty(t, failureTexts[f])
	}
	require.Len(t, failureTexts, int(ChainTooLong)+1)
	require.Equal(t, "the request failed", Failure(0).Error())
	require.Equal(t, "the request failed", Failure(255).Error())
}

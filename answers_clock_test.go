package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// watch is how closely time limits are watched, at most.
const watch = 50 * time.Millisecond

// trickle writes text, and then more, a piece at a time, for ever.
func trickle(text, piece string, every time.Duration) replier {
	return func(c net.Conn, _ int64) bool {
		_, err := io.WriteString(c, text)
		for err == nil {
			time.Sleep(every)
			_, err = io.WriteString(c, piece)
		}
		return false
	}
}

// after answers after a while.
func after(d time.Duration, text string) replier {
	return func(c net.Conn, n int64) bool {
		time.Sleep(d)
		return answering(text)(c, n)
	}
}

// hold says nothing until the other side is gone.
func hold(c net.Conn, _ int64) bool {
	io.Copy(io.Discard, c)
	return false
}

func TestTimeLimits(t *testing.T) {
	const timeLimit = "no answer within the time limit"
	const timeLimitToConnect = "no connection within the time limit"
	overhead := strings.Repeat("a", 60<<10)
	for _, c := range []struct {
		name   string
		url    string
		handle func(p *pipes) func(net.Conn)
		reply  replier
		err    string
		status int
		cut    bool
		least  time.Duration // until the connection is closed, or may be used again
		most   time.Duration
	}{
		{"200 after 9.9 s", pipeURL, nil, after(9900*time.Millisecond, okAnswer), "", 200, false, 0, 0},
		{"200 after 10.1 s", pipeURL, nil, after(10100*time.Millisecond, okAnswer), timeLimit, 0, false, 10 * time.Second, 10 * time.Second},
		{"500 after 9.9 s", pipeURL, nil, after(9900*time.Millisecond, "HTTP/1.1 500 I\r\nContent-Length: 0\r\n\r\n"), "HTTP 500 Internal Server Error", 500, false, 0, 0},
		{"silence", pipeURL, nil, hold, timeLimit, 0, false, 10 * time.Second, 10 * time.Second},
		{"a trickled head", pipeURL, nil, trickle("HTTP/1.1 200 OK\r\nA: ", "b", watch), timeLimit, 0, false, 10 * time.Second, 10 * time.Second},
		{"trickled headers", pipeURL, nil, trickle("HTTP/1.1 200 OK\r\n", "A: b\r\n", watch), timeLimit, 0, false, 10 * time.Second, 10 * time.Second},
		{"trickled 103s", pipeURL, nil, trickle("", "HTTP/1.1 103 E\r\n\r\n", watch), timeLimit, 0, false, 10 * time.Second, 10 * time.Second},
		{"a trickled body", pipeURL, nil, trickle("HTTP/1.1 200 OK\r\n\r\n", "b", watch), "", 200, true, time.Second, time.Second},
		{"trickled chunks", pipeURL, nil, trickle("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nb\r\n", watch), "", 200, true, time.Second, time.Second},
		{"a trickled trailer", pipeURL, nil, trickle("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n", watch), "", 200, true, time.Second, time.Second},
		{"a body that stops", pipeURL, nil, trickle("HTTP/1.1 500 I\r\nContent-Length: 9\r\n\r\nb", "", time.Hour), "HTTP 500 Internal Server Error", 500, true, time.Second, time.Second},
		{"at the last moment, then a trickled body", pipeURL, nil, func(c net.Conn, n int64) bool {
			time.Sleep(9900 * time.Millisecond)
			return trickle("HTTP/1.1 200 OK\r\nA: "+overhead+"\r\n\r\n", "b", watch)(c, n)
		}, "", 200, true, 10900 * time.Millisecond, 10900 * time.Millisecond},
		{"never reads", pipeURL, func(*pipes) func(net.Conn) { return func(net.Conn) { time.Sleep(time.Minute) } },
			nil, timeLimit, 0, false, 10 * time.Second, 10 * time.Second},
		{"reads slowly", pipeURL, func(*pipes) func(net.Conn) {
			return func(c net.Conn) {
				for b := make([]byte, 1); ; time.Sleep(time.Second) {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
			}
		}, nil, timeLimit, 0, false, 10 * time.Second, 10 * time.Second},
		{"never shakes hands", "https://127.0.0.1/", func(*pipes) func(net.Conn) {
			return func(c net.Conn) { hold(c, 0) }
		}, nil, timeLimitToConnect, 0, false, 10 * time.Second, 10 * time.Second},
		{"shakes hands slowly", "https://127.0.0.1/", func(*pipes) func(net.Conn) {
			return func(c net.Conn) {
				go io.Copy(io.Discard, c)
				for _, b := range []byte("\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03" + strings.Repeat("a", 200)) {
					time.Sleep(time.Second)
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
				}
			}
		}, nil, timeLimitToConnect, 0, false, 10 * time.Second, 10 * time.Second},
	} {
		for _, how := range []string{"Run", "RunOnce"} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				piped(t, webhook.Config{}, func(w *world, p *pipes) {
					if p.handle = p.handler(c.reply); c.handle != nil {
						p.handle = c.handle(p)
					}
					w.endpoint(webhook.EndpointParams{URL: c.url})
					start := time.Now()
					id := w.publish(webhook.Event{}).DeliveryIDs[0]
					if how == "Run" {
						w.run()
						w.sleep(15 * time.Second)
					} else {
						n, err := w.RunOnce(w.Context())
						require.NoError(w, err)
						require.Equal(w, 1, n)
						require.LessOrEqual(w, time.Since(start), 11*time.Second)
					}
					d, a := w.delivery(id), w.attempts(id)
					require.Len(w, a, 1)
					require.Equal(w, c.err, string(a[0].Error))
					require.Equal(w, c.status, a[0].Status)
					require.Equal(w, c.cut, a[0].ResponseCut)
					if c.status == 200 {
						require.Equal(w, webhook.StatusDelivered, d.Status)
					} else {
						require.Equal(w, webhook.StatusPending, d.Status)
						require.Equal(w, 1, d.Attempts)
						ended := start.Add(max(a[0].Latency, c.least))
						require.WithinRange(w, d.NextAttemptAt, ended.Add(5*time.Minute), ended.Add(5*time.Minute+watch))
					}
					if c.most > 0 {
						closed := (<-p.closed).Sub(start)
						require.GreaterOrEqual(w, closed, c.least)
						require.LessOrEqual(w, closed, c.most+watch)
					}
					require.LessOrEqual(w, p.read.Load(), int64(100<<10))
				})
			})
		}
	}
}

// A connection that cannot be made takes no longer than an answer may.
func TestBlackHole(t *testing.T) {
	piped(t, webhook.Config{}, func(w *world, p *pipes) {
		dials := 0
		w.DialWith(func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials++
			<-ctx.Done()
			return nil, ctx.Err()
		})
		start := time.Now()
		_, a := w.attempt(workspace, webhook.EndpointParams{URL: pipeURL})
		require.Equal(w, 10*time.Second, time.Since(start))
		require.Equal(w, "no connection within the time limit", string(a.Error))
		require.Equal(w, 10*time.Second, a.Latency)
		require.Equal(w, 1, dials)
	})
}

// Stop waits for no dial, and leaves none behind.
func TestStopEndsDials(t *testing.T) {
	piped(t, webhook.Config{Grace: -1}, func(w *world, p *pipes) {
		w.DialWith(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		w.endpoint(webhook.EndpointParams{URL: pipeURL})
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.run()
		w.sleep(time.Second)
		start := time.Now()
		w.stop()
		require.LessOrEqual(w, time.Since(start), 100*time.Millisecond)
		require.Zero(w, w.delivery(id).Attempts)
	})
}

// A receiver that trickles its body holds a worker for a second, and no longer.
func TestTricklingFreesItsWorker(t *testing.T) {
	piped(t, webhook.Config{Workers: 1, SlowRequests: 1}, func(w *world, p *pipes) {
		p.handle = p.handler(trickle("HTTP/1.1 200 OK\r\n\r\n", "b", watch))
		w.endpoint(webhook.EndpointParams{URL: pipeURL, MaxInFlight: 1})
		var ids []int64
		for range 5 {
			ids = append(ids, w.publish(webhook.Event{}).DeliveryIDs[0])
		}
		start := time.Now()
		w.run()
		w.sleep(10 * time.Second)
		times := p.times()
		require.Len(w, times, 5)
		for i, at := range times {
			require.GreaterOrEqual(w, at.Sub(start), time.Duration(i)*time.Second)
			require.LessOrEqual(w, at.Sub(start), time.Duration(i)*(time.Second+watch))
		}
		for _, id := range ids {
			a := w.attempts(id)
			require.Len(w, a, 1)
			require.True(w, a[0].ResponseCut)
			require.Equal(w, strings.Repeat("b", len(a[0].Response)), string(a[0].Response))
			require.InDelta(w, time.Second/watch, len(a[0].Response), 2)
			require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
		}
	})
}

// What a flood can make us read.
func TestFloodsAreNotRead(t *testing.T) {
	for name, reply := range map[string]replier{
		"endless 103s":    flood("", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"),
		"endless headers": flood("HTTP/1.1 200 OK\r\n", "A: b\r\n"),
		"a long header":   flood("HTTP/1.1 200 OK\r\nA: ", "b"),
		"1 GiB":           flood("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", "b"),
		"endless chunks":  flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nb\r\n"),
		"a long chunk":    flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1; ", "b"),
		"a long trailer":  flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n"),
		"no TLS":          flood("", "\x16\x03\x03\x40\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			piped(t, webhook.Config{}, func(w *world, p *pipes) {
				p.handle = p.handler(reply)
				url := pipeURL
				if name == "no TLS" {
					url = "https://127.0.0.1/"
					p.handle = func(c net.Conn) { go io.Copy(io.Discard, c); reply(c, 1) }
				}
				start := time.Now()
				_, a := w.attempt(workspace, webhook.EndpointParams{URL: url})
				require.LessOrEqual(w, time.Since(start), 11*time.Second)
				require.Less(w, p.read.Load(), int64(1<<20))
				require.LessOrEqual(w, len(a.Response), 16<<10)
				w.stop()
				<-p.closed
			})
		})
	}
}

func TestRetryAfterOverTheWire(t *testing.T) {
	const schedule = 5 * time.Minute
	for value, want := range map[string]time.Duration{
		"100":                              schedule, // sooner than the schedule
		"600":                              10 * time.Minute,
		" 600\t":                           10 * time.Minute,
		"99999999999999999999":             24 * time.Hour,
		"86400":                            24 * time.Hour,
		"86401":                            24 * time.Hour,
		"Wed, 01 Jan 9999 00:00:00 GMT":    24 * time.Hour,
		"Sat, 01 Jan 2000 00:30:00 GMT":    30 * time.Minute, // the bubble's time is 2000-01-01
		"Saturday, 01-Jan-00 00:30:00 GMT": 30 * time.Minute,
		"Sat Jan  1 00:30:00 2000":         30 * time.Minute,
		"Fri, 31 Dec 1999 23:59:59 GMT":    schedule,
		"Thu, 01 Jan 1970 00:00:00 GMT":    schedule,
		"-5":                               schedule,
		"+600":                             schedule,
		"1e308":                            schedule,
		"1e3":                              schedule,
		"NaN":                              schedule,
		"Inf":                              schedule,
		"0x258":                            schedule,
		"600.5":                            schedule,
		"600, 700":                         schedule,
		"\u0666\u0660\u0660":               schedule,
		"600\r\nRetry-After: 1200":         10 * time.Minute, // the first
		"":                                 schedule,
	} {
		for _, status := range []int{429, 503, 301, 404} {
			t.Run(fmt.Sprintf("%d/%q", status, value), func(t *testing.T) {
				piped(t, webhook.Config{}, func(w *world, p *pipes) {
					p.handle = p.handler(answering(fmt.Sprintf("HTTP/1.1 %d X\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", status, value)))
					start := time.Now()
					d, _ := w.attempt(workspace, webhook.EndpointParams{URL: pipeURL})
					require.Equal(w, want, d.NextAttemptAt.Sub(start))
				})
			})
		}
	}
}

func TestRetryAfterWithJitterIsNotBeforeItsTime(t *testing.T) {
	piped(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{time.Second}, Jitter: 1}}, func(w *world, p *pipes) {
		p.handle = p.handler(answering("HTTP/1.1 429 X\r\nRetry-After: 100\r\nContent-Length: 0\r\n\r\n"))
		w.endpoint(webhook.EndpointParams{URL: pipeURL})
		w.run()
		later := 0
		for range 20 {
			w.publish(webhook.Event{})
			w.sleep(5 * time.Minute)
			times := p.times()
			require.Zero(w, len(times)%2)
			waited := times[len(times)-1].Sub(times[len(times)-2])
			require.GreaterOrEqual(w, waited, 100*time.Second)
			require.LessOrEqual(w, waited, 200*time.Second+watch)
			if waited > 101*time.Second {
				later++
			}
		}
		require.Positive(w, later)
	})
}

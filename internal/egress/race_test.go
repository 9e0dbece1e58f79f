package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInterleave(t *testing.T) {
	for in, out := range map[string]string{
		"1.0.0.1":                         "1.0.0.1",
		"2000::1 2000::2 1.0.0.1 1.0.0.2": "2000::1 1.0.0.1 2000::2 1.0.0.2",
		"1.0.0.1 1.0.0.2 2000::1":         "1.0.0.1 2000::1 1.0.0.2",
		"::ffff:1.0.0.1 1.0.0.1 2000::1":  "1.0.0.1 2000::1",
		"2000::1 2000::1 2000::2":         "2000::1 2000::2",
		"1.0.0.1 1.0.0.2 1.0.0.3 1.0.0.4 1.0.0.5 1.0.0.6 1.0.0.7 1.0.0.8 2000::1": "1.0.0.1 2000::1 1.0.0.2 1.0.0.3 1.0.0.4 1.0.0.5 1.0.0.6 1.0.0.7",
	} {
		addrs, _ := resolveTo(strings.Fields(in)...)(nil, "")
		want, _ := resolveTo(strings.Fields(out)...)(nil, "")
		require.Equal(t, want, interleave(addrs))
	}
}

func TestRace(t *testing.T) {
	const ms = time.Millisecond
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		plan   []plan
		winner int // -1: none
		took   time.Duration
		starts []time.Duration
	}{
		"the only one":       {[]plan{{after: 5 * ms}}, 0, 5 * ms, []time.Duration{0}},
		"the only one fails": {[]plan{{after: 5 * ms, err: refused}}, -1, 5 * ms, []time.Duration{0}},
		"first":              {[]plan{{after: 299 * ms}, {}, {}}, 0, 299 * ms, []time.Duration{0}},
		"silent first":       {[]plan{{after: time.Hour}, {after: 10 * ms}}, 1, 310 * ms, []time.Duration{0, 300 * ms}},
		"late first":         {[]plan{{after: 400 * ms}, {after: time.Hour}}, 0, 400 * ms, []time.Duration{0, 300 * ms}},
		"failing first":      {[]plan{{after: 20 * ms, err: refused}, {after: 10 * ms}}, 1, 30 * ms, []time.Duration{0, 20 * ms}},
		"failing while others run": {
			[]plan{{after: time.Hour}, {after: 50 * ms, err: refused}, {after: 10 * ms}}, 2, 360 * ms, []time.Duration{0, 300 * ms, 350 * ms},
		},
		"all fail":   {[]plan{{after: 10 * ms, err: refused}, {after: 10 * ms, err: refused}, {after: 10 * ms, err: refused}}, -1, 30 * ms, []time.Duration{0, 10 * ms, 20 * ms}},
		"all silent": {[]plan{{after: time.Hour}, {after: time.Hour}}, -1, 10 * time.Second, []time.Duration{0, 300 * ms}},
		"two at once": {
			[]plan{{after: 500 * ms, deaf: true}, {after: 200 * ms, deaf: true}, {after: 900 * ms}}, -2, 500 * ms, []time.Duration{0, 300 * ms},
		},
		"a deaf loser": {[]plan{{after: 700 * ms, deaf: true}, {after: 10 * ms}}, 1, 700 * ms, []time.Duration{0, 300 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				addrs := make([]netip.Addr, len(test.plan))
				for i := range addrs {
					addrs[i] = netip.AddrFrom4([4]byte{8, 8, 8, byte(i)})
				}
				conns := make([]*closingConn, len(addrs))
				var mu sync.Mutex
				starts := make([]time.Duration, 0, len(addrs))
				conn, err := race(ctx, addrs, func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
					i := addr.As4()[3]
					mu.Lock()
					starts = append(starts, time.Since(start))
					mu.Unlock()
					done := ctx.Done()
					if test.plan[i].deaf {
						done = nil
					}
					select {
					case <-time.After(test.plan[i].after):
					case <-done:
						return nil, ctx.Err()
					}
					if err := test.plan[i].err; err != nil {
						return nil, err
					}
					conns[i] = &closingConn{}
					return conns[i], nil
				})
				require.Equal(t, test.took, time.Since(start))
				require.Equal(t, test.starts, starts)
				open := 0
				for i, c := range conns {
					if c != nil && !c.closed {
						open++
						require.True(t, test.winner == i || test.winner == -2)
						require.Same(t, c, conn)
					}
				}
				if test.winner == -1 {
					require.Error(t, err)
					require.Zero(t, open)
				} else {
					require.NoError(t, err)
					require.Equal(t, 1, open)
				}
				synctest.Wait() // every goroutine has ended, or the bubble says so
			})
		})
	}
}

// A plan is what one address does.
type plan struct {
	after time.Duration
	err   error
	deaf  bool // to the end of the context
}

type closingConn struct {
	net.Conn
	closed bool
}

func (c *closingConn) Close() error { c.closed = true; return nil }

func TestRaceOverSockets(t *testing.T) {
	r := serve(t, answers(ok))
	c := newClient(t, local)
	to := func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
		return c.dialer.connectTo(ctx, addr, r.port())
	}
	conn, err := race(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")}, to)
	require.NoError(t, err)
	require.Equal(t, r.host, conn.RemoteAddr().String())
	conn.Close()
	_, err = race(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")}, to)
	require.Equal(t, ConnectionRefused, classify(t.Context(), err))
}

package egress

import (
	"context"
	"net"
	"net/netip"
	"time"
)

const (
	maxDials = 8                      // addresses tried per name
	stagger  = 300 * time.Millisecond // between them, RFC 8305 §5
)

// interleave puts the families by turns, the first address's family first,
// drops duplicates and keeps maxDials (RFC 8305 §4).
func interleave(addrs []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr
	seen := make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		if addr = addr.Unmap(); seen[addr] {
			continue
		}
		seen[addr] = true
		i := 0
		if addr.Is4() != addrs[0].Unmap().Is4() {
			i = 1
		}
		families[i] = append(families[i], addr)
	}
	mixed := make([]netip.Addr, 0, min(len(seen), maxDials))
	for i := 0; len(mixed) < cap(mixed); i++ {
		for _, family := range families {
			if i < len(family) && len(mixed) < cap(mixed) {
				mixed = append(mixed, family[i])
			}
		}
	}
	return mixed
}

// race connects to the first of addrs that answers. Each starts when the one
// before it failed or has been silent for the stagger, and all share ctx's
// time. It returns when every one of them has ended; the losers are closed.
func race(ctx context.Context, addrs []netip.Addr, connect func(context.Context, netip.Addr) (net.Conn, error)) (net.Conn, error) {
	if len(addrs) == 1 {
		return connect(ctx, addrs[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var won net.Conn
	var first error
	for next, running := 0, 0; ; {
		select {
		case <-timer.C:
			if won != nil || next == len(addrs) {
				continue
			}
			addr := addrs[next]
			next++
			running++
			go func() {
				conn, err := connect(ctx, addr)
				results <- result{conn, err}
			}()
			timer.Reset(stagger)
		case r := <-results:
			running--
			switch {
			case r.err != nil:
				if first == nil {
					first = r.err
				}
				timer.Reset(0)
			case won != nil:
				_ = r.conn.Close()
			default:
				won = r.conn
				cancel()
			}
			switch {
			case running > 0:
			case won != nil:
				return won, nil
			case next == len(addrs) || ctx.Err() != nil:
				return nil, first
			}
		}
	}
}

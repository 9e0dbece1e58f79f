package webhook_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A nameserver answers over UDP and, what is too long for that, over TCP.
type nameserver struct {
	address string
	answer  func(name string) []netip.Addr // nil: silence; empty: no such name

	mu      sync.Mutex
	queries map[string]int // by name, for IPv4 addresses
}

func serveNames(t testing.TB, answer func(name string) []netip.Addr) *nameserver {
	s := &nameserver{answer: answer, queries: map[string]int{}}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = packets.LocalAddr().String()
	streams, err := net.Listen("tcp", s.address)
	require.NoError(t, err)
	var group sync.WaitGroup
	t.Cleanup(func() { packets.Close(); streams.Close(); group.Wait() })
	group.Go(func() {
		for b := make([]byte, 4096); ; {
			n, from, err := packets.ReadFrom(b)
			if err != nil {
				return
			}
			if reply := s.reply(b[:n], 512); reply != nil {
				packets.WriteTo(reply, from)
			}
		}
	})
	group.Go(func() {
		for {
			c, err := streams.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer c.Close()
				size := make([]byte, 2)
				if _, err := io.ReadFull(c, size); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(size))
				if _, err := io.ReadFull(c, query); err != nil {
					return
				}
				reply := s.reply(query, 1<<16-1)
				c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
			})
		}
	})
	return s
}

// resolver is Go's own, asking this server alone.
func (s *nameserver) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.address)
	}}
}

// reply answers a query of one question (RFC 1035, section 4).
func (s *nameserver) reply(query []byte, limit int) []byte {
	var labels []string
	end := 12
	for query[end] != 0 {
		labels = append(labels, string(query[end+1:][:query[end]]))
		end += 1 + int(query[end])
	}
	question := query[12 : end+5]
	wanted := binary.BigEndian.Uint16(query[end+1:])
	addrs := s.answer(strings.ToLower(strings.Join(labels, ".")))
	if wanted == 1 {
		s.mu.Lock()
		s.queries[strings.Join(labels, ".")]++
		s.mu.Unlock()
	}
	if addrs == nil {
		return nil
	}
	var records []byte
	count := 0
	for _, addr := range addrs {
		if (wanted == 1) != addr.Is4() || wanted != 1 && wanted != 28 {
			continue
		}
		count++
		records = append(records, 0xc0, 12, byte(wanted>>8), byte(wanted), 0, 1, 0, 0, 0, 0, 0, byte(addr.BitLen()/8))
		records = append(records, addr.AsSlice()...)
	}
	flags := uint16(0x8180)
	if len(addrs) == 0 {
		flags |= 3 // no such name
	}
	if 12+len(question)+len(records) > limit {
		flags, records, count = flags|0x200, nil, 0 // truncated: ask again over TCP
	}
	reply := append([]byte{}, query[:2]...)
	for _, n := range []uint16{flags, 1, uint16(count), 0, 0} {
		reply = binary.BigEndian.AppendUint16(reply, n)
	}
	return append(append(reply, question...), records...)
}

// asked returns how often a name was asked for.
func (s *nameserver) asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[name]
}

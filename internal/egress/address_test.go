package egress

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var everyIPv4 = flag.Bool("every-ipv4", false, "compare the address policy with its second opinion on all of IPv4 (minutes)")

const refusedAddresses = `
	127.0.0.1 127.0.0.2 0.0.0.0 0.0.0.1 10.0.0.1 172.16.0.1 192.168.0.1 169.254.169.254
	100.64.0.1 100.100.100.200 168.63.129.16 192.0.0.192 192.0.2.1 198.18.0.1 192.88.99.1 224.0.0.1 239.255.255.250
	240.0.0.1 255.255.255.255 ::1 :: fe80::1 fec0::1 fd00:ec2::254 ::ffff:127.0.0.1 ::127.0.0.1 ::ffff:0:7f00:1
	64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::a9fe:a9fe 2002:7f00:1::1 2001:0:4136:e378:8000:63bf:3fff:fdd2
	2001:db8::1 3fff::1 5f00::1 100::1 100:0:0:1::1 4000::1
	10.255.255.255 100.127.255.255 172.31.255.255 192.0.0.9 192.0.0.10 192.31.196.1 192.52.193.1 192.175.48.1
	198.19.255.255 198.51.100.1 203.0.113.1 2001:1::1 2001:20::1 2001:1ff:ffff::1 2620:4f:8000::1 3fff:fff:ffff::1
	ff02::1 ff0e::1 fd20:ce::254 ::ffff:10.0.0.1 ::ffff:168.63.129.16 ::8.8.8.8 1fff::1
	fe80::1%lo 127.0.0.1%lo 8.8.8.8%lo 2606:4700:4700::1111%eth0 ::ffff:8.8.8.8%lo`

const acceptedAddresses = `
	8.8.8.8 2606:4700:4700::1111
	1.0.0.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15 168.63.129.17
	169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255
	198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 2000::1 2001:200::1 2001:db7::1 2001:db9::1 2003::1 2620:4f:8001::1
	3ffe:ffff::1 3fff:1000::1`

func TestPublic(t *testing.T) {
	for text := range strings.FieldsSeq(refusedAddresses) {
		// A zone on an IPv4 address does not parse: the zero Addr.
		addr, err := netip.ParseAddr(text)
		require.False(t, Public(addr), text)
		require.False(t, Options{}.Allowed(addr), text)
		require.True(t, err == nil || strings.Contains(text, "%"), text)
	}
	for text := range strings.FieldsSeq(acceptedAddresses) {
		require.True(t, Public(netip.MustParseAddr(text)), text)
		require.True(t, Options{}.Allowed(netip.MustParseAddr(text)), text)
	}
	require.False(t, Public(netip.Addr{}))
}

var everything = Options{AllowPrefixes: prefixes("0.0.0.0/0", "::/0")}

func TestAllowed(t *testing.T) {
	loopback := Options{AllowLoopback: true}
	prefix := func(texts ...string) Options { return Options{AllowPrefixes: prefixes(texts...)} }
	for _, test := range []struct {
		options Options
		addr    string
		want    bool
	}{
		{loopback, "127.0.0.1", true},
		{loopback, "127.255.255.255", true},
		{loopback, "::1", true},
		{loopback, "::ffff:127.0.0.1", true},
		{loopback, "::127.0.0.1", false},
		{loopback, "::ffff:127.0.0.1%lo", false}, // Unmap drops the zone
		{loopback, "::1%lo", false},
		{loopback, "0.0.0.0", false},
		{loopback, "::", false},
		{loopback, "10.0.0.1", false},
		{loopback, "128.0.0.0", true}, // public
		{prefix("10.1.0.0/16"), "10.1.2.3", true},
		{prefix("10.1.0.0/16"), "::ffff:10.1.2.3", true},
		{prefix("10.1.0.0/16"), "10.2.0.1", false},
		{prefix("10.1.0.0/16"), "127.0.0.1", false},
		{prefix("10.1.2.3/16"), "10.1.9.9", true}, // not masked
		{prefix("::ffff:10.1.0.0/112"), "10.1.2.3", true},
		{prefix("::ffff:10.1.0.0/112"), "::ffff:10.1.2.3", true},
		{prefix("::ffff:10.1.0.0/112"), "10.2.0.1", false},
		{prefix("fd00::/8"), "fd12::1", true},
		{prefix("fd00::/8"), "fd12::1%eth0", false},
		{prefix("fd00::/8"), "fc00::1", false},
		{everything, "127.0.0.1", true},
		{everything, "fe80::1", true},
		{everything, "fe80::1%eth0", false},
	} {
		require.Equal(t, test.want, test.options.Allowed(netip.MustParseAddr(test.addr)), "%v %s", test.options.AllowPrefixes, test.addr)
	}
	require.False(t, everything.Allowed(netip.Addr{}))
}

// secondOpinion is the IPv4 policy once more, as ranges of the address as a
// number, written from the registry's blocks without looking at special4.
func secondOpinion(n uint32) bool {
	a, b, c, d := byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	switch {
	case a == 0, a == 10, a == 127, a >= 224:
		return false
	case a == 100 && b >= 64 && b <= 127:
		return false
	case a == 168 && b == 63 && c == 129 && d == 16:
		return false
	case a == 169 && b == 254:
		return false
	case a == 172 && b >= 16 && b <= 31:
		return false
	case a == 192 && b == 0:
		return c != 0 && c != 2
	case a == 192 && b == 31:
		return c != 196
	case a == 192 && b == 52:
		return c != 193
	case a == 192 && b == 88:
		return c != 99
	case a == 192 && b == 168:
		return false
	case a == 192 && b == 175:
		return c != 48
	case a == 198 && (b == 18 || b == 19):
		return false
	case a == 198 && b == 51:
		return c != 100
	case a == 203 && b == 0:
		return c != 113
	}
	return true
}

func agree(t *testing.T, n uint32) bool {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	addr := netip.AddrFrom4(b)
	if Public(addr) != secondOpinion(n) {
		t.Errorf("%s: public is %t, the second opinion %t", addr, Public(addr), secondOpinion(n))
		return false
	}
	return true
}

func TestSecondOpinion(t *testing.T) {
	for _, p := range special4 { // the edges of every block
		first := binary.BigEndian.Uint32(p.Addr().AsSlice())
		last := first | uint32(1<<(32-p.Bits())-1)
		for _, n := range []uint32{first - 1, first, first + 1, last - 1, last, last + 1} {
			agree(t, n)
		}
	}
	for block := range uint32(1 << 18) { // each /18 somewhere, each /24 of the crowded 192.0.0.0/8
		agree(t, block<<14|rand.Uint32N(1<<14))
	}
	for block := range uint32(1 << 16) {
		agree(t, 192<<24|block<<8|rand.Uint32N(1<<8))
	}
}

func TestSecondOpinionEverywhere(t *testing.T) {
	if !*everyIPv4 {
		t.Skip("needs -every-ipv4")
	}
	var group sync.WaitGroup
	workers := uint64(runtime.GOMAXPROCS(0))
	for w := range workers {
		group.Go(func() {
			for n := w; n < 1<<32; n += workers {
				if !agree(t, uint32(n)) {
					return
				}
			}
		})
	}
	group.Wait()
}

// secondOpinion6 is the IPv6 policy once more, by groups of 16 bits, written
// from the registry without looking at special6.
func secondOpinion6(g [8]uint16) bool {
	if g[0]|g[1]|g[2]|g[3]|g[4] == 0 && g[5] == 0xffff {
		return secondOpinion(uint32(g[6])<<16 | uint32(g[7]))
	}
	switch {
	case g[0] < 0x2000, g[0] > 0x3fff:
		return false
	case g[0] == 0x2001:
		return g[1] > 0x1ff && g[1] != 0xdb8
	case g[0] == 0x2002:
		return false
	case g[0] == 0x2620:
		return g[1] != 0x4f || g[2] != 0x8000
	case g[0] == 0x3fff:
		return g[1] > 0xfff
	}
	return true
}

func agree6(t *testing.T, g [8]uint16) {
	t.Helper()
	var b [16]byte
	for i, group := range g {
		binary.BigEndian.PutUint16(b[2*i:], group)
	}
	addr := netip.AddrFrom16(b)
	if Public(addr) != secondOpinion6(g) {
		t.Errorf("%s: public is %t, the second opinion %t", addr, Public(addr), secondOpinion6(g))
	}
	if zoned := addr.WithZone("eth0"); Public(zoned) || everything.Allowed(zoned) {
		t.Errorf("%s passes", zoned)
	}
}

// groups is an address that begins so and goes on at random.
func groups(first ...uint16) (g [8]uint16) {
	for i := copy(g[:], first); i < len(g); i++ {
		g[i] = uint16(rand.Uint32())
	}
	return g
}

func TestSecondOpinion6(t *testing.T) {
	for first := range 1 << 16 { // every /16, and every /32 and /48 near a block
		agree6(t, groups(uint16(first)))
		agree6(t, groups(0x2001, uint16(first)))
		agree6(t, groups(0x2620, uint16(first)))
		agree6(t, groups(0x2620, 0x4f, uint16(first)))
		agree6(t, groups(0x3fff, uint16(first)))
		agree6(t, groups(0, 0, 0, 0, 0, uint16(first)))
		agree6(t, groups(0, 0, 0, 0, uint16(first), 0xffff))
		agree6(t, groups(uint16(first), 0, 0, 0, 0, 0xffff))
	}
	for _, p := range append([]netip.Prefix{public6}, special6...) { // the edges of every block
		first := p.Masked().Addr()
		end := first.As16()
		for bit := p.Bits(); bit < 128; bit++ {
			end[bit/8] |= 1 << (7 - bit%8)
		}
		last := netip.AddrFrom16(end)
		for _, addr := range []netip.Addr{first.Prev(), first, first.Next(), last.Prev(), last, last.Next()} {
			var g [8]uint16
			b := addr.As16()
			for i := range g {
				g[i] = binary.BigEndian.Uint16(b[2*i:])
			}
			agree6(t, g)
		}
	}
}

// The mapped form of an IPv4 address has its verdict, whatever the options;
// the other forms that hold one are never public.
func TestIPv4InIPv6(t *testing.T) {
	options := []Options{{}, {AllowLoopback: true}, {AllowPrefixes: prefixes("10.0.0.0/8", "::ffff:192.168.0.0/112")}, everything}
	for block := range uint32(1 << 16) {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], block<<16|rand.Uint32N(1<<16))
		addr := netip.AddrFrom4(b)
		mapped := netip.AddrFrom16(addr.As16())
		for _, o := range options {
			if o.Allowed(addr) != o.Allowed(mapped) {
				t.Errorf("%s is allowed: %t, and mapped: %t", addr, o.Allowed(addr), o.Allowed(mapped))
			}
			if o.Allowed(mapped.WithZone("1")) {
				t.Errorf("%s%%1 is allowed", mapped)
			}
		}
		for name, other := range map[string]netip.Addr{
			"compatible": embed(addr, netip.IPv6Unspecified(), 12), "translated": embed(addr, netip.MustParseAddr("::ffff:0:0:0"), 12),
			"NAT64": embed(addr, netip.MustParseAddr("64:ff9b::"), 12), "local NAT64": embed(addr, netip.MustParseAddr("64:ff9b:1::"), 12),
			"6to4": embed(addr, netip.MustParseAddr("2002::"), 2), "Teredo": embed(addr, netip.MustParseAddr("2001::"), 4),
		} {
			if Public(other) {
				t.Errorf("%s is public: %s of %s", other, name, addr)
			}
		}
	}
}

// embed puts an IPv4 address into another at a byte.
func embed(addr, into netip.Addr, at int) netip.Addr {
	b, v4 := into.As16(), addr.As4()
	copy(b[at:], v4[:])
	return netip.AddrFrom16(b)
}

func FuzzAddress(f *testing.F) {
	for text := range strings.FieldsSeq(refusedAddresses + acceptedAddresses) {
		f.Add(text)
		f.Add("[" + text + "]:443")
	}
	for _, text := range []string{"127.0.0.1%lo:80", "[::1%lo]:80", "", ":", "[", "8.8.8.8:99999", "8.8.8.8"} {
		f.Add(text)
	}
	guard := newDialer(Options{})
	f.Fuzz(func(t *testing.T, text string) {
		addrPort, err := netip.ParseAddrPort(text)
		passed := guard.control("tcp", text, nil) == nil
		require.Equal(t, err == nil && Public(addrPort.Addr()), passed)

		addr, err := netip.ParseAddr(text)
		if err != nil || !Public(addr) {
			return
		}
		require.Empty(t, addr.Zone())
		plain := addr.Unmap()
		require.True(t, Public(plain))
		require.True(t, Public(netip.AddrFrom16(addr.As16())), "the mapped form has another verdict")
		require.False(t, Public(netip.AddrFrom16(addr.As16()).WithZone("x")))
		require.True(t, plain.IsGlobalUnicast() && !plain.IsPrivate(), "not a global unicast address")
	})
}

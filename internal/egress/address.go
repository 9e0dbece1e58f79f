package egress

import "net/netip"

// special4 is IPv4 that is not public: every block of the IANA IPv4
// Special-Purpose Address Registry (RFC 6890), whether or not the registry
// calls it globally reachable, multicast (RFC 5771), and one cloud's metadata
// address. Blocks inside a listed block are left out.
var special4 = prefixes(
	"0.0.0.0/8",        // this network, RFC 791 §3.2
	"10.0.0.0/8",       // private use, RFC 1918
	"100.64.0.0/10",    // shared address space (CGNAT), RFC 6598; some clouds' metadata
	"127.0.0.0/8",      // loopback, RFC 1122 §3.2.1.3
	"168.63.129.16/32", // Azure's platform address: public space, answered by the host itself
	"169.254.0.0/16",   // link local, RFC 3927; cloud metadata
	"172.16.0.0/12",    // private use, RFC 1918
	"192.0.0.0/24",     // IETF protocol assignments, RFC 6890 §2.1
	"192.0.2.0/24",     // documentation, RFC 5737
	"192.31.196.0/24",  // AS112, RFC 7535
	"192.52.193.0/24",  // AMT, RFC 7450
	"192.88.99.0/24",   // 6to4 relay anycast, RFC 7526
	"192.168.0.0/16",   // private use, RFC 1918
	"192.175.48.0/24",  // AS112 direct delegation, RFC 7534
	"198.18.0.0/15",    // benchmarking, RFC 2544
	"198.51.100.0/24",  // documentation, RFC 5737
	"203.0.113.0/24",   // documentation, RFC 5737
	"224.0.0.0/4",      // multicast, RFC 5771
	"240.0.0.0/4",      // reserved, RFC 1112 §4; limited broadcast, RFC 8190
)

// public6 is the only IPv6 space that IANA has given out for global unicast
// (RFC 4291 §2.4). Loopback, mapped, NAT64, discard-only, segment routing,
// unique local, link local and multicast addresses are all outside of it.
var public6 = netip.MustParsePrefix("2000::/3")

// special6 is what the IANA IPv6 Special-Purpose Address Registry (RFC 6890)
// takes out of public6.
var special6 = prefixes(
	"2001::/23",         // IETF protocol assignments, RFC 2928: Teredo, benchmarking, ORCHID and more
	"2001:db8::/32",     // documentation, RFC 3849
	"2002::/16",         // 6to4, RFC 3056: holds an IPv4 address
	"2620:4f:8000::/48", // AS112 direct delegation, RFC 7534
	"3fff::/20",         // documentation, RFC 9637
)

var (
	loopback4 = netip.MustParsePrefix("127.0.0.0/8")
	loopback6 = netip.IPv6Loopback()
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// Public reports whether addr is a globally routable unicast address. An
// IPv4-mapped IPv6 address has the verdict of its IPv4 address; an address
// with a zone and the zero Addr are not public.
func Public(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	if addr.Is4() {
		return !within(special4, addr)
	}
	return public6.Contains(addr) && !within(special6, addr)
}

// Allowed reports whether a connection to addr may be opened: it is public,
// or AllowLoopback or AllowPrefixes permits it. An address with a zone is
// never allowed.
func (o Options) Allowed(addr netip.Addr) bool { return o.allowed(addr) }

func (o *Options) allowed(addr netip.Addr) bool {
	if Public(addr) {
		return true
	}
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	if o.AllowLoopback && isLoopback(addr) {
		return true
	}
	for _, p := range o.AllowPrefixes {
		if unmapPrefix(p).Contains(addr) {
			return true
		}
	}
	return false
}

func isLoopback(addr netip.Addr) bool { return loopback4.Contains(addr) || addr == loopback6 }

// unmapPrefix is needed because Contains never matches a mapped prefix with
// an IPv4 address.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

func within(list []netip.Prefix, addr netip.Addr) bool {
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

//go:build netcgo

package egress

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// The C library reads these as addresses. They are refused as URLs; even were
// they not, the guard sees what they mean.
func TestWhatTheCLibraryTakesForAddresses(t *testing.T) {
	loopback := 0
	for _, host := range []string{"127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "127.0.0.0x1", "017700000001", "localhost"} {
		_, err := CheckURL("https://"+host+"/", Options{})
		require.Error(t, err)
		addrs, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", host)
		for _, addr := range addrs {
			require.False(t, Public(addr), "%s is %s", host, addr)
			if addr.Unmap() == netip.MustParseAddr("127.0.0.1") {
				loopback++
			}
		}
		_, refused := newDialer(Options{}).resolve(t.Context(), host)
		if err == nil {
			require.Equal(t, AddressRefused, refused, host)
		} else {
			require.Error(t, refused)
		}
	}
	require.GreaterOrEqual(t, loopback, 4, "the C library was not asked")
}

package webhook_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// resolverFunc is a resolver of the host's.
type resolverFunc func(ctx context.Context, host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return f(ctx, host)
}

func resolvesTo(addrs ...string) resolverFunc {
	return func(context.Context, string) (list []netip.Addr, err error) {
		for _, a := range addrs {
			list = append(list, netip.MustParseAddr(a))
		}
		return list, nil
	}
}

// dispatcherOnResolver is a world in which every name is 127.0.0.1, unless
// config has a resolver.
func dispatcherOnResolver(t testing.TB, config webhook.Config) *world {
	if config.Egress.Resolver == nil {
		config.Egress.Resolver = resolvesTo("127.0.0.1")
	}
	return dispatcherOn(t, memorystore.New(memorystore.Options{}), config)
}

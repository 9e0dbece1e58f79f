package webhook

import (
	"context"
	"net"

	"github.com/elido-app/webhook/internal/egress"
	"github.com/elido-app/webhook/store"
)

// DialWith makes d open its connections with dial. All but the operating
// system's part of a request is as ever, the address guard included.
func (d *Dispatcher) DialWith(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	o := d.egressOptions()
	o.Dial = dial
	client, err := egress.New(o)
	if err != nil {
		panic(err)
	}
	d.client = client
}

// SealCredentials seals as a channel's credentials are sealed.
func (d *Dispatcher) SealCredentials(s Secret, workspaceID, endpointID int64) store.Sealed {
	return d.keys.seal(s, sealCredentials, workspaceID, endpointID)
}

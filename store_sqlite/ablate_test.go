//go:build cgo

package sqlitestore

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

func cpuNow() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestAblate(t *testing.T) {
	for _, drop := range strings.Split(os.Getenv("DROP")+";", ";") {
		st := openNew(t)
		var es []store.Endpoint
		for range 10 {
			es = append(es, createEndpoint(t, st))
		}
		for _, ix := range strings.Fields(drop) {
			onWriter(t, st, "DROP INDEX webhook_deliveries_"+ix)
		}
		n := 0
		payload := make([]byte, 700)
		var pub, cl, rec time.Duration
		now := time.UnixMilli(2000)
		headers := map[string]string{"Content-Type": "application/json", "User-Agent": "Elido-Webhooks/1.0", "X-Elido-Signature": "[redacted]", "X-Webhook-Delivery": "12345", "X-Webhook-Event": "link.created", "X-Webhook-Timestamp": "1789981200"}
		total := 0
		for round := range 40 {
			c0 := cpuNow()
			for range 10 {
				var evs []store.NewEvent
				for range 100 {
					n++
					evs = append(evs, store.NewEvent{ID: fmt.Sprintf("evt_%020d", n), WorkspaceID: 1, EndpointID: es[n%10].ID, Type: "link.created", Matches: []string{"link.created"}, Payload: payload, Budget: 3})
				}
				_, err := st.Publish(t.Context(), store.PublishParams{Now: now, Events: evs})
				require.NoError(t, err)
			}
			c1 := cpuNow()
			pub += c1 - c0
			for k := range 4 {
				c1 = cpuNow()
				tok := int64(round*10 + k + 1)
				r, err := st.Claim(t.Context(), store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{Token: tok, Until: now.Add(time.Minute), Room: store.Room{Limit: 250, PerEndpoint: 25}}})
				require.NoError(t, err)
				require.Len(t, r.Leases, 250)
				c2 := cpuNow()
				p := store.RecordParams{Now: now}
				for _, l := range r.Leases {
					p.Outcomes = append(p.Outcomes, store.Outcome{DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: tok, Status: store.StatusDelivered,
						Attempt: store.Attempt{StartedAt: now, Latency: time.Millisecond, Status: 200, Headers: headers, Response: []byte("ok")}})
				}
				_, err = st.Record(t.Context(), p)
				require.NoError(t, err)
				c3 := cpuNow()
				cl += c2 - c1
				rec += c3 - c2
				total += 250
			}
		}
		f := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(total) }
		t.Logf("drop %-40s publish %.2f claim %.2f record %.2f sum %.2f", drop, f(pub), f(cl), f(rec), f(pub+cl+rec))
	}
}

package storetest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/elido-app/webhook/store"
)

// Bench measures publishing, and claiming and recording in one call. Each
// sub-benchmark calls open for a store of its own.
func Bench(b *testing.B, open func(b *testing.B) store.Store) {
	b.Run("publish/single", func(b *testing.B) { benchPublish(b, open(b), 1) })
	b.Run("publish/batch", func(b *testing.B) { benchPublish(b, open(b), 100) })
	b.Run("claim and record/batch", func(b *testing.B) { benchRecord(b, open(b), 100) })
}

// bench is a trial that ends the benchmark when something goes wrong.
func bench(b *testing.B, st store.Store, story func(t *trial)) {
	b.Helper()
	if err := tell(context.Background(), st, story); err != nil {
		b.Fatal(err)
	}
}

// templates are events of 1 KiB, a typical envelope.
func (t *trial) templates(n int) []store.NewEvent {
	payload := make([]byte, 1<<10)
	events := make([]store.NewEvent, n)
	for i := range events {
		events[i] = t.event(home)
		events[i].Payload = payload
	}
	return events
}

// rename gives events new ids, so that they can be published again.
func (t *trial) rename(events []store.NewEvent) []store.NewEvent {
	for i := range events {
		events[i].ID = "evt_" + strconv.FormatInt(t.next(), 10)
	}
	return events
}

func benchPublish(b *testing.B, st store.Store, batch int) {
	bench(b, st, func(t *trial) {
		t.endpoint()
		b.ReportAllocs()
		now := at(0)
		events := t.templates(batch)
		for b.Loop() {
			now = now.Add(time.Millisecond)
			t.publish(now, t.rename(events)...)
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "deliveries/s")
	})
}

// benchRecord records a batch and claims the next in one call, as a busy
// Dispatcher does, with a backlog behind ten endpoints.
func benchRecord(b *testing.B, st store.Store, batch int) {
	const backlog = 10_000
	bench(b, st, func(t *trial) {
		endpoints := make([]store.Endpoint, 10)
		for i := range endpoints {
			endpoints[i] = t.endpoint()
		}
		b.ReportAllocs()
		now := at(0)
		left := 0
		var outcomes []store.Outcome
		for b.Loop() {
			now = now.Add(time.Millisecond)
			if left < batch {
				b.StopTimer()
				t.refill(endpoints, backlog, now)
				left += backlog
				b.StartTimer()
			}
			lease := t.lease(now)
			lease.Room.Limit = batch
			r := t.recordWith(store.RecordParams{
				Now: now, Outcomes: outcomes, Health: &policy,
				Claim: &store.ClaimParams{Now: now, LeaseParams: lease},
			})
			t.same(len(r.Claim.Leases), batch, "number of leases")
			left -= batch
			outcomes = outcomes[:0]
			for _, l := range r.Claim.Leases {
				o := delivered(l)
				o.Health = store.HealthSuccess
				outcomes = append(outcomes, o)
			}
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "deliveries/s")
	})
}

// refill publishes n deliveries, and prunes what was done so that the store
// does not grow with b.N.
func (t *trial) refill(endpoints []store.Endpoint, n int, now time.Time) {
	for t.maintain(store.MaintainParams{Now: now, PruneBefore: now}).More {
	}
	events := t.templates(1000)
	for i := range events {
		events[i].EndpointID = endpoints[i%len(endpoints)].ID
	}
	for i := 0; i < n; i += len(events) {
		t.publish(now, t.rename(events)...)
	}
}

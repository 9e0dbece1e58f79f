package sqlitestore_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store { return openNew(b) })
}

// BenchmarkPublishTogether has 64 goroutines publish single events, which share
// commits.
func BenchmarkPublishTogether(b *testing.B) {
	st := openNew(b)
	e := createEndpoint(b, st)
	payload := make([]byte, 600)
	var last atomic.Int64
	b.SetParallelism(32) // times GOMAXPROCS
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, err := st.Publish(context.Background(), store.PublishParams{
				Now: time.UnixMilli(1),
				Events: []store.NewEvent{{
					ID: "evt_" + strconv.FormatInt(last.Add(1), 10), WorkspaceID: e.WorkspaceID, Type: "link.created",
					Matches: []string{"link.created", "link.*"}, Payload: payload, Budget: 3,
				}},
			})
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

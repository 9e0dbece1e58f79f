package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook"
)

// Fan-out: publishing to a workspace with 1,000 endpoints, of which 10 want the
// event, in a store with very many endpoints; and the same in a store that has
// just those 10. In turns, nothing is delivered.

const (
	fanoutMatching  = 10
	fanoutWorkspace = 1000 // endpoints in each workspace
)

type fanoutSpec struct {
	Store     string `json:"store"`
	Dir       string `json:"dir"`
	Endpoints int    `json:"endpoints"` // in all
	Publishes int    `json:"publishes"`
}

type fanoutResult struct {
	Created time.Duration  `json:"created"` // how long creating the many took
	Cases   [3]fanoutTimes `json:"cases"`
}

// fanoutTimes are what each call took, with few endpoints and with many.
type fanoutTimes struct {
	Few  []time.Duration `json:"few"`
	Many []time.Duration `json:"many"`
}

var fanoutCases = [3]string{"one event", "100 events", "one event, after an endpoint changed"}

func fanoutChild(ctx context.Context, spec fanoutSpec) (r fanoutResult, err error) {
	var stores [2]*ours
	for i := range stores {
		st, err := openStore(ctx, spec.Store, filepath.Join(spec.Dir, fmt.Sprint(i)))
		if err != nil {
			return r, err
		}
		o, err := newDispatcher(st)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, o.closeNow()) }()
		stores[i] = o
	}
	few, many := stores[0], stores[1]
	if err := createMany(ctx, few, fanoutMatching, fanoutMatching); err != nil {
		return r, err
	}
	began := time.Now()
	if err := createMany(ctx, many, spec.Endpoints, fanoutWorkspace); err != nil {
		return r, err
	}
	r.Created = time.Since(began)
	for c, name := range fanoutCases {
		batch := 1
		if c == 1 {
			batch = 100
		}
		for i := range spec.Publishes {
			for _, o := range [2]*ours{stores[i%2], stores[1-i%2]} {
				if c == 2 {
					text := fmt.Sprint(i)
					if _, err := o.UpdateEndpoint(ctx, workspace, 1, webhook.EndpointUpdate{Description: &text}); err != nil {
						return r, err
					}
				}
				events := newBatch(batch)
				began := time.Now()
				receipts, err := o.receipts(ctx, events)
				took := time.Since(began)
				if err != nil {
					return r, fmt.Errorf("%s: %w", name, err)
				}
				if len(receipts) != batch || len(receipts[0].DeliveryIDs) != fanoutMatching {
					return r, fmt.Errorf("%s: not %d deliveries", name, fanoutMatching)
				}
				if o == few {
					r.Cases[c].Few = append(r.Cases[c].Few, took)
				} else {
					r.Cases[c].Many = append(r.Cases[c].Many, took)
				}
			}
		}
	}
	return r, nil
}

func (o *ours) receipts(ctx context.Context, batch []json.RawMessage) ([]webhook.Receipt, error) {
	events := make([]webhook.Event, len(batch))
	for i := range batch {
		events[i] = webhook.Event{Type: eventType, WorkspaceID: workspace, Data: batch[i]}
	}
	if len(events) == 1 {
		r, err := o.Publish(ctx, events[0])
		return []webhook.Receipt{r}, err
	}
	return o.PublishMany(ctx, events)
}

// createMany creates n endpoints in workspaces of some size. In each, every so
// many-th wants the event, 10 in all.
func createMany(ctx context.Context, o *ours, n, size int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				events := []string{"domain.*"}
				if i%size%(size/fanoutMatching) == 0 {
					events = []string{"link.*"}
				}
				_, _, err := o.CreateEndpoint(ctx, webhook.EndpointParams{
					WorkspaceID: int64(workspace + i/size), URL: "http://127.0.0.1:9/" + fmt.Sprint(i), Events: events,
				})
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (b *bench) fanout(ctx context.Context) error {
	spec := fanoutSpec{Endpoints: 100_000, Publishes: 500}
	if b.quick {
		spec.Endpoints, spec.Publishes = 5_000, 60
	}
	b.title("Fan-out", "%d publishes to a workspace with %d endpoints, of which %d match, %d endpoints in all; in turns with the same, with %d endpoints in all",
		spec.Publishes, fanoutWorkspace, fanoutMatching, spec.Endpoints, fanoutMatching)
	t := b.table("", "few µs: median", "mean", "many µs: median", "mean", "ratio of medians")
	for _, name := range []string{"sqlite", "memory"} {
		dir, remove, err := b.tempDir()
		if err != nil {
			return err
		}
		spec.Store, spec.Dir = name, dir
		b.progress("%s: creating %d endpoints", name, spec.Endpoints)
		r, err := spawn[fanoutResult](ctx, b.limit(3*time.Minute), "fanout", spec)
		remove()
		if err != nil {
			return err
		}
		b.note("%s: %d endpoints created in %v", name, spec.Endpoints, r.Created.Round(time.Millisecond))
		for i, c := range r.Cases {
			slices.Sort(c.Few)
			slices.Sort(c.Many)
			few, many := quantile(c.Few, 0.5), quantile(c.Many, 0.5)
			ratio := float64(many) / float64(few)
			t.row(name+", "+fanoutCases[i], fmt.Sprintf("%.1f", us(few)), fmt.Sprintf("%.1f", us(mean(c.Few))),
				fmt.Sprintf("%.1f", us(many)), fmt.Sprintf("%.1f", us(mean(c.Many))), fmt.Sprintf("%.2f", ratio))
			switch i {
			case 0:
				b.goal("fanout-"+name, ratio, "<=", 1.3)
			case 1:
				b.goal("fanout-"+name+"-100-events", ratio, "<=", 1.3)
			}
		}
	}
	t.print()
	return nil
}

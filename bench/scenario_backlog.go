package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

// Backlog: what it costs the SQLite store to lease 100 deliveries and to record
// them as delivered, beside few pending deliveries and beside very many. Both
// files are worked on in turns; 100 deliveries are published, untimed, for the
// 100 that are taken.

const (
	backlogSmall      = 1000
	backlogWorkspaces = 10
	backlogEndpoints  = 10 // in each
)

type backlogSpec struct {
	Dir     string `json:"dir"`
	Pending int    `json:"pending"`
	Rounds  int    `json:"rounds"`
}

type backlogResult struct {
	Filled time.Duration `json:"filled"` // how long that took
	Small  backlogCosts  `json:"small"`
	Large  backlogCosts  `json:"large"`
}

type backlogCosts struct {
	Claim  []time.Duration `json:"claim"`
	Record []time.Duration `json:"record"`
}

func (c backlogCosts) both() []time.Duration {
	both := make([]time.Duration, len(c.Claim))
	for i := range both {
		both[i] = c.Claim[i] + c.Record[i]
	}
	return both
}

func backlogChild(ctx context.Context, spec backlogSpec) (r backlogResult, err error) {
	var stores [2]*ours
	pending := [2]int{backlogSmall, spec.Pending}
	began := time.Now()
	for i := range stores {
		st, err := openStore(ctx, "sqlite", filepath.Join(spec.Dir, fmt.Sprint(i)))
		if err != nil {
			return r, err
		}
		o, err := newDispatcher(st)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, o.closeNow()) }()
		stores[i] = o
		for w := range backlogWorkspaces {
			if err := o.addEndpoints(ctx, int64(w+1), urlsOf(backlogEndpoints), 0); err != nil {
				return r, err
			}
			if err := o.fill(ctx, int64(w+1), pending[i]/backlogWorkspaces/backlogEndpoints); err != nil {
				return r, err
			}
		}
	}
	r.Filled = time.Since(began)
	costs := [2]*backlogCosts{&r.Small, &r.Large}
	const warm = 10
	for round := range warm + spec.Rounds {
		for _, i := range [2]int{round % 2, 1 - round%2} {
			claim, record, err := claimAndRecord(ctx, stores[i], round)
			if err != nil {
				return r, err
			}
			if round >= warm {
				costs[i].Claim = append(costs[i].Claim, claim)
				costs[i].Record = append(costs[i].Record, record)
			}
		}
	}
	return r, nil
}

// urlsOf returns URLs nobody requests.
func urlsOf(n int) []string { return addresses{URL: "http://127.0.0.1:9"}.urls("e", n) }

func claimAndRecord(ctx context.Context, o *ours, round int) (claim, record time.Duration, err error) {
	const n = 100
	if err := o.publishTo(ctx, int64(round%backlogWorkspaces+1), newBatch(n/backlogEndpoints)); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	c, err := o.store.Store.Claim(ctx, store.ClaimParams{Now: began, LeaseParams: store.LeaseParams{
		Token: rand.Int64() + 1, Until: began.Add(time.Minute), Room: store.Room{Limit: n, PerEndpoint: 8},
	}})
	claim = time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	if len(c.Leases) != n {
		return 0, 0, fmt.Errorf("claimed %d, not %d", len(c.Leases), n)
	}
	outcomes := make([]store.Outcome, n)
	for i := range outcomes {
		l := &c.Leases[i]
		outcomes[i] = store.Outcome{
			DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: l.Token,
			Status: store.StatusDelivered, Health: store.HealthSuccess,
			Attempt: store.Attempt{
				StartedAt: began, Latency: time.Millisecond, Status: 200,
				Headers: map[string]string{"Content-Type": "application/json", "User-Agent": "Elido-Webhooks/1.0", "X-Webhook-Event": eventType},
			},
		}
	}
	began = time.Now()
	r, err := o.store.Store.Record(ctx, store.RecordParams{Now: began, Outcomes: outcomes})
	record = time.Since(began)
	if err == nil && len(r.Stale) > 0 {
		err = fmt.Errorf("%d outcomes were stale", len(r.Stale))
	}
	return claim, record, err
}

func (b *bench) backlog(ctx context.Context) error {
	spec := backlogSpec{Pending: b.pending, Rounds: 1000}
	if b.quick {
		spec.Rounds = 200
	}
	b.title("Backlog", "Claim and Record of 100 deliveries on SQLite, %d times in turns, with %d and with %d pending at %d endpoints",
		spec.Rounds, backlogSmall, spec.Pending, backlogWorkspaces*backlogEndpoints)
	dir, remove, err := b.tempDir()
	if err != nil {
		return err
	}
	defer remove()
	spec.Dir = dir
	b.progress("filling")
	r, err := spawn[backlogResult](ctx, b.limit(5*time.Minute), "backlog", spec)
	if err != nil {
		return err
	}
	t := b.table("pending", "claim µs: median", "mean", "p99", "record µs: median", "mean", "p99", "both µs: median", "mean", "p99")
	for _, row := range []struct {
		n int
		c backlogCosts
	}{{backlogSmall, r.Small}, {spec.Pending, r.Large}} {
		cells := []any{row.n}
		for _, d := range [][]time.Duration{slices.Clone(row.c.Claim), slices.Clone(row.c.Record), row.c.both()} {
			slices.Sort(d)
			cells = append(cells, whole(quantile(d, 0.5)), whole(mean(d)), whole(quantile(d, 0.99)))
		}
		t.row(cells...)
	}
	t.print()
	b.note("filled in %v", r.Filled.Round(time.Millisecond))
	b.goal("backlog-claim-cost", float64(mean(r.Large.both()))/float64(mean(r.Small.both())), "<=", 1.5)
	return nil
}

func whole(d time.Duration) string { return fmt.Sprintf("%.0f", us(d)) }

package storetest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook/store"
)

// listing is a store that changes what is asked of the log, and what it shows.
func listing(before func(f *store.DeliveryFilter), after func(f store.DeliveryFilter, list []store.Delivery) []store.Delivery) func(b *broken, good store.Store) {
	return func(b *broken, good store.Store) {
		b.deliveries = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
			if before != nil {
				before(&f)
			}
			list, err := good.Deliveries(ctx, f)
			if after != nil {
				list = after(f, list)
			}
			return list, err
		}
	}
}

// maintaining is a store that changes what housekeeping is asked for.
func maintaining(before func(p *store.MaintainParams), after func(p store.MaintainParams, r *store.MaintainResult)) func(b *broken, good store.Store) {
	return func(b *broken, good store.Store) {
		b.maintain = func(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
			if before != nil {
				before(&p)
			}
			r, err := good.Maintain(ctx, p)
			if after != nil {
				after(p, &r)
			}
			return r, err
		}
	}
}

var logFlaws = []flaw{
	{"a list in the wrong order where times are equal", listing(nil, func(_ store.DeliveryFilter, list []store.Delivery) []store.Delivery {
		slices.SortStableFunc(list, func(a, b store.Delivery) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
		})
		return list
	}), []string{"deliveries/order"}},

	{"a list that ignores the endpoint", listing(func(f *store.DeliveryFilter) { f.EndpointID = 0 }, nil),
		[]string{"deliveries/filters", "deliveries/none"}},

	{"a list that ignores the offset", listing(func(f *store.DeliveryFilter) { f.Offset = 0 }, nil), []string{"deliveries/pages"}},

	{"a list whose cursor is an instant", listing(func(f *store.DeliveryFilter) {
		if f.Before.DeliveryID != 0 {
			f.Until, f.Before = f.Before.CreatedAt, store.Position{}
		}
	}, nil), []string{"deliveries/pages", "deliveries/pages under change"}},

	{"a list whose cursor has to be there", func(b *broken, good store.Store) {
		b.deliveries = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
			if f.Before.DeliveryID != 0 {
				if d, err := good.Delivery(ctx, f.WorkspaceID, f.Before.DeliveryID); err != nil || !d.CreatedAt.Equal(f.Before.CreatedAt) {
					return nil, nil
				}
			}
			return good.Deliveries(ctx, f)
		}
	}, []string{"deliveries/pages under change"}},

	{"a log that is read under any workspace", func(b *broken, good store.Store) {
		b.delivery = func(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
			return everywhere(workspaceID, func(w int64) (store.Delivery, error) { return good.Delivery(ctx, w, id) })
		}
		b.retry = func(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
			return everywhere(p.WorkspaceID, func(w int64) (store.Delivery, error) {
				p.WorkspaceID = w
				return good.Retry(ctx, p)
			})
		}
		b.recover = func(ctx context.Context, p store.RecoverParams) (int, error) {
			return everywhere(p.WorkspaceID, func(w int64) (int, error) {
				p.WorkspaceID = w
				return good.Recover(ctx, p)
			})
		}
	}, []string{"delivery/not found", "isolation", "retry/not found", "recover/not found"}},

	{"a retry that sees no fault in pending", func(b *broken, good store.Store) {
		b.retry = func(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
			d, err := good.Retry(ctx, p)
			if err != nil {
				return good.Delivery(ctx, p.WorkspaceID, p.DeliveryID)
			}
			return d, nil
		}
	}, []string{"retry/pending", "retry/concurrent"}},

	{"a retry that goes on with the old budget", func(b *broken, good store.Store) {
		b.retry = func(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
			if d, err := good.Delivery(ctx, p.WorkspaceID, p.DeliveryID); err == nil {
				p.Budget = d.Budget
			}
			return good.Retry(ctx, p)
		}
	}, []string{"retry/fresh budget"}},

	{"a recovery that begins after Since", func(b *broken, good store.Store) {
		b.recover = func(ctx context.Context, p store.RecoverParams) (int, error) {
			p.Since = p.Since.Add(time.Millisecond)
			return good.Recover(ctx, p)
		}
	}, []string{"recover/range"}},

	{"a recovery that goes on after Now", func(b *broken, good store.Store) {
		b.recover = func(ctx context.Context, p store.RecoverParams) (int, error) {
			p.Now = p.Now.Add(time.Hour)
			return good.Recover(ctx, p)
		}
	}, []string{"recover/range"}},

	{"a recovery without a limit", func(b *broken, good store.Store) {
		b.recover = func(ctx context.Context, p store.RecoverParams) (int, error) {
			p.Limit = 1000
			return good.Recover(ctx, p)
		}
	}, []string{"recover/batches"}},

	{"a recovery of an unknown endpoint that finds nothing to do", func(b *broken, good store.Store) {
		b.recover = func(ctx context.Context, p store.RecoverParams) (int, error) {
			n, err := good.Recover(ctx, p)
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			}
			return n, err
		}
	}, []string{"recover/not found", "delete/not found"}},
}

var maintainFlaws = []flaw{
	{"housekeeping that leaves old secrets", maintaining(func(p *store.MaintainParams) { p.Now = time.Time{} }, nil),
		[]string{"maintain/overlap"}},

	{"housekeeping that erases a secret a millisecond early", maintaining(func(p *store.MaintainParams) { p.Now = p.Now.Add(time.Millisecond) }, nil),
		[]string{"maintain/overlap", "instants/compared"}},

	{"housekeeping that prunes what completed at the limit", maintaining(func(p *store.MaintainParams) {
		if !p.PruneBefore.IsZero() {
			p.PruneBefore = p.PruneBefore.Add(time.Millisecond)
		}
	}, nil), []string{"maintain/age", "instants/compared"}},

	{"housekeeping that keeps one too many", maintaining(func(p *store.MaintainParams) {
		if p.KeepPerEndpoint > 0 {
			p.KeepPerEndpoint++
		}
	}, nil), []string{"maintain/count"}},

	{"housekeeping that removes what is pending", func(b *broken, good store.Store) {
		b.maintain = func(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
			room := store.Room{Limit: 1000, PerEndpoint: 1000}
			claimed, err := good.Claim(ctx, store.ClaimParams{Now: p.Now, LeaseParams: store.LeaseParams{Token: 1 << 40, Until: p.Now, Room: room}})
			if err != nil {
				return store.MaintainResult{}, err
			}
			record := store.RecordParams{Now: p.PruneBefore.Add(-time.Second)}
			for _, l := range claimed.Leases {
				record.Outcomes = append(record.Outcomes, store.Outcome{DeliveryID: l.DeliveryID, Token: l.Token, Status: store.StatusFailed})
			}
			if _, err := good.Record(ctx, record); err != nil {
				return store.MaintainResult{}, err
			}
			return good.Maintain(ctx, p)
		}
	}, []string{"maintain/pending"}},

	{"housekeeping that ignores the limit", maintaining(func(p *store.MaintainParams) { p.Limit = 1000 }, nil),
		[]string{"maintain/deleted endpoints", "maintain/more"}},

	{"housekeeping that never says there is more", maintaining(nil, func(_ store.MaintainParams, r *store.MaintainResult) { r.More = false }),
		[]string{"maintain/deleted endpoints", "maintain/more"}},

	{"housekeeping that removes an event with its first delivery", func(b *broken, good store.Store) {
		removed := false
		b.maintain = func(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := good.Maintain(ctx, p)
			removed = removed || r.Pruned+r.Purged > 0
			return r, err
		}
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := good.Claim(ctx, p)
			for i := range r.Leases {
				if removed {
					r.Leases[i].Payload = nil
				}
			}
			return r, err
		}
	}, []string{"maintain/shared events"}},

	{"housekeeping that forgets keys used at the limit", maintaining(func(p *store.MaintainParams) {
		if !p.ForgetKeysBefore.IsZero() {
			p.ForgetKeysBefore = p.ForgetKeysBefore.Add(time.Millisecond)
		}
	}, nil), []string{"maintain/keys", "instants/compared"}},

	{"housekeeping that always makes a new revision", func(b *broken, good store.Store) {
		b.maintain = func(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
			r, err := good.Maintain(ctx, p)
			list, _ := good.Endpoints(ctx, store.EndpointFilter{WorkspaceID: 42})
			for _, e := range list {
				if _, err := good.UpdateEndpoint(ctx, e, nil); err != nil {
					return r, err
				}
			}
			return r, err
		}
	}, []string{"maintain/nothing"}},

	{"housekeeping that does not know when the next overlap ends",
		maintaining(nil, func(_ store.MaintainParams, r *store.MaintainResult) { r.NextEnd = time.Time{} }),
		[]string{"maintain/overlap", "maintain/nothing", "instants/kept"}},
}

var valueFlaws = []flaw{
	{"a list in a time zone", listing(nil, func(_ store.DeliveryFilter, list []store.Delivery) []store.Delivery {
		for i := range list {
			list[i].CreatedAt = list[i].CreatedAt.In(time.FixedZone("", 3600))
		}
		return list
	}), []string{"instants/kept"}},

	{"a publish that rounds instants", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			p.Now = p.Now.Round(time.Millisecond)
			return good.Publish(ctx, p)
		}
	}, []string{"instants/kept", "instants/compared"}},

	{"an update that keeps nanoseconds", func(b *broken, good store.Store) {
		b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
			at := e.UpdatedAt
			e, err := good.UpdateEndpoint(ctx, e, c)
			e.UpdatedAt = at
			return e, err
		}
	}, []string{"instants/kept by changes"}},

	{"a renewal that rounds instants", func(b *broken, good store.Store) {
		b.renew = func(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
			return good.Renew(ctx, leases, until.Round(time.Millisecond))
		}
	}, []string{"instants/kept by changes", "instants/compared"}},

	{"a list that compares what it keeps in milliseconds with nanoseconds", listing(func(f *store.DeliveryFilter) {
		if f.Since.Nanosecond()%1e6 != 0 {
			f.Since = f.Since.Add(time.Millisecond)
		}
	}, nil), []string{"instants/compared"}},

	{"text columns for bytes", forgetful(func(_ int, ev *store.NewEvent) { ev.Payload = []byte(strings.ToValidUTF8(string(ev.Payload), "?")) }),
		[]string{"values/bytes"}},

	{"text columns for secrets", func(b *broken, good store.Store) {
		b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
			seal := p.Seal
			p.Seal = func(id int64) (store.Secrets, error) {
				s, err := seal(id)
				s.Current.Data = store.NewSecret(strings.ToValidUTF8(s.Current.Data.Reveal(), "?"))
				return s, err
			}
			return good.CreateEndpoint(ctx, p)
		}
	}, []string{"values/bytes"}},

	{"text that is trimmed", func(b *broken, good store.Store) {
		b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
			p.Endpoint.Events = slices.DeleteFunc(slices.Clone(p.Endpoint.Events), func(s string) bool { return s == "" })
			return good.CreateEndpoint(ctx, p)
		}
	}, []string{"values/text"}},

	{"a publish that keeps the caller's slices", func(b *broken, good store.Store) {
		payloads := map[string][]byte{}
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, ev := range p.Events {
				payloads[ev.ID] = ev.Payload
			}
			return good.Publish(ctx, p)
		}
		b.delivery = func(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			d, err := good.Delivery(ctx, workspaceID, id)
			d.Payload = payloads[d.EventID]
			return d, err
		}
	}, []string{"values/copied in"}},

	{"a list that gives away its slices", func(b *broken, good store.Store) {
		payloads := map[int64][]byte{}
		b.deliveries = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			list, err := good.Deliveries(ctx, f)
			for i := range list {
				if payloads[list[i].ID] == nil {
					payloads[list[i].ID] = list[i].Payload
				}
				list[i].Payload = payloads[list[i].ID]
			}
			return list, err
		}
	}, []string{"values/copied out"}},

	{"ids that are kept as floating point numbers", func(b *broken, good store.Store) {
		b.endpoint = func(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
			e, err := good.Endpoint(ctx, workspaceID, id)
			e.ID = int64(float64(e.ID))
			return e, err
		}
	}, []string{"values/large"}},

	{"a publish that does not look at its context", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			return good.Publish(context.WithoutCancel(ctx), p)
		}
	}, []string{"lifecycle/canceled"}},

	{"a store that refuses what comes while it is busy", func(b *broken, good store.Store) {
		var busy atomic.Int32
		guard := func() error {
			defer busy.Add(-1)
			if busy.Add(1) > 1 {
				return errors.New("busy")
			}
			await(func() bool { return busy.Load() > 1 })
			return nil
		}
		b.retry = func(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
			if err := guard(); err != nil {
				return store.Delivery{}, err
			}
			return good.Retry(ctx, p)
		}
		b.endpoints = func(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
			if err := guard(); err != nil {
				return nil, err
			}
			return good.Endpoints(ctx, f)
		}
	}, []string{"lifecycle/concurrent", "retry/concurrent"}},

	{"a store that can be used after Close", func(b *broken, _ store.Store) {
		b.end = func() error { return nil }
	}, []string{"lifecycle/closed"}},

	{"a store that can be closed twice", func(b *broken, good store.Store) {
		b.end = func() error {
			_ = good.Close()
			return nil
		}
	}, []string{"lifecycle/closed"}},
}

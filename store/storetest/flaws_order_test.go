package storetest_test

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook/store"
)

// line is the deliveries of one ordering key to one endpoint.
type line struct {
	endpointID int64
	key        string
}

// lines keeps ordering keys itself, on a good store that does not know of them. It
// shows what goes wrong if that is done in ways that seem good enough.
type lines struct {
	b     *broken
	good  store.Store
	of    map[int64]line // by delivery
	queue map[line][]int64
	leads map[line]store.Lease // the last lease of a line, as long as nothing ended it

	together      bool // one line for a key, whatever the endpoint
	retriesLast   bool // what is retried goes to the end of its line
	blindToLeases bool // what is first goes, also while another of its line is leased
	skipsRunOut   bool // what a lease ran out of goes to the end of its line
	looksOnce     bool // what was blocked when published waits for the next outcome of its line
	blocked       map[int64]bool

	publishes, outcomes atomic.Int64
}

func ordering(set func(l *lines)) func(b *broken, good store.Store) {
	return func(b *broken, good store.Store) {
		l := &lines{
			b: b, good: good, of: map[int64]line{}, queue: map[line][]int64{}, leads: map[line]store.Lease{}, blocked: map[int64]bool{},
		}
		set(l)
		b.publish, b.claim, b.record, b.release, b.retry, b.recover = l.publish, l.claim, l.record, l.release, l.retry, l.recover
	}
}

func (l *lines) publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	waiting := false
	l.b.mu.Lock()
	for _, queue := range l.queue {
		waiting = waiting || len(queue) > 0
	}
	l.b.mu.Unlock()
	if seen := l.outcomes.Load(); l.looksOnce && waiting {
		l.publishes.Add(1)
		await(func() bool { return l.outcomes.Load() > seen }) // the very moment in which it should have looked again
	}
	keys := make([]string, len(p.Events))
	r, err := l.good.Publish(ctx, eachEvent(p, func(i int, ev *store.NewEvent) { keys[i], ev.OrderingKey = ev.OrderingKey, "" }))
	if err != nil {
		return r, err
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	for i, receipt := range r.Receipts {
		for _, id := range receipt.DeliveryIDs {
			if keys[i] == "" || receipt.Repeat {
				continue
			}
			d, err := l.good.Delivery(ctx, p.Events[i].WorkspaceID, id)
			if err != nil {
				return r, err
			}
			in := line{d.EndpointID, keys[i]}
			if l.together {
				in.endpointID = 0
			}
			l.of[id] = in
			l.queue[in] = append(l.queue[in], id)
			l.blocked[id] = l.looksOnce && waiting
		}
	}
	return r, nil
}

// mayGo reports whether it is a delivery's turn.
func (l *lines) mayGo(id int64) bool {
	in, keyed := l.of[id]
	if !keyed {
		return true
	}
	lead, led := l.leads[in]
	return l.queue[in][0] == id && !l.blocked[id] && (l.blindToLeases || !led || lead.DeliveryID == id)
}

func (l *lines) claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	for in, lead := range l.leads {
		if lead.Until.After(p.Now) {
			continue
		}
		delete(l.leads, in)
		if l.skipsRunOut {
			l.toEnd(in, lead.DeliveryID)
		}
	}
	r, err := l.good.Claim(ctx, p)
	if err != nil {
		return r, err
	}
	var back []store.Release
	r.Leases = slices.DeleteFunc(r.Leases, func(lease store.Lease) bool {
		if !l.mayGo(lease.DeliveryID) {
			back = append(back, store.Release{LeaseRef: lease.Ref()})
			return true
		}
		if in, keyed := l.of[lease.DeliveryID]; keyed {
			l.leads[in] = lease
		}
		return false
	})
	return r, l.good.Release(ctx, back)
}

func (l *lines) toEnd(in line, id int64) {
	if i := slices.Index(l.queue[in], id); i >= 0 {
		l.queue[in] = append(slices.Delete(l.queue[in], i, i+1), id)
	}
}

func (l *lines) record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	if l.looksOnce {
		before := l.publishes.Load()
		await(func() bool { return l.publishes.Load() > before })
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	r, err := l.good.Record(ctx, p)
	if err != nil {
		return r, err
	}
	for _, o := range p.Outcomes {
		in, keyed := l.of[o.DeliveryID]
		if !keyed || slices.Contains(r.Stale, o.DeliveryID) {
			continue
		}
		delete(l.leads, in)
		if o.Status != store.StatusPending {
			l.queue[in] = slices.DeleteFunc(l.queue[in], func(id int64) bool { return id == o.DeliveryID })
		}
		if len(l.queue[in]) > 0 {
			delete(l.blocked, l.queue[in][0])
		}
	}
	l.outcomes.Add(1)
	return r, nil
}

func (l *lines) release(ctx context.Context, releases []store.Release) error {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	for _, r := range releases {
		delete(l.leads, l.of[r.DeliveryID])
	}
	return l.good.Release(ctx, releases)
}

// again puts what is pending again into its line.
func (l *lines) again(id int64) {
	in, keyed := l.of[id]
	if !keyed || slices.Contains(l.queue[in], id) {
		return
	}
	l.queue[in] = append(l.queue[in], id)
	if !l.retriesLast {
		slices.Sort(l.queue[in])
	}
}

func (l *lines) retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	d, err := l.good.Retry(ctx, p)
	if err == nil {
		l.again(p.DeliveryID)
	}
	return d, err
}

func (l *lines) recover(ctx context.Context, p store.RecoverParams) (int, error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	n, err := l.good.Recover(ctx, p)
	if err != nil {
		return n, err
	}
	list, err := l.good.Deliveries(ctx, store.DeliveryFilter{WorkspaceID: p.WorkspaceID, EndpointID: p.EndpointID, Status: store.StatusPending})
	for _, d := range slices.Backward(list) {
		l.again(d.ID)
	}
	return n, err
}

var orderFlaws = []flaw{
	{"a publish that loses traces", forgetful(func(_ int, ev *store.NewEvent) { ev.Trace = "" }), []string{
		"claim/lease", "handoff/lease"}},

	{"a publish that loses ordering keys", forgetful(func(_ int, ev *store.NewEvent) { ev.OrderingKey = "" }), []string{
		"order/one after the other", "order/retry of the first", "order/lease of the first", "order/late outcome", "order/paused",
		"order/concurrent publishes", "order/concurrent retries", "order/at random", "publish/delivery", "handoff/blocked",
	}},

	{"ordering keys that leak from one endpoint to another", ordering(func(l *lines) { l.together = true }), []string{"order/others"}},

	{"a publish that makes what is blocked due with the first", func(b *broken, good store.Store) {
		first := map[string]time.Time{}
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			key := p.Events[0].OrderingKey
			if at, ok := first[key]; ok && key != "" {
				p.Now = at
			} else {
				first[key] = p.Now
			}
			return good.Publish(ctx, p)
		}
	}, []string{"order/own due time", "record/queued"}},

	{"a manual retry that goes to the end of its line", ordering(func(l *lines) { l.retriesLast = true }), []string{
		"order/retry before a ready one", "order/retry before a waiting one", "order/retry behind an earlier one", "order/recover",
		"order/concurrent retries", "order/at random",
	}},

	{"a line of which only the front is looked at", ordering(func(l *lines) { l.blindToLeases = true }),
		[]string{"order/retry behind a leased one", "order/at random"}},

	{"a delivery that lets the next go when its lease runs out", ordering(func(l *lines) { l.skipsRunOut = true }),
		[]string{"order/lease of the first"}},

	{"a publish that looks at its line once, while an outcome is written", ordering(func(l *lines) { l.looksOnce = true }),
		[]string{"order/publish beside record"}},
}

package webhook_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// A tenure is a lease as the store gave it.
type tenure struct {
	store.LeaseRef
	seq    int64
	to     int64 // endpoint
	key    string
	holder *party
	given  time.Time
	until  time.Time // as the store was told: by the holder's clock
	used   bool      // a request was made under it
	told   bool      // the holder knows of it

	ending   bool      // its holder is giving it up
	over     bool      // its holder gave it up, by an outcome or a release,
	at       time.Time // when
	lapsed   bool      // a claim found that it had run out
	lost     time.Time // when the delivery was given to somebody else
	refused  bool      // its holder was told that it is not its any more
	disowned bool      // the store said that it is not the holder's any more
	unknown  bool      // a call about it ended without saying what it did
}

// mine reports whether nobody ended the tenure, as far as one can see.
func (t *tenure) mine() bool { return !t.over && t.lost.IsZero() }

// ranOut reports whether somebody else may have the delivery, or have had it.
func (t *tenure) ranOut() bool { return t.lapsed || !t.lost.IsZero() }

// A ledger is a store that keeps a record of leases: that no delivery is under two
// at once, and that only who has one can do something with it.
type ledger struct {
	store.Store
	p *party
}

// alone makes calls about leases go one by one while clocks disagree: then a
// lease may be over for one host in the instant in which another gets it, and
// only the order of the calls says who has it.
func (l ledger) alone() (done func()) {
	m := l.p.m
	if m.agreeing() {
		return func() {}
	}
	m.turn <- struct{}{} // a mutex would keep time from passing
	return func() { <-m.turn }
}

// given notes leases that a claim gave, or a publish, which was made at an instant.
func (l ledger) given(now time.Time, p store.LeaseParams, leases []store.Lease, published bool) {
	m := l.p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	now, until := now.UTC().Truncate(time.Millisecond), p.Until.UTC().Truncate(time.Millisecond)
	for _, t := range m.leases {
		t.lapsed = t.lapsed || t.mine() && !t.until.After(now)
	}
	for i := range leases {
		lease := &leases[i]
		if lease.Token != p.Token || !lease.Until.Equal(until) {
			m.failLocked("%s: asked for leases %d until %v and got %d until %v", l.p.name, p.Token, until, lease.Token, lease.Until)
		}
		if lease.DueAt.After(now) {
			m.failLocked("%s: leased delivery %d, which is not due until %v later", l.p.name, lease.DeliveryID, lease.DueAt.Sub(now))
		}
		m.seq++
		t := &tenure{LeaseRef: lease.Ref(), seq: m.seq, to: lease.Target.EndpointID, key: lease.OrderingKey, holder: l.p, given: time.Now(), until: until}
		m.tenures[t.LeaseRef] = t
		m.tracef("%s: leased delivery %d", l.p.name, t.DeliveryID)
		before := m.leases[t.DeliveryID]
		if before != nil && published {
			t.lost = time.Now() // it ran out, and a claim that came later was back before
			continue
		}
		if before != nil {
			if !before.ending && !before.over && !before.unknown && before.until.After(now) {
				m.failLocked("delivery %d is under a lease of %s for another %v and was leased to %s",
					lease.DeliveryID, before.holder.name, before.until.Sub(now), l.p.name)
			}
			if !before.over && before.lost.IsZero() {
				before.lost = time.Now()
			}
		}
		m.leases[t.DeliveryID] = t
	}
}

// told notes that a party got leases.
func (p *party) told(leases []store.Lease) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	for i := range leases {
		t := p.m.tenures[leases[i].Ref()]
		t.told = true
		if before := p.holds[t.DeliveryID]; before == nil || t.lost.IsZero() {
			p.holds[t.DeliveryID] = t
		}
	}
}

// ending notes that leases are about to be given up, and returns those that were
// another's, or nobody's, before.
func (l ledger) ending(refs []store.LeaseRef) (stale map[store.LeaseRef]bool) {
	m := l.p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	stale = map[store.LeaseRef]bool{}
	for _, ref := range refs {
		t := m.tenures[ref]
		if t == nil {
			m.failLocked("%s: gives up a lease of delivery %d that nobody gave", l.p.name, ref.DeliveryID)
			continue
		}
		stale[ref] = !t.mine()
		t.ending = true
	}
	return stale
}

// ended notes what became of leases that were to be given up.
func (l ledger) ended(refs []store.LeaseRef, err error) {
	m := l.p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ref := range refs {
		t := m.tenures[ref]
		if t == nil {
			continue
		}
		switch t.ending = false; {
		case err == nil:
			t.over, t.at = true, time.Now()
		case errors.Is(err, store.ErrOutcomeUnknown), errors.Is(err, store.ErrClosed):
			t.unknown = true
		}
	}
}

func (l ledger) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	defer l.alone()()
	r, err := l.Store.Publish(ctx, p)
	if err == nil && p.Handoff != nil {
		l.given(p.Now, *p.Handoff, r.Leases, true)
	}
	return r, err
}

func (l ledger) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	defer l.alone()()
	r, err := l.Store.Claim(ctx, p)
	if err == nil {
		l.given(p.Now, p.LeaseParams, r.Leases, false)
	}
	return r, err
}

func (l ledger) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	defer l.alone()()
	refs := make([]store.LeaseRef, len(p.Outcomes))
	for i, o := range p.Outcomes {
		refs[i] = store.LeaseRef{DeliveryID: o.DeliveryID, Token: o.Token}
	}
	stale := l.ending(refs)
	r, err := l.Store.Record(ctx, p)
	l.ended(refs, err)
	if err != nil {
		return r, err
	}
	l.judge(refs, stale, r.Stale)
	if p.Claim != nil {
		l.given(p.Claim.Now, p.Claim.LeaseParams, r.Claim.Leases, false)
	}
	return r, nil
}

// judge compares what the store took for stale with what is.
func (l ledger) judge(refs []store.LeaseRef, before map[store.LeaseRef]bool, said []int64) {
	m := l.p.m
	m.mu.Lock()
	defer m.mu.Unlock()
	said = slices.Clone(said)
	// Of two leases of one delivery, those that were stale before are so first.
	slices.SortStableFunc(refs, func(a, b store.LeaseRef) int {
		switch {
		case before[a] == before[b]:
			return 0
		case before[a]:
			return -1
		}
		return 1
	})
	for _, ref := range refs {
		t := m.tenures[ref]
		i := slices.Index(said, ref.DeliveryID)
		switch {
		case t == nil:
		case i >= 0:
			said = slices.Delete(said, i, i+1)
			t.refused = true
			if !before[ref] {
				t.over, t.disowned = false, true
			}
		case before[ref] && !t.unknown:
			m.failLocked("%s: an outcome for delivery %d was taken, though its lease is another's or was given up", l.p.name, ref.DeliveryID)
		}
	}
}

func (l ledger) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	defer l.alone()()
	m := l.p.m
	stale := map[store.LeaseRef]bool{}
	m.mu.Lock()
	for _, ref := range leases {
		if m.tenures[ref] == nil {
			m.failLocked("%s: renews a lease of delivery %d that nobody gave", l.p.name, ref.DeliveryID)
			m.tenures[ref] = &tenure{LeaseRef: ref, holder: l.p}
		}
		stale[ref] = !m.tenures[ref].mine()
	}
	m.mu.Unlock()
	lost, err := l.Store.Renew(ctx, leases, until)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ref := range leases {
		switch t := m.tenures[ref]; {
		case err != nil:
			t.unknown = t.unknown || errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, store.ErrClosed)
		case slices.Contains(lost, ref.DeliveryID):
			t.refused = true
			// Where it ran out, an earlier one of its key may have gone first.
			t.disowned = t.disowned || t.key == ""
		case stale[ref] && !t.unknown:
			m.failLocked("%s: renewed a lease of delivery %d that is another's or was given up", l.p.name, ref.DeliveryID)
		default:
			t.until, t.lapsed = until.UTC().Truncate(time.Millisecond), false
		}
	}
	return lost, err
}

func (l ledger) Release(ctx context.Context, releases []store.Release) error {
	defer l.alone()()
	refs := make([]store.LeaseRef, len(releases))
	for i := range releases {
		refs[i] = releases[i].LeaseRef
	}
	l.ending(refs)
	err := l.Store.Release(ctx, releases)
	l.ended(refs, err)
	l.p.m.notef("%s: released %v: %v", l.p.name, refs, err)
	return err
}

// disowned says which leases the store took from their holders without giving the
// delivery to anybody else. All calls must have returned.
func (m *machine) checkDisowned() {
	for _, t := range m.tenures {
		if !t.disowned {
			continue
		}
		t.disowned = false
		live := true
		for _, e := range m.endpoints {
			live = live && (e.id != t.to || e.live())
		}
		if t.mine() && !t.unknown && live {
			m.failLocked("%s: delivery %d is not its any more, though nobody took it", t.holder.name, t.DeliveryID)
		}
	}
}

// freeAt is when a pending delivery can be leased at the latest, by the store's
// instants, if it is the first of its key.
func (m *machine) freeAt(d *deliveryModel) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := d.latest.NextAttemptAt
	for _, o := range m.deliveries {
		// A later one of its key that was leased before it was retried goes first.
		if o != d && (d.key == "" || o.key != d.key || o.to != d.to) {
			continue
		}
		if t := m.leases[o.id]; t != nil && t.forgotten() && t.until.After(free) {
			free = t.until
		}
	}
	return free
}

// forgotten reports whether a lease may have been left to run out: its holder did
// not learn of it, or is dead, or was in trouble. Any other makes the attempt or
// gives it back.
func (t *tenure) forgotten() bool {
	p := t.holder
	switch {
	case t.unknown:
		return true
	case t.over || !t.lost.IsZero():
		return false
	}
	return !t.told || p.dead || p.troubled(t.given, time.Now()) ||
		slices.ContainsFunc(p.deaths, func(at time.Time) bool { return !at.Before(t.given) })
}

// checkIdle finds deliveries that nobody takes, though a party runs that has
// nothing else to do: what it was asked for itself it takes at once, all else
// within a poll interval. Nothing may be moving.
func (m *machine) checkIdle() {
	now := time.Now()
	for _, p := range m.parties {
		if !p.running() || p.busy() {
			continue
		}
		for _, id := range m.order {
			d := m.deliveries[id]
			v, t := d.to.latest(), m.leases[id]
			if d.gone || d.key != "" || !v.active || v.deleted || d.latest.Status != webhook.StatusPending || t != nil && !t.over {
				continue
			}
			due := p.clock.when(d.latest.NextAttemptAt)
			if due.After(now) {
				continue
			}
			known := due.Add(m.config.Poll + time.Second)
			for _, at := range []time.Time{p.ran, d.askedAt, v.returned, p.clock.stepped()} {
				known = later(known, at.Add(m.config.Poll+time.Second))
			}
			if t != nil {
				known = later(known, t.at.Add(m.config.Poll+time.Second))
			}
			own := d.asked == p && !d.askedAt.Before(p.ran) && t == nil &&
				v.returned.Before(d.askedAt) && p.clock.stepped().Before(d.askedAt)
			if (own || now.After(known)) && !p.troubled(now.Add(-m.config.Poll-longestBackoff-storePatience), now) {
				m.failLocked("%s: does nothing, though delivery %d is due since %v", p.name, id, now.Sub(due))
			}
		}
	}
}

// busy reports whether the party has leases, or may think so.
func (p *party) busy() bool {
	for _, t := range p.m.tenures {
		lately := t.lost.IsZero() || time.Since(t.lost) < 5*time.Minute
		if t.holder == p && t.told && !t.over && !t.refused && lately {
			return true
		}
	}
	return false
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

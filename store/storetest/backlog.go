package storetest

import (
	"fmt"
	"time"

	"github.com/elido-app/webhook/store"
)

var backlogCases = []Case{
	{
		"claim/behind backlogs",
		"However much is due at endpoints whose room is taken, or that are paused, others get what is theirs.",
		check(claimBehindBacklogs),
	},
}

// backlog publishes n events to an endpoint.
func (t *trial) backlog(e store.Endpoint, n int, now time.Time) {
	for ; n > 0; n -= plenty {
		t.send(e, min(n, plenty), now)
	}
}

func claimBehindBacklogs(t *trial) {
	const waiting, crowd = 3000, 130
	full, paused, healthy := t.endpoint(), t.endpoint(), t.endpoint()
	t.backlog(full, waiting, at(0))
	t.backlog(paused, waiting, at(0))
	t.pause(paused, true)

	// Many endpoints with a little each.
	others := map[int64]int{full.ID: 0}
	for range crowd {
		e := draft(home)
		e.Events = []string{"domain.verified"}
		others[t.create(e).ID] = 0
	}
	ev := t.event(home)
	ev.Type, ev.Matches = "domain.verified", []string{"domain.verified"}
	t.same(len(t.deliver(at(0), ev)), crowd, "deliveries to the crowd")

	sent := t.send(healthy, 3, at(time.Minute))
	now := at(time.Hour)
	lease := t.lease(now)
	lease.Room = store.Room{Limit: 2, PerEndpoint: 2, Endpoints: others}
	leases := t.claimWith(now, lease).Leases
	t.same(ids(leases), sent[:2],
		"claimed where endpoint %d has %d older deliveries and no room, endpoint %d as many and is paused, and %d endpoints have one each and no room",
		full.ID, waiting, paused.ID, crowd)
	t.release(leases...)

	// Room that this very call takes is taken, too.
	others[full.ID] = 1
	lease = t.lease(now)
	lease.Room = store.Room{Limit: 4, PerEndpoint: 2, Endpoints: others}
	r := t.claimWith(now, lease)
	var got, first int
	for _, l := range t.exactly(3, r.Leases) {
		switch l.Target.EndpointID {
		case healthy.ID:
			got++
		case full.ID:
			first++
		}
	}
	t.same([]int{first, got}, []int{1, 2}, "how many were claimed of the endpoint with room for one and of the healthy one")
	t.idle(r.NextDue, now, "with due work only at endpoints whose room is taken, or that are paused")
}

var costCases = []Case{
	{
		"cost/claim",
		"No endpoint's backlog costs a claim anything once its room is taken, nor does a paused endpoint or one with only future work.",
		check(claimCost),
	},
}

const (
	// A claim that looks at what it cannot give takes longer the more there is of
	// that; one that does not takes about as long as before, whatever its store is
	// made of.
	costFew, costMany = 20, 20_000
	costBound         = 8 // times as long
	// Of so many claims the fastest counts, which says what a claim costs also
	// where others use the machine; and where it took too long, so often again.
	costTries, costRounds = 60, 8
)

func claimCost(t *trial) {
	full, paused, later := t.endpoint(), t.endpoint(), t.endpoint()
	now := at(time.Hour)
	for _, e := range []store.Endpoint{full, paused} {
		t.backlog(e, costFew, at(0))
	}
	t.backlog(later, costFew, at(1000*time.Hour))
	t.pause(paused, true)
	none, one := t.fastestClaim(full, now, 0), t.fastestClaim(full, now, 1)

	cheap := func(waiting string) {
		t.cheapClaim(full, now, 0, none, "with nothing to give", waiting)
		t.cheapClaim(full, now, 1, one, "that give one", waiting)
	}
	t.backlog(full, costMany, at(0))
	cheap(fmt.Sprintf("%d deliveries wait at an endpoint whose room is taken", costMany))
	t.pause(paused, false)
	t.backlog(paused, costMany/2, at(0))
	t.pause(paused, true)
	cheap(fmt.Sprintf("%d more wait at a paused endpoint", costMany/2))
	t.backlog(later, costMany/2, at(1000*time.Hour))
	cheap(fmt.Sprintf("%d more are due later at a third endpoint", costMany/2))
}

// cheapClaim ends the case if claims take many times as long as before there
// was a backlog.
func (t *trial) cheapClaim(full store.Endpoint, now time.Time, room int, before time.Duration, kind, waiting string) {
	fastest := time.Duration(1<<63 - 1)
	for range costRounds {
		fastest = min(fastest, t.fastestClaim(full, now, room))
		if fastest < costBound*before {
			return
		}
	}
	t.failf("of %d claims %s the fastest took %v where %s, and %v where %d did; want less than %d times that: "+
		"a claim must not look at what it cannot give",
		costTries*costRounds, kind, fastest, waiting, before, costFew, costBound)
}

// fastestClaim returns how long the fastest of some claims takes that finds room
// for a few deliveries, or none, of an endpoint and nothing else to give.
func (t *trial) fastestClaim(full store.Endpoint, now time.Time, room int) time.Duration {
	fastest := time.Duration(1<<63 - 1)
	for range costTries {
		lease := t.lease(now)
		lease.Room = store.Room{Limit: plenty, PerEndpoint: plenty, Endpoints: map[int64]int{full.ID: room}}
		params := store.ClaimParams{Now: now, LeaseParams: lease}
		began := time.Now()
		r, err := t.st.Claim(t.ctx, params)
		took := time.Since(began)
		t.must(err, "Claim")
		if len(r.Leases) != room {
			t.failf("a claim with room for %d deliveries gave %d", room, len(r.Leases))
		}
		t.release(r.Leases...)
		fastest = min(fastest, max(took, 100*time.Nanosecond)) // clocks may be coarse
	}
	return fastest
}

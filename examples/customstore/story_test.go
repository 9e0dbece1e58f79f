package customstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// TestStory: whatever happened, a store that is opened again is as it was, and
// goes on in the same way.
func TestStory(t *testing.T) {
	happened := map[string]int{}
	for seed := range uint64(3) {
		path := newPath(t)
		s := &story{T: t, dice: rand.New(rand.NewPCG(seed, 0)), st: open(t, path), now: begin, happened: happened}
		for range 5 {
			for range 120 {
				s.step()
			}
			s.fork(path)
		}
	}
	for _, what := range []string{
		"claimed", "claimed nothing", "stale", "changed health", "lost", "retried", "recovered", "maintained",
		"repeated", "conflict", "rotated", "resealed", "deleted", "handed off",
	} {
		require.Greater(t, happened[what], 2, what)
	}
}

type story struct {
	*testing.T
	dice     *rand.Rand
	st       *Store
	now      time.Time
	serial   int
	leases   []store.Lease
	happened map[string]int
}

// fork opens a copy of the journal and goes on in both.
func (s *story) fork(path string) {
	journal, err := os.ReadFile(path)
	require.NoError(s, err)
	copied := newPath(s)
	require.NoError(s, os.WriteFile(copied, journal, 0o600))
	fork := open(s, copied)
	require.Equal(s, state(s, s.st), state(s, fork))

	ctx := s.Context()
	for range 4 {
		s.now = s.now.Add(20 * time.Second)
		claim := store.ClaimParams{Now: s.now, LeaseParams: s.lease()}
		publish := store.PublishParams{Now: s.now, Events: s.events(), Handoff: new(s.lease())}
		maintain := store.MaintainParams{Now: s.now, KeepPerEndpoint: 3, ForgetKeysBefore: s.now.Add(-time.Minute), Limit: 5}
		results := func(st *Store) string {
			claimed, err := st.Claim(ctx, claim)
			require.NoError(s, err)
			published, failed := st.Publish(ctx, publish)
			maintained, err := st.Maintain(ctx, maintain)
			require.NoError(s, err)
			return reveal(claimed.Leases) + reveal(published.Leases) +
				fmt.Sprint(claimed.NextDue, published.Receipts, published.Queued, failed, maintained)
		}
		require.Equal(s, results(s.st), results(fork))
	}
	require.Equal(s, state(s, s.st), state(s, fork))
}

// reveal shows leases, secrets and all.
func reveal(leases []store.Lease) string {
	var all strings.Builder
	for _, l := range leases {
		target := *l.Target
		l.Target = nil
		fmt.Fprintf(&all, "%+v %+v", l, target)
		for _, s := range []store.Sealed{target.Secrets.Current, target.Secrets.Previous, target.Secrets.Credentials} {
			fmt.Fprintf(&all, " %q", s.Data.Reveal())
		}
	}
	return all.String()
}

func (s *story) chance(percent int) bool { return s.dice.IntN(100) < percent }

func (s *story) lease() store.LeaseParams {
	s.serial++
	room := store.Room{Limit: s.dice.IntN(6), PerEndpoint: 1 + s.dice.IntN(3)}
	if s.chance(30) {
		room.Endpoints = map[int64]int{1 + s.dice.Int64N(6): s.dice.IntN(3)}
	}
	return store.LeaseParams{Token: int64(s.serial), Until: s.now.Add(time.Duration(s.dice.IntN(60)) * time.Second), Room: room}
}

func (s *story) events() []store.NewEvent {
	var events []store.NewEvent
	for range 1 + s.dice.IntN(3) {
		s.serial++
		e := event(s.serial)
		e.WorkspaceID = 1 + s.dice.Int64N(2)
		e.DegradedBudget = 1
		if s.chance(50) {
			e.OrderingKey = fmt.Sprint(s.dice.IntN(3))
		}
		if s.chance(30) {
			e.IdempotencyKey, e.Digest = fmt.Sprint(s.dice.IntN(8)), [32]byte{}
		}
		if s.chance(5) {
			e.Digest[0]++
		}
		events = append(events, e)
	}
	return events
}

// endpoint is one that lives, or none.
func (s *story) endpoint() store.Endpoint {
	found, err := s.st.Endpoints(s.Context(), store.EndpointFilter{WorkspaceID: 1 + s.dice.Int64N(2)})
	require.NoError(s, err)
	if len(found) == 0 {
		return store.Endpoint{}
	}
	return found[s.dice.IntN(len(found))]
}

// take returns a lease that was given at some time.
func (s *story) take() store.Lease {
	if len(s.leases) == 0 {
		return store.Lease{DeliveryID: 1, Token: 1}
	}
	i := s.dice.IntN(len(s.leases))
	l := s.leases[i]
	if s.chance(80) {
		s.leases[i] = s.leases[len(s.leases)-1]
		s.leases = s.leases[:len(s.leases)-1]
	}
	return l
}

func (s *story) gave(leases []store.Lease) { s.leases = append(s.leases, leases...) }

// step makes one call, which may fail. What it did is counted.
func (s *story) step() {
	ctx := s.Context()
	s.now = s.now.Add(time.Duration(s.dice.IntN(10_000_000)) * time.Microsecond)
	count := func(what string, n int) { s.happened[what] += n }
	failed := func(err error) bool {
		if err != nil {
			count("conflict", 1)
		}
		return err != nil
	}
	switch s.dice.IntN(16) {
	case 0:
		p := newEndpoint(1 + s.dice.Int64N(2))
		if s.chance(20) {
			p.Endpoint.ID = 1 + s.dice.Int64N(40)
		}
		p.Endpoint.MaxInFlight = s.dice.IntN(3)
		_, err := s.st.CreateEndpoint(ctx, p)
		failed(err)
	case 1:
		e := s.endpoint()
		e.Active, e.UpdatedAt, e.Description = s.chance(80), s.now, fmt.Sprint(s.serial)
		var credentials *store.Sealed
		if s.chance(50) {
			credentials = new(secret("new", int64(s.serial)))
		}
		if s.chance(10) {
			e.Revision--
		}
		_, err := s.st.UpdateEndpoint(ctx, e, credentials)
		failed(err)
	case 2:
		e := s.endpoint()
		p := store.RotateParams{
			WorkspaceID: e.WorkspaceID, EndpointID: e.ID, Seen: e.Rotations, At: s.now,
			Secret: secret("rotated", int64(s.serial)), PreviousUntil: s.now.Add(time.Minute),
		}
		if _, err := s.st.RotateSecret(ctx, p); !failed(err) {
			count("rotated", 1)
		}
		if found, err := s.st.Secrets(ctx, store.SecretsFilter{Limit: 3}); !failed(err) && s.chance(50) {
			for i := range found {
				found[i].Secrets.Current, found[i].Revision = secret("resealed", int64(s.serial)), found[i].Revision-s.dice.Int64N(2)
			}
			stale, err := s.st.Reseal(ctx, found)
			require.NoError(s, err)
			count("resealed", len(found)-len(stale))
		}
	case 3:
		if e := s.endpoint(); s.chance(30) && !failed(s.st.DeleteEndpoint(ctx, e.WorkspaceID, e.ID, s.now)) {
			count("deleted", 1)
		}
	case 4, 5, 6:
		p := store.PublishParams{Events: s.events(), Now: s.now}
		if s.chance(30) {
			p.Handoff = new(s.lease())
		}
		r, err := s.st.Publish(ctx, p)
		if failed(err) {
			return
		}
		s.gave(r.Leases)
		count("handed off", len(r.Leases))
		for _, receipt := range r.Receipts {
			if receipt.Repeat {
				count("repeated", 1)
			}
		}
	case 7, 8, 9:
		r, err := s.st.Claim(ctx, store.ClaimParams{Now: s.now, LeaseParams: s.lease()})
		require.NoError(s, err)
		s.gave(r.Leases)
		count("claimed", len(r.Leases))
		if len(r.Leases) == 0 {
			count("claimed nothing", 1)
		}
	case 10, 11, 12:
		s.record(count)
	case 13:
		lost, err := s.st.Renew(ctx, []store.LeaseRef{new(s.take()).Ref(), new(s.take()).Ref()}, s.now.Add(time.Minute))
		require.NoError(s, err)
		count("lost", len(lost))
		release := store.Release{LeaseRef: new(s.take()).Ref(), Interrupted: s.chance(50)}
		switch s.dice.IntN(3) {
		case 0:
			release.Error = []byte{} // which clears the last one
		case 1:
			release.Error, release.DueAt = []byte("\xff"), s.now.Add(time.Second)
		}
		require.NoError(s, s.st.Release(ctx, []store.Release{release}))
	case 14:
		done := []store.Status{store.StatusDelivered, store.StatusFailed}[s.dice.IntN(2)]
		found, err := s.st.Deliveries(ctx, store.DeliveryFilter{WorkspaceID: 1, Status: done})
		require.NoError(s, err)
		if len(found) > 0 {
			d := found[s.dice.IntN(len(found))]
			if _, err := s.st.Retry(ctx, store.RetryParams{WorkspaceID: 1, DeliveryID: d.ID, Now: s.now, Budget: 2}); !failed(err) {
				count("retried", 1)
			}
		}
		e := s.endpoint()
		n, err := s.st.Recover(ctx, store.RecoverParams{
			WorkspaceID: e.WorkspaceID, EndpointID: e.ID, Since: s.now.Add(-10 * time.Minute), Now: s.now, Budget: 2, Limit: 2,
		})
		failed(err)
		count("recovered", n)
	case 15:
		r, err := s.st.Maintain(ctx, store.MaintainParams{
			Now: s.now, PruneBefore: s.now.Add(-20 * time.Minute), KeepPerEndpoint: 1,
			ForgetKeysBefore: s.now.Add(-2 * time.Minute), Limit: 1 + s.dice.IntN(3),
		})
		require.NoError(s, err)
		count("maintained", r.Erased+r.Pruned+r.Purged+r.Keys)
	}
}

func (s *story) record(count func(string, int)) {
	l := s.take()
	o := store.Outcome{
		DeliveryID: l.DeliveryID, Token: l.Token, Message: bytes.Repeat([]byte{0xff}, s.dice.IntN(3)),
		Attempt: store.Attempt{
			StartedAt: s.now.Add(-time.Second), Latency: 1234567 * time.Nanosecond, Status: 500,
			Error: []byte("\xff\x00"), Headers: map[string]string{"X-A": "b"}, Response: []byte("\xfe"), ResponseCut: true,
		},
	}
	switch s.dice.IntN(3) {
	case 0:
		o.Status, o.Health, o.NextAttemptAt = store.StatusPending, store.HealthFailure, s.now.Add(30*time.Second)
	case 1:
		o.Status, o.Health = store.StatusFailed, store.HealthFailure
	case 2:
		o.Status, o.Health = store.StatusDelivered, store.HealthSuccess
	}
	p := store.RecordParams{Now: s.now, Outcomes: []store.Outcome{o}}
	if s.chance(80) {
		p.Health = &store.HealthPolicy{DegradeAfter: 2, DegradeFor: time.Minute, PauseAfter: 5, PauseReason: "failing"}
	}
	if s.chance(50) {
		p.Claim = &store.ClaimParams{Now: s.now, LeaseParams: s.lease()}
	}
	r, err := s.st.Record(s.Context(), p)
	require.NoError(s, err)
	require.Equal(s, o, p.Outcomes[0], "what was passed is not changed")
	s.gave(r.Claim.Leases)
	count("stale", len(r.Stale))
	count("changed health", len(r.Changes))
}

package postgresstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// TestModel does the same random things to this store and to the memory store,
// and wants the same answers. For a long run: -rapid.checks=1000 -rapid.steps=60.
func TestModel(t *testing.T) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given { // a step is dozens of round trips
		f := flag.Lookup("rapid.checks")
		before := f.Value.String()
		t.Cleanup(func() { _ = f.Value.Set(before) })
		require.NoError(t, f.Value.Set("15"))
	}
	st := openURL(t, hasty(t), Options{})
	rapid.Check(t, func(rt *rapid.T) {
		require.NoError(rt, empty(testServer, st.schema.name))
		m := &model{
			stores: [2]store.Store{st, memorystore.New(memorystore.Options{FirstDeliveryID: 1})},
			now:    time.UnixMilli(1_000_000).UTC(),
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create":   m.create,
			"update":   m.update,
			"rotate":   m.rotate,
			"delete":   m.remove,
			"publish":  m.publish,
			"publish2": m.publish,
			"publish3": m.publish,
			"claim":    m.claim,
			"claim2":   m.claim,
			"record":   m.record,
			"record2":  m.record,
			"record3":  m.record,
			"renew":    m.renew,
			"release":  m.release,
			"retry":    m.retry,
			"recover":  m.recover,
			"maintain": m.maintain,
			"wait":     m.wait,
			"":         m.same,
		})
	})
}

type model struct {
	stores    [2]store.Store
	now       time.Time
	serial    int64
	endpoints int64
	leases    []store.Lease
}

// both does something to both stores and compares the answers.
func both[T any](m *model, t *rapid.T, what string, f func(store.Store) (T, error)) T {
	var answers [2]T
	var errs [2]error
	for i, st := range m.stores {
		answers[i], errs[i] = f(st)
	}
	for _, known := range []error{
		store.ErrNotFound, store.ErrConflict, store.ErrPending, store.ErrIdempotencyConflict,
	} {
		if errors.Is(errs[0], known) && errors.Is(errs[1], known) {
			return answers[0]
		}
	}
	if errs[0] != nil || errs[1] != nil {
		t.Fatalf("%s: postgres says %v, memory %v", what, errs[0], errs[1])
	}
	a, b := plain(answers[0]), plain(answers[1])
	if a != b {
		t.Fatalf("%s:\npostgres %s\nmemory %s", what, a, b)
	}
	return answers[0]
}

// Revisions grow, but need not be the same. When a lease that ran out is seen
// to have done so is for a store to say; when it is given again, both must agree
// on what leases then tell.
var varying = regexp.MustCompile(`"Revision":\d+|,"interruptions":\d+|,"next_attempt_at":"[^"]*"`)

func plain(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	s := strings.NewReplacer(":[]", ":null", ":{}", ":null").Replace(string(data))
	if s == "[]" {
		s = "null"
	}
	return varying.ReplaceAllString(s, "")
}

// same compares all there is to read.
func (m *model) same(t *rapid.T) {
	ctx := t.Context()
	for workspace := int64(1); workspace <= 2; workspace++ {
		both(m, t, "endpoints", func(st store.Store) ([]store.Endpoint, error) {
			return st.Endpoints(ctx, store.EndpointFilter{WorkspaceID: workspace})
		})
		list := both(m, t, "deliveries", func(st store.Store) ([]store.Delivery, error) {
			return st.Deliveries(ctx, store.DeliveryFilter{WorkspaceID: workspace})
		})
		if len(list) == 0 || rapid.IntRange(0, 2).Draw(t, "closer") > 0 {
			continue
		}
		d := rapid.SampledFrom(list).Draw(t, "delivery")
		both(m, t, "attempts", func(st store.Store) ([]store.Attempt, error) {
			return st.Attempts(ctx, workspace, d.ID)
		})
		f := store.DeliveryFilter{
			WorkspaceID: workspace,
			EndpointID:  rapid.SampledFrom([]int64{0, 0, d.EndpointID}).Draw(t, "of"),
			EventID:     rapid.SampledFrom([]string{"", "", d.EventID}).Draw(t, "event"),
			Status:      rapid.SampledFrom([]store.Status{"", store.StatusPending, store.StatusFailed}).Draw(t, "status"),
			Limit:       rapid.IntRange(0, 4).Draw(t, "limit"),
			Offset:      rapid.IntRange(0, 2).Draw(t, "offset"),
		}
		if rapid.Bool().Draw(t, "cursor") {
			f.Before = store.Position{CreatedAt: d.CreatedAt, DeliveryID: d.ID}
		}
		both(m, t, "filtered", func(st store.Store) ([]store.Delivery, error) { return st.Deliveries(ctx, f) })
	}
	var due [2]time.Time
	for i, st := range m.stores {
		r, err := st.Probe(ctx, store.ProbeParams{})
		require.NoError(t, err)
		due[i] = r.NextDue
	}
	if !due[0].Equal(due[1]) {
		t.Fatalf("probe: postgres says %v, memory %v", due[0], due[1])
	}
}

func (m *model) wait(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 5, 1000, 60_000, 3_600_000}).Draw(t, "ms")) * time.Millisecond)
	m.sweep(t)
}

// sweep has both stores see at once that leases ran out, by claiming all that
// is due and giving it back, where a lease of an ordering key did. Otherwise a
// head that ran out and gives way to an earlier one, which was due before, makes
// its endpoint come first or not, depending on when that is seen.
func (m *model) sweep(t *rapid.T) {
	keyed := func(l store.Lease) bool { return l.OrderingKey != "" && !l.Until.After(m.now) }
	if !slices.ContainsFunc(m.leases, keyed) {
		return
	}
	p := store.ClaimParams{Now: m.now, LeaseParams: store.LeaseParams{
		Token: m.next(), Until: m.now.Add(time.Minute), Room: store.Room{Limit: 10_000, Endpoints: map[int64]int{}},
	}}
	for id := int64(1); id <= m.endpoints; id++ {
		p.Room.Endpoints[id] = 10_000
	}
	swept := both(m, t, "sweep", func(st store.Store) (claimed, error) {
		r, err := st.Claim(t.Context(), p)
		slices.SortFunc(r.Leases, func(a, b store.Lease) int { return cmp.Compare(a.DeliveryID, b.DeliveryID) })
		return claimed{r.Leases}, err
	})
	var back []store.Release
	for _, l := range swept.Leases {
		back = append(back, store.Release{LeaseRef: l.Ref()})
	}
	both(m, t, "release", func(st store.Store) (bool, error) { return true, st.Release(t.Context(), back) })
}

func (m *model) next() int64 {
	m.serial++
	return m.serial
}

func (m *model) endpoint(t *rapid.T) int64 {
	return rapid.Int64Range(1, max(m.endpoints, 1)).Draw(t, "endpoint")
}

func (m *model) workspace(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{1, 1, 1, 1, 2}).Draw(t, "workspace")
}

func (m *model) create(t *rapid.T) {
	if m.endpoints >= 5 {
		return
	}
	p := store.CreateEndpointParams{
		Endpoint: store.Endpoint{
			WorkspaceID: m.workspace(t), Kind: rapid.SampledFrom([]store.Kind{store.KindEvent, store.KindSIEM}).Draw(t, "kind"),
			URL: "https://example.com/", Active: rapid.IntRange(0, 4).Draw(t, "active") > 0,
			Events:      rapid.SliceOfN(rapid.SampledFrom([]string{"a.b", "a.*", "c.d"}), 1, 2).Draw(t, "events"),
			MaxInFlight: rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "in flight"), CreatedAt: m.now, UpdatedAt: m.now,
		},
		Seal: func(int64) (store.Secrets, error) { return store.Secrets{}, nil },
	}
	e := both(m, t, "create", func(st store.Store) (store.Endpoint, error) { return st.CreateEndpoint(t.Context(), p) })
	m.endpoints = e.ID
}

func (m *model) update(t *rapid.T) {
	workspace, id := m.workspace(t), m.endpoint(t)
	active := rapid.Bool().Draw(t, "active")
	events := rapid.SliceOfN(rapid.SampledFrom([]string{"a.b", "a.*", "c.d"}), 1, 2).Draw(t, "events")
	outdated := rapid.IntRange(0, 9).Draw(t, "outdated") == 0
	both(m, t, "update", func(st store.Store) (store.Endpoint, error) {
		e, err := st.Endpoint(t.Context(), workspace, id)
		if err != nil {
			return e, err
		}
		e.Active, e.Events = active, events
		if outdated {
			e.Revision--
		}
		return st.UpdateEndpoint(t.Context(), e, nil)
	})
	m.sweep(t)
}

func (m *model) rotate(t *rapid.T) {
	p := store.RotateParams{
		WorkspaceID: m.workspace(t), EndpointID: m.endpoint(t), Seen: rapid.IntRange(0, 2).Draw(t, "seen"),
		Secret: store.Sealed{Data: store.NewSecret(fmt.Sprint(m.next()))}, At: m.now,
		PreviousUntil: rapid.SampledFrom([]time.Time{{}, m.now.Add(time.Minute)}).Draw(t, "until"),
	}
	both(m, t, "rotate", func(st store.Store) (store.Endpoint, error) { return st.RotateSecret(t.Context(), p) })
}

func (m *model) remove(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return
	}
	workspace, id := m.workspace(t), m.endpoint(t)
	both(m, t, "delete", func(st store.Store) (bool, error) {
		return true, st.DeleteEndpoint(t.Context(), workspace, id, m.now)
	})
}

func (m *model) room(t *rapid.T) store.LeaseParams {
	p := store.LeaseParams{
		Token: m.next(), Until: m.now.Add(time.Minute),
		Room: store.Room{Limit: rapid.IntRange(0, 6).Draw(t, "limit"), PerEndpoint: rapid.IntRange(0, 3).Draw(t, "room")},
	}
	if rapid.Bool().Draw(t, "named") {
		p.Room.Endpoints = map[int64]int{m.endpoint(t): rapid.IntRange(0, 2).Draw(t, "room of one")}
	}
	return p
}

func (m *model) publish(t *rapid.T) {
	p := store.PublishParams{Now: m.now}
	for range rapid.IntRange(1, 4).Draw(t, "n") {
		kind := rapid.SampledFrom([]string{"a.b", "a.c", "c.d"}).Draw(t, "type")
		ev := store.NewEvent{
			ID: fmt.Sprintf("evt_%d", m.next()), WorkspaceID: m.workspace(t), Type: kind,
			Matches: []string{kind, kind[:2] + "*"}, OccurredAt: m.now, Payload: []byte(kind), Budget: 3, DegradedBudget: 1,
			OrderingKey: rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(t, "key"),
		}
		if rapid.IntRange(0, 4).Draw(t, "idempotent") == 0 {
			ev.IdempotencyKey = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "idempotency key")
			ev.Digest[0] = byte(rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "digest"))
		}
		if rapid.IntRange(0, 4).Draw(t, "direct") == 0 {
			ev.EndpointID = m.endpoint(t)
		}
		p.Events = append(p.Events, ev)
	}
	if rapid.Bool().Draw(t, "handoff") {
		room := m.room(t)
		p.Handoff = &room
	}
	r := both(m, t, "publish", func(st store.Store) (store.PublishResult, error) { return st.Publish(t.Context(), p) })
	m.leases = append(m.leases, r.Leases...)
}

// again reports whether NextDue asks for another claim at once.
func again(nextDue, now time.Time) bool { return !nextDue.IsZero() && !nextDue.After(now) }

// claimed is what a claim must give; its NextDue is only a bound.
type claimed struct {
	Leases []store.Lease
}

func (m *model) claim(t *rapid.T) {
	p := store.ClaimParams{Now: m.now, LeaseParams: m.room(t)}
	var due [2]time.Time
	i := 0
	r := both(m, t, "claim", func(st store.Store) (claimed, error) {
		r, err := st.Claim(t.Context(), p)
		due[i] = r.NextDue
		i++
		return claimed{r.Leases}, err
	})
	if again(due[0], m.now) != again(due[1], m.now) {
		t.Fatalf("next due: postgres says %v, memory %v, at %v", due[0], due[1], m.now)
	}
	m.leases = append(m.leases, r.Leases...)
}

// lease returns a lease that was given once, and may be lost by now.
func (m *model) lease(t *rapid.T) store.Lease {
	if rapid.IntRange(0, 3).Draw(t, "recent") > 0 {
		return rapid.SampledFrom(m.leases[max(0, len(m.leases)-6):]).Draw(t, "lease")
	}
	return rapid.SampledFrom(m.leases).Draw(t, "lease")
}

func (m *model) record(t *rapid.T) {
	p := store.RecordParams{Now: m.now}
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		if len(m.leases) == 0 {
			break
		}
		l := m.lease(t)
		o := store.Outcome{
			DeliveryID: l.DeliveryID, EndpointID: l.Target.EndpointID, Token: l.Token,
			Status: rapid.SampledFrom([]store.Status{store.StatusDelivered, store.StatusFailed, store.StatusPending}).Draw(t, "status"),
			Attempt: store.Attempt{
				StartedAt: m.now.Add(-time.Millisecond), Latency: 1500 * time.Microsecond, Status: 500,
				Error: []byte("error"), Headers: map[string]string{"A": "b"}, Response: []byte("r"), ResponseCut: true,
			},
			Health: rapid.SampledFrom([]store.HealthEffect{store.HealthNone, store.HealthSuccess, store.HealthFailure}).Draw(t, "health"),
		}
		if o.Status == store.StatusPending {
			o.NextAttemptAt = m.now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "again"))
		}
		p.Outcomes = append(p.Outcomes, o)
	}
	if rapid.Bool().Draw(t, "keep health") {
		p.Health = &store.HealthPolicy{DegradeAfter: 2, DegradeFor: time.Hour, PauseAfter: 3, PauseReason: "failing"}
	}
	if rapid.Bool().Draw(t, "claim") {
		p.Claim = &store.ClaimParams{Now: m.now, LeaseParams: m.room(t)}
	}
	r := both(m, t, "record", func(st store.Store) (store.RecordResult, error) {
		r, err := st.Record(t.Context(), p)
		r.Claim.NextDue = time.Time{}
		for i := range r.Changes {
			r.Changes[i].Revision = 0
		}
		return r, err
	})
	m.leases = append(m.leases, r.Claim.Leases...)
}

func (m *model) renew(t *rapid.T) {
	if len(m.leases) == 0 {
		return
	}
	a, b := m.lease(t), m.lease(t)
	if !a.Until.After(m.now) || !b.Until.After(m.now) {
		return
	}
	refs := []store.LeaseRef{a.Ref(), b.Ref()}
	until := m.now.Add(2 * time.Minute)
	both(m, t, "renew", func(st store.Store) ([]int64, error) { return st.Renew(t.Context(), refs, until) })
}

func (m *model) release(t *rapid.T) {
	if len(m.leases) == 0 {
		return
	}
	l := m.lease(t)
	if !l.Until.After(m.now) {
		return
	}
	r := store.Release{
		LeaseRef: l.Ref(), Interrupted: rapid.Bool().Draw(t, "interrupted"),
		Error: rapid.SampledFrom([][]byte{nil, []byte("why")}).Draw(t, "error"),
		DueAt: rapid.SampledFrom([]time.Time{{}, m.now.Add(time.Second)}).Draw(t, "due"),
	}
	both(m, t, "release", func(st store.Store) (bool, error) {
		return true, st.Release(t.Context(), []store.Release{r})
	})
}

func (m *model) retry(t *rapid.T) {
	if len(m.leases) == 0 {
		return
	}
	p := store.RetryParams{WorkspaceID: m.workspace(t), DeliveryID: m.lease(t).DeliveryID, Now: m.now, Budget: 2}
	both(m, t, "retry", func(st store.Store) (store.Delivery, error) { return st.Retry(t.Context(), p) })
}

func (m *model) recover(t *rapid.T) {
	p := store.RecoverParams{
		WorkspaceID: m.workspace(t), EndpointID: m.endpoint(t), Since: m.now.Add(-time.Hour), Now: m.now, Budget: 2,
		Limit: rapid.IntRange(1, 3).Draw(t, "limit"),
	}
	both(m, t, "recover", func(st store.Store) (int, error) { return st.Recover(t.Context(), p) })
}

func (m *model) maintain(t *rapid.T) {
	p := store.MaintainParams{Now: m.now, ForgetKeysBefore: m.now.Add(-time.Minute)}
	switch rapid.IntRange(0, 2).Draw(t, "prune") {
	case 0:
		p.PruneBefore = m.now.Add(-time.Minute)
	case 1:
		p.KeepPerEndpoint = 2
	}
	r := both(m, t, "maintain", func(st store.Store) (store.MaintainResult, error) { return st.Maintain(t.Context(), p) })
	if r.More {
		t.Fatal("Maintain without a limit says More")
	}
	if !reflect.DeepEqual(r, store.MaintainResult{}) {
		t.Logf("%+v", r)
	}
}

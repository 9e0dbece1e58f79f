package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

var secretsCases = []Case{
	{
		"secrets/listed",
		"Secrets returns the secret material of live endpoints, of all workspaces, with ids above After, in order of id, at most Limit.",
		check(secretsListed),
	},
	{
		"reseal/replaces",
		"Reseal makes Current, Previous and Credentials what the entry says and raises Revision; all else stays, " +
			"PreviousUntil and UpdatedAt too.",
		check(resealReplaces),
	},
	{
		"reseal/stale",
		"An entry of another revision than the stored one, or whose endpoint is not found, is stale and changes nothing; " +
			"the others take effect.",
		check(resealStale),
	},
	{
		"reseal/beside rotation",
		"Of a reseal and a rotation at once the rotation's secret is current afterwards, whichever came first.",
		check(resealBesideRotation),
	},
}

func (t *trial) secrets(after int64, limit int) []store.EndpointSecrets {
	list, err := t.st.Secrets(t.ctx, store.SecretsFilter{After: after, Limit: limit})
	t.must(err, "Secrets")
	return list
}

// secretsOf returns the secret material of one endpoint.
func (t *trial) secretsOf(e store.Endpoint) store.EndpointSecrets {
	list := t.secrets(e.ID-1, 1)
	if len(list) != 1 || list[0].EndpointID != e.ID {
		t.failf("Secrets with After %d and Limit 1 gave %v, want the material of endpoint %d", e.ID-1, few(list, describeSecrets), e.ID)
	}
	return list[0]
}

func (t *trial) reseal(secrets ...store.EndpointSecrets) (stale []int64) {
	stale, err := t.st.Reseal(t.ctx, secrets)
	t.must(err, "Reseal")
	return stale
}

// resealed is secret material as it would be under another key.
func resealed(s store.EndpointSecrets) store.EndpointSecrets {
	for _, s := range []*store.Sealed{&s.Secrets.Current, &s.Secrets.Previous, &s.Secrets.Credentials} {
		if !s.IsZero() {
			*s = store.Sealed{KeyID: "k2", Data: store.NewSecret("again " + s.Data.Reveal())}
		}
	}
	return s
}

// secretive creates an endpoint with secret material of all kinds.
func (t *trial) secretive(workspaceID int64) store.Endpoint {
	e := full()
	e.WorkspaceID, e.Active = workspaceID, true
	e.Events = []string{"link.created"}
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{Endpoint: e, Seal: fullSecrets})
	t.must(err, "CreateEndpoint")
	return e
}

func secretsListed(t *trial) {
	t.same(len(t.secrets(0, 0)), 0, "number of entries in an empty store")
	first, bare := t.secretive(home), draft(abroad)
	bare, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{
		Endpoint: bare, Seal: func(int64) (store.Secrets, error) { return store.Secrets{}, nil },
	})
	t.must(err, "CreateEndpoint")
	gone := t.secretive(home)
	third, paused := t.endpoint(), t.endpoint()
	t.remove(gone, at(0))
	paused = t.pause(paused, true)
	low, high := draft(abroad), draft(home) // the one with the lower id is created last
	low.ID, high.ID = paused.ID+900, paused.ID+1000
	high, low = t.create(high), t.create(low)

	kept, _ := fullSecrets(first.ID)
	entry := func(e store.Endpoint, s store.Secrets) store.EndpointSecrets {
		return store.EndpointSecrets{WorkspaceID: e.WorkspaceID, EndpointID: e.ID, Revision: e.Revision, Secrets: s}
	}
	own := func(e store.Endpoint) store.EndpointSecrets {
		s, _ := seal(e.ID)
		return entry(e, s)
	}
	want := []store.EndpointSecrets{
		entry(first, kept), entry(bare, store.Secrets{}), own(third), own(paused), own(low), own(high),
	}
	t.same(t.secrets(0, 0), want, "all there is")
	t.same(t.secrets(0, -1), want, "all there is, with a limit that is not positive")
	t.same(t.secrets(0, 2), want[:2], "the first page")
	t.same(t.secrets(want[1].EndpointID, 3), want[2:5], "the second page")
	t.same(t.secrets(want[4].EndpointID, 3), want[5:], "the last page")
	t.same(len(t.secrets(high.ID, 3)), 0, "number of entries after the last")
	t.same(t.secrets(gone.ID, 1), want[2:3], "what comes after the id of a deleted endpoint")

	// It keeps up with rotations.
	third = t.rotate(rotation(third, sealed("second"), at(0)))
	t.same(t.secretsOf(third), entry(third, store.Secrets{
		Current: sealed("second"), Previous: sealed("whsec_%d", third.ID), PreviousUntil: at(overlap),
	}), "the entry of an endpoint that was rotated")
}

func resealReplaces(t *trial) {
	e, other := t.secretive(home), t.endpoint()
	t.target(e, at(0)) // so that a store which remembers targets has one
	since := t.probe(0).Revision
	entry := resealed(t.secretsOf(e))
	until := entry.Secrets.PreviousUntil
	entry.Secrets.PreviousUntil = at(time.Minute) // is not the entry's to say
	t.same(t.reseal(entry), []int64(nil), "stale entries")
	entry.Secrets.PreviousUntil = until

	got := t.read(e)
	if got.Revision <= e.Revision {
		t.failf("Revision went from %d to %d by Reseal, want it to grow", e.Revision, got.Revision)
	}
	want := e
	want.Revision = got.Revision
	t.same(got, want, "the endpoint after Reseal")
	t.same(t.probe(since).Changed, []store.EndpointChange{{EndpointID: e.ID, Revision: got.Revision}}, "what Probe says changed")
	target := t.target(e, at(0))
	t.same(target.Secrets, entry.Secrets, "the secrets of a lease")
	t.same(target.Revision, got.Revision, "the Target's Revision")
	entry.Revision = got.Revision
	t.same(t.secretsOf(e), entry, "the entry afterwards")
	t.same(t.read(other), other, "another endpoint")

	// What there is none of can be resealed as none.
	bare := resealed(t.secretsOf(other))
	t.same(t.reseal(bare), []int64(nil), "stale entries")
	t.same(t.target(other, at(0)).Secrets, store.Secrets{Current: bare.Secrets.Current}, "the secrets of an endpoint that has one")

	// Overlaps end and rotations go on as before.
	p := rotation(t.read(e), sealed("next"), at(time.Hour))
	t.same(t.rotate(p).Rotations, e.Rotations+1, "Rotations after the next rotation")
	t.same(t.target(e, at(time.Hour)).Secrets, store.Secrets{
		Current: sealed("next"), Previous: entry.Secrets.Current, PreviousUntil: at(time.Hour + overlap),
		Credentials: entry.Secrets.Credentials,
	}, "the secrets after the next rotation")
	t.same(t.reseal(), []int64(nil), "stale entries of an empty list")
}

func resealStale(t *trial) {
	e, other, gone := t.endpoint(), t.endpoint(), t.endpoint()
	old, removed := resealed(t.secretsOf(e)), resealed(t.secretsOf(gone))
	e = t.rotate(rotation(e, sealed("second"), at(0)))
	t.remove(gone, at(0))
	before := t.secretsOf(e)

	foreign, unknown, early := resealed(before), resealed(before), resealed(before)
	foreign.WorkspaceID = abroad
	unknown.EndpointID += 1000
	early.Revision++
	entry := resealed(t.secretsOf(other))
	t.same(t.reseal(old, removed, foreign, unknown, early, entry, entry),
		[]int64{e.ID, gone.ID, e.ID, unknown.EndpointID, e.ID, other.ID}, "stale entries")
	t.same(t.secretsOf(e), before, "the entry of an endpoint that was rotated meanwhile")
	t.same(t.read(e), e, "the endpoint that was rotated meanwhile")
	t.same(t.secretsOf(other).Secrets, entry.Secrets, "the secrets of the endpoint whose entry was not stale")
}

func resealBesideRotation(t *trial) {
	e := t.endpoint()
	for n := range 15 {
		entry := resealed(t.secretsOf(e))
		p := rotation(t.read(e), sealed("secret %d", n), at(0))
		var stale []int64
		for _, err := range together(2, func(i int) (err error) {
			if i == 0 {
				stale, err = t.st.Reseal(t.ctx, []store.EndpointSecrets{entry})
			} else {
				_, err = t.st.RotateSecret(t.ctx, p)
			}
			return err
		}) {
			t.must(err, "Reseal beside RotateSecret")
		}
		got := t.secretsOf(e).Secrets
		t.same(got.Current, p.Secret, "the current secret after rotation %d", n)
		previous := entry.Secrets.Current
		if len(stale) > 0 {
			previous.KeyID, previous.Data = "k1", store.NewSecret(previous.Data.Reveal()[len("again "):])
		}
		t.same(got.Previous, previous, "the previous secret after rotation %d, where the reseal was stale: %v", n, len(stale) > 0)
	}
}

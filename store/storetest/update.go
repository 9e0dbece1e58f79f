package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

var updateCases = []Case{
	{
		"update/fields",
		"UpdateEndpoint replaces URL, Events, Active, PauseReason, Description, Config, Headers, MaxInFlight, RateLimit " +
			"and UpdatedAt, and keeps the rest.",
		check(updateFields),
	},
	{
		"update/conflict",
		"UpdateEndpoint returns ErrConflict and changes nothing if the stored Revision is not the given one; else Revision grows.",
		check(updateConflict),
	},
	{
		"update/concurrent",
		"Of many updates of one revision at once, one succeeds.",
		check(updateConcurrent),
	},
	{
		"update/credentials",
		"UpdateEndpoint replaces the credentials unless they are nil, and keeps the secrets.",
		check(updateCredentials),
	},
	{
		"update/resume",
		"Where Active goes from false to true Health becomes zero; otherwise it is kept.",
		check(updateResume),
	},
	{
		"update/not found",
		"UpdateEndpoint returns ErrNotFound for an endpoint that is unknown, deleted or of another workspace.",
		check(updateNotFound),
	},
	{
		"update/target",
		"Leases given after an update carry the new settings and revision.",
		check(updateTarget),
	},
	{
		"update/subscription",
		"Events published after an update go by the new subscription.",
		check(updateSubscription),
	},
}

func updateFields(t *trial) {
	old := full()
	old, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{Endpoint: old, Seal: fullSecrets})
	t.must(err, "CreateEndpoint")

	change := store.Endpoint{
		ID: old.ID, WorkspaceID: old.WorkspaceID, Revision: old.Revision,
		URL: "https://example.org/new", Events: []string{"domain.*"}, Active: false, PauseReason: "by hand",
		Description: "new", Config: map[string]string{"thread": "7"}, Headers: map[string]string{"X-New": "1"},
		MaxInFlight: 9, RateLimit: 0.25, UpdatedAt: at(time.Hour),
		// None of these can be changed.
		Kind: store.KindEvent, CreatedAt: at(5), Rotations: 77, PreviousUntil: at(time.Minute),
	}
	want := old
	want.URL, want.Events, want.Active, want.PauseReason = change.URL, change.Events, change.Active, change.PauseReason
	want.Description, want.Config, want.Headers = change.Description, change.Config, change.Headers
	want.MaxInFlight, want.RateLimit, want.UpdatedAt = change.MaxInFlight, change.RateLimit, change.UpdatedAt

	got := t.update(change)
	want.Revision = got.Revision
	t.same(got, want, "what UpdateEndpoint returned")
	t.same(t.read(got), want, "what Endpoint returned")

	// Everything that can be emptied can be.
	change.Revision = got.Revision
	change.Events, change.Config, change.Headers = nil, nil, nil
	change.PauseReason, change.Description, change.MaxInFlight, change.RateLimit = "", "", 0, 0
	want.Events, want.Config, want.Headers = nil, nil, nil
	want.PauseReason, want.Description, want.MaxInFlight, want.RateLimit = "", "", 0, 0
	got = t.update(change)
	want.Revision = got.Revision
	t.same(t.read(got), want, "the emptied endpoint")
}

func updateConflict(t *trial) {
	first := t.endpoint()
	change := first
	change.Description = "second"
	second := t.update(change)
	if second.Revision <= first.Revision {
		t.failf("Revision went from %d to %d", first.Revision, second.Revision)
	}
	for _, revision := range []int64{first.Revision, second.Revision + 1, 0} {
		change.Revision, change.Description = revision, "third"
		_, err := t.st.UpdateEndpoint(t.ctx, change, &store.Sealed{Data: store.NewSecret("x")})
		t.refused(err, store.ErrConflict, "UpdateEndpoint")
	}
	t.same(t.read(first), second, "the endpoint after refused updates")
	t.same(t.target(first, at(0)).Secrets.Credentials, store.Sealed{}, "the credentials after refused updates")
}

func updateConcurrent(t *trial) {
	e := t.endpoint()
	t.oneWinner(together(20, func(int) error {
		_, err := t.st.UpdateEndpoint(t.ctx, e, nil)
		return err
	}), store.ErrConflict, "UpdateEndpoint")
}

func updateCredentials(t *trial) {
	e := draft(home)
	e.Imported, e.PreviousUntil = true, at(24*time.Hour) // as fullSecrets says
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{Endpoint: e, Seal: fullSecrets})
	t.must(err, "CreateEndpoint")
	want, _ := fullSecrets(e.ID)

	e = t.update(e)
	t.same(t.target(e, at(0)).Secrets.Credentials, want.Credentials, "the credentials after an update without any")

	want.Credentials = sealed("new credentials")
	e, err = t.st.UpdateEndpoint(t.ctx, e, &want.Credentials)
	t.must(err, "UpdateEndpoint")
	t.same(t.target(e, at(0)).Secrets, want, "the secrets after new credentials")

	want.Credentials = store.Sealed{}
	e, err = t.st.UpdateEndpoint(t.ctx, e, &want.Credentials)
	t.must(err, "UpdateEndpoint")
	t.same(t.target(e, at(0)).Secrets, want, "the secrets after zero credentials")
}

func updateResume(t *trial) {
	e := draft(home)
	e.Health = store.Health{Failures: 3, FailedAt: at(0), DegradedUntil: at(time.Hour)}
	e = t.create(e)
	sick := e.Health

	e = t.update(e)
	t.same(e.Health, sick, "Health after an update of an active endpoint")
	e = t.pause(e, true)
	t.same(e.Health, sick, "Health after pausing")
	e = t.update(e)
	t.same(e.Health, sick, "Health after an update of a paused endpoint")
	e = t.pause(e, false)
	t.same(e.Health, store.Health{}, "Health after resuming")
	t.same(t.read(e).Health, store.Health{}, "Health as read after resuming")
}

func updateNotFound(t *trial) {
	e := t.endpoint()
	gone := t.endpoint()
	t.remove(gone, at(0))
	foreign := e
	foreign.WorkspaceID = abroad
	unknown := e
	unknown.ID += 1000
	for _, e := range []store.Endpoint{gone, foreign, unknown} {
		_, err := t.st.UpdateEndpoint(t.ctx, e, nil)
		t.refused(err, store.ErrNotFound, "UpdateEndpoint")
	}
	t.same(t.read(e), e, "the endpoint after updates under another workspace")
}

func updateTarget(t *trial) {
	e := t.endpoint()
	t.target(e, at(0)) // so that a store which remembers targets has one
	e.URL, e.Config, e.Headers = "https://example.org/b", map[string]string{"a": "b"}, map[string]string{"X-A": "c"}
	e.MaxInFlight, e.RateLimit = 7, 1.5
	e = t.update(e)

	got := *t.target(e, at(0))
	got.Secrets = store.Secrets{}
	t.same(got, store.Target{
		EndpointID: e.ID, WorkspaceID: home, Kind: e.Kind, URL: e.URL, Config: e.Config, Headers: e.Headers,
		MaxInFlight: 7, RateLimit: 1.5, Revision: e.Revision,
	}, "the lease's Target")
}

func updateSubscription(t *trial) {
	e := t.endpoint()
	t.same(len(t.deliver(at(0), t.event(home))), 1, "deliveries before the update")
	e.Events = []string{"domain.verified"}
	t.update(e)
	t.same(len(t.deliver(at(0), t.event(home))), 0, "deliveries of the old type")
	ev := t.event(home)
	ev.Type, ev.Matches = "domain.verified", []string{"domain.verified", "domain.*"}
	t.same(len(t.deliver(at(0), ev)), 1, "deliveries of the new type")
}

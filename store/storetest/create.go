package storetest

import (
	"errors"
	"time"

	"github.com/elido-app/webhook/store"
)

var createCases = []Case{
	{
		"create/fields",
		"CreateEndpoint sets ID and Revision, keeps all other fields as they are, and Endpoint returns the same.",
		check(createFields),
	},
	{
		"create/seal",
		"CreateEndpoint calls Seal with the new id and keeps what that returns.",
		check(createSeals),
	},
	{
		"create/seal error",
		"An error from Seal is returned as it is and nothing is stored.",
		check(createSealError),
	},
	{
		"create/ids",
		"IDs are positive and never used twice, not even after a delete.",
		check(createIDs),
	},
	{
		"create/import",
		"An ID other than 0 asks for that very id.",
		check(createImport),
	},
	{
		"create/import of a taken id",
		"Importing an id that is or was in use, in any workspace, fails with ErrConflict and changes nothing.",
		check(createImportTaken),
	},
	{
		"create/revision",
		"Revision grows over all endpoints of a store.",
		check(createRevision),
	},
	{
		"endpoint/not found",
		"Endpoint returns ErrNotFound for an id that is unknown or of another workspace.",
		check(endpointNotFound),
	},
	{
		"endpoints/paging",
		"Endpoints returns those of the workspace with ids above After, in order of id, at most Limit.",
		check(endpointsPaging),
	},
	{
		"endpoints/none",
		"Endpoints of a workspace without any is not an error.",
		check(endpointsNone),
	},
}

// full is an endpoint with every field set that a caller can set.
func full() store.Endpoint {
	return store.Endpoint{
		WorkspaceID:   home,
		Kind:          store.KindTelegram,
		URL:           "https://example.com/a?b=c%20d",
		Events:        []string{"link.created", "member.*"},
		Active:        false,
		PauseReason:   "50 failures in a row",
		Description:   "Überwachung \"eins\"",
		Config:        map[string]string{"chat_id": "-100", "empty": ""},
		Headers:       map[string]string{"X-Team": "growth"},
		MaxInFlight:   3,
		RateLimit:     2.5,
		CreatedAt:     at(-1000 * time.Hour),
		UpdatedAt:     at(-time.Hour),
		Imported:      true,
		Rotations:     2,
		PreviousUntil: at(24 * time.Hour),
		Health:        store.Health{Failures: 4, FailedAt: at(-time.Minute), DegradedUntil: at(time.Hour)},
	}
}

func fullSecrets(int64) (store.Secrets, error) {
	return store.Secrets{
		Current:       sealed("current"),
		Previous:      store.Sealed{Data: store.NewSecret("previous")},
		PreviousUntil: at(24 * time.Hour),
		Credentials:   sealed("credentials"),
	}, nil
}

func createFields(t *trial) {
	want := full()
	got, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{Endpoint: want, Seal: fullSecrets})
	t.must(err, "CreateEndpoint")
	if got.ID <= 0 || got.Revision <= 0 {
		t.failf("CreateEndpoint returned ID %d and Revision %d, want both positive", got.ID, got.Revision)
	}
	want.ID, want.Revision = got.ID, got.Revision
	t.same(got, want, "what CreateEndpoint returned")
	t.same(t.read(got), want, "what Endpoint returned")

	list, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: home})
	t.must(err, "Endpoints")
	t.same(list, []store.Endpoint{want}, "what Endpoints returned")
}

func createSeals(t *trial) {
	var sealedFor []int64
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{
		Endpoint: draft(home),
		Seal: func(id int64) (store.Secrets, error) {
			sealedFor = append(sealedFor, id)
			return fullSecrets(id)
		},
	})
	t.must(err, "CreateEndpoint")
	if len(sealedFor) == 0 || sealedFor[len(sealedFor)-1] != e.ID {
		t.failf("Seal was called with %v, the endpoint's id is %d", sealedFor, e.ID)
	}

	got := t.target(e, at(0)).Secrets
	want, _ := fullSecrets(e.ID)
	t.same(got.Current, want.Current, "the current secret")
	t.same(got.Credentials, want.Credentials, "the credentials")
}

func createSealError(t *trial) {
	refusal := errors.New("no key")
	_, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{
		Endpoint: draft(home),
		Seal:     func(int64) (store.Secrets, error) { return store.Secrets{}, refusal },
	})
	if err != refusal { //nolint:errorlint // "as it is" means this very error
		t.failf("CreateEndpoint whose Seal returned error %q returned error %v, want that very error", refusal, err)
	}
	list, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: home})
	t.must(err, "Endpoints")
	t.same(len(list), 0, "number of endpoints")
	t.same(t.deliver(at(0), t.event(home)), []int64(nil), "deliveries to an endpoint that was not stored")
}

func createIDs(t *trial) {
	used := map[int64]bool{}
	for range 5 {
		e := t.endpoint()
		if e.ID <= 0 || used[e.ID] {
			t.failf("CreateEndpoint gave id %d after %v", e.ID, used)
		}
		used[e.ID] = true
		t.remove(e, at(0))
		t.maintain(store.MaintainParams{Now: at(0)})
	}
}

func createImport(t *trial) {
	generated := t.endpoint()
	wanted := generated.ID + 2
	sealedFor := int64(0)
	e := draft(home)
	e.ID = wanted
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{
		Endpoint: e,
		Seal: func(id int64) (store.Secrets, error) {
			sealedFor = id
			return seal(id)
		},
	})
	t.must(err, "CreateEndpoint")
	t.same(e.ID, wanted, "id of the import")
	t.same(sealedFor, wanted, "id given to Seal")
	t.same(t.read(e).ID, wanted, "id as read")

	// Generated ids keep clear of imported ones.
	used := map[int64]bool{generated.ID: true, wanted: true}
	for range 4 {
		e := t.endpoint()
		if used[e.ID] {
			t.failf("CreateEndpoint gave id %d twice", e.ID)
		}
		used[e.ID] = true
	}

	// A free id below others may be imported too.
	low := draft(home)
	low.ID = wanted + 1_000_000
	t.create(low)
	low.ID -= 10
	t.same(t.create(low).ID, low.ID, "id of the lower import")
}

func createImportTaken(t *trial) {
	live, gone, purged := t.endpoint(), t.endpoint(), t.endpoint()
	imported := draft(home)
	imported.ID = purged.ID + 100
	imported = t.create(imported)
	t.remove(purged, at(0))
	t.remove(imported, at(0))
	t.maintain(store.MaintainParams{Now: at(0)})
	t.remove(gone, at(0))

	for _, taken := range []store.Endpoint{live, gone, purged, imported} {
		for _, workspace := range []int64{home, abroad} {
			e := draft(workspace)
			e.ID = taken.ID
			e.Description = "impostor"
			_, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{Endpoint: e, Seal: seal})
			t.refused(err, store.ErrConflict, "CreateEndpoint with a taken id")
		}
	}
	t.same(t.read(live), live, "the endpoint whose id was taken")
	list, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: abroad})
	t.must(err, "Endpoints")
	t.same(len(list), 0, "endpoints of the other workspace")
}

func createRevision(t *trial) {
	a := t.endpoint()
	b := t.create(draft(abroad))
	if b.Revision <= a.Revision {
		t.failf("an endpoint got revision %d after one of another workspace got %d, want it to grow", b.Revision, a.Revision)
	}
	a = t.update(a)
	if a.Revision <= b.Revision {
		t.failf("an update gave revision %d after another endpoint was created with %d, want it to grow", a.Revision, b.Revision)
	}
}

func endpointNotFound(t *trial) {
	e := t.endpoint()
	for _, c := range []struct{ workspace, id int64 }{{home, e.ID + 1}, {abroad, e.ID}, {home, 0}, {0, e.ID}} {
		_, err := t.st.Endpoint(t.ctx, c.workspace, c.id)
		t.refused(err, store.ErrNotFound, "Endpoint")
	}
}

func endpointsPaging(t *trial) {
	var want []int64
	for range 5 {
		t.create(draft(abroad))
		want = append(want, t.endpoint().ID)
	}
	gone := t.endpoint()
	t.remove(gone, at(0))
	low := draft(home) // created last, but its id comes first
	high := draft(home)
	high.ID = gone.ID + 1000
	low.ID = gone.ID + 900
	want = append(want, low.ID, high.ID)
	t.create(high)
	t.create(low)

	page := func(after int64, limit int) []int64 {
		list, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: home, After: after, Limit: limit})
		t.must(err, "Endpoints")
		var ids []int64
		for _, e := range list {
			t.same(e, t.read(e), "endpoint %d in the list", e.ID)
			ids = append(ids, e.ID)
		}
		return ids
	}
	t.same(page(0, 0), want, "without a limit")
	t.same(page(0, -1), want, "with a limit that is not positive")
	t.same(page(0, 3), want[:3], "first page")
	t.same(page(want[2], 3), want[3:6], "second page")
	t.same(page(want[5], 3), want[6:], "last page")
	t.same(page(want[6], 3), []int64(nil), "after the last")
	t.same(page(want[1]+1, 0), want[2:], "after an id of somebody else's")
}

func endpointsNone(t *trial) {
	t.endpoint()
	list, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: abroad})
	t.must(err, "Endpoints")
	t.same(len(list), 0, "number of endpoints")
}

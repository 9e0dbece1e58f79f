package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

const overlap = 7 * 24 * time.Hour

var rotateCases = []Case{
	{
		"rotate/overlap",
		"RotateSecret makes the new secret current and the current one previous until PreviousUntil; " +
			"At becomes UpdatedAt, Rotations counts up by one and Revision grows.",
		check(rotateOverlap),
	},
	{
		"rotate/twice",
		"Rotating again inside the overlap makes the secret that was current previous; the one that was previous is gone.",
		check(rotateTwice),
	},
	{
		"rotate/no overlap",
		"With PreviousUntil zero both old secrets are gone.",
		check(rotateNoOverlap),
	},
	{
		"rotate/seen",
		"If the endpoint has not been rotated exactly Seen times RotateSecret returns ErrConflict and changes nothing.",
		check(rotateSeen),
	},
	{
		"rotate/concurrent",
		"Of many rotations at once that saw the same count, one succeeds.",
		check(rotateConcurrent),
	},
	{
		"rotate/not found",
		"RotateSecret returns ErrNotFound for an endpoint that is unknown, deleted or of another workspace.",
		check(rotateNotFound),
	},
}

func (t *trial) rotate(p store.RotateParams) store.Endpoint {
	e, err := t.st.RotateSecret(t.ctx, p)
	t.must(err, "RotateSecret")
	return e
}

// rotation is the next rotation of an endpoint, with an overlap.
func rotation(e store.Endpoint, secret store.Sealed, now time.Time) store.RotateParams {
	return store.RotateParams{
		WorkspaceID: e.WorkspaceID, EndpointID: e.ID, Seen: e.Rotations,
		Secret: secret, PreviousUntil: now.Add(overlap), At: now,
	}
}

func rotateOverlap(t *trial) {
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{
		Endpoint: draft(home),
		Seal: func(int64) (store.Secrets, error) {
			return store.Secrets{Current: sealed("first"), Credentials: sealed("credentials")}, nil
		},
	})
	t.must(err, "CreateEndpoint")
	t.target(e, at(0)) // so that a store which remembers targets has one

	second := store.Sealed{KeyID: "k2", Data: store.NewSecret("second")}
	p := rotation(e, second, at(0))
	p.At = at(time.Minute)
	got := t.rotate(p)
	if got.Revision <= e.Revision {
		t.failf("Revision went from %d to %d", e.Revision, got.Revision)
	}
	want := e
	want.Rotations, want.PreviousUntil, want.Revision = 1, at(overlap), got.Revision
	want.UpdatedAt = at(time.Minute)
	t.same(got, want, "what RotateSecret returned")
	t.same(t.read(e), want, "what Endpoint returned")

	target := t.target(e, at(1))
	t.same(target.Secrets, store.Secrets{
		Current: second, Previous: sealed("first"), PreviousUntil: at(overlap), Credentials: sealed("credentials"),
	}, "the secrets after the rotation")
	t.same(target.Revision, got.Revision, "the Target's Revision")
}

func rotateTwice(t *trial) {
	e := t.endpoint()
	e = t.rotate(rotation(e, sealed("second"), at(0)))
	e = t.rotate(rotation(e, sealed("third"), at(time.Hour)))
	t.same(e.Rotations, 2, "Rotations")
	t.same(e.PreviousUntil, at(time.Hour+overlap), "PreviousUntil")
	t.same(t.target(e, at(time.Hour)).Secrets, store.Secrets{
		Current: sealed("third"), Previous: sealed("second"), PreviousUntil: at(time.Hour + overlap),
	}, "the secrets after the second rotation")
}

func rotateNoOverlap(t *trial) {
	e := t.endpoint()
	abrupt := func(secret string) {
		p := rotation(e, sealed("%s", secret), at(time.Hour))
		p.PreviousUntil = time.Time{}
		e = t.rotate(p)
		t.same(e.PreviousUntil, time.Time{}, "PreviousUntil")
		t.same(t.target(e, at(time.Hour)).Secrets, store.Secrets{Current: sealed("%s", secret)}, "the secrets")
	}
	abrupt("second")
	e = t.rotate(rotation(e, sealed("third"), at(0)))
	abrupt("fourth") // inside an overlap
	t.same(t.read(e).Rotations, 3, "Rotations")
}

func rotateSeen(t *trial) {
	e := t.endpoint()
	e = t.rotate(rotation(e, sealed("second"), at(0)))
	for _, seen := range []int{0, 2, -1} {
		p := rotation(e, sealed("impostor"), at(time.Hour))
		p.Seen = seen
		_, err := t.st.RotateSecret(t.ctx, p)
		t.refused(err, store.ErrConflict, "RotateSecret")
	}
	t.same(t.read(e), e, "the endpoint after refused rotations")
	t.same(t.target(e, at(0)).Secrets.Current, sealed("second"), "the secret after refused rotations")

	// The count goes on from where an import left off.
	imported := draft(home)
	imported.Imported, imported.Rotations = true, 5
	imported = t.create(imported)
	t.same(t.rotate(rotation(imported, sealed("x"), at(0))).Rotations, 6, "Rotations of an import")
}

func rotateConcurrent(t *trial) {
	e := t.endpoint()
	t.oneWinner(together(20, func(i int) error {
		_, err := t.st.RotateSecret(t.ctx, rotation(e, sealed("secret %d", i), at(0)))
		return err
	}), store.ErrConflict, "RotateSecret")
	t.same(t.read(e).Rotations, 1, "Rotations")
	t.same(t.target(e, at(0)).Secrets.Previous, sealed("whsec_%d", e.ID), "the previous secret")
}

func rotateNotFound(t *trial) {
	e, gone := t.endpoint(), t.endpoint()
	t.remove(gone, at(0))
	foreign := e
	foreign.WorkspaceID = abroad
	unknown := e
	unknown.ID += 1000
	for _, e := range []store.Endpoint{gone, foreign, unknown} {
		_, err := t.st.RotateSecret(t.ctx, rotation(e, sealed("x"), at(0)))
		t.refused(err, store.ErrNotFound, "RotateSecret")
	}
	t.same(t.read(e), e, "the endpoint after rotations under another workspace")
}

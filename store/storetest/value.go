package storetest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elido-app/webhook/store"
)

var valueCases = []Case{
	{
		"values/bytes",
		"Payloads, answers, errors, messages and sealed secrets are bytes: NUL and invalid UTF-8 come back as they were.",
		check(valueBytes),
	},
	{
		"values/text",
		"Text comes back as it was.",
		check(valueText),
	},
	{
		"values/copied in",
		"A caller may change what it passed without the store noticing.",
		check(valuesCopiedIn),
	},
	{
		"values/copied out",
		"A caller may change what it was given without the store noticing.",
		check(valuesCopiedOut),
	},
	{
		"values/large",
		"A payload of 256 KiB and ids beyond 2^53 come back whole.",
		check(valueLarge),
	},
}

// raw is what text columns refuse.
func raw(s string) []byte { return []byte(s + "\x00\xff\xfe\xc3(\x1b[31m\r\n" + "\xed\xa0\x80") }

func valueBytes(t *trial) {
	// What encryption makes is bytes, too.
	secrets := store.Secrets{
		Current:     store.Sealed{KeyID: "k1", Data: store.NewSecret(string(raw("current")))},
		Credentials: store.Sealed{KeyID: "k2", Data: store.NewSecret(string(raw("credentials")))},
	}
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{
		Endpoint: draft(home), Seal: func(int64) (store.Secrets, error) { return secrets, nil },
	})
	t.must(err, "CreateEndpoint")
	t.same(t.target(e, at(0)).Secrets, secrets, "the secrets of a lease")
	t.same(t.secretsOf(e).Secrets, secrets, "the entry of Secrets")
	ev := t.event(home)
	ev.EndpointID, ev.Payload = e.ID, raw("payload")
	id := t.deliverOne(at(0), ev)
	l := t.one(t.claim(at(0)))
	t.same(l.Payload, ev.Payload, "Payload of the lease")
	t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: l.Ref(), Error: raw("released")}}), "Release")
	t.same(t.delivery(id).LastError, raw("released"), "LastError after Release")

	o := again(t.one(t.claim(at(0))), at(0))
	o.Message = raw("message")
	o.Attempt.Error, o.Attempt.Response = raw("error"), raw("response")
	t.record(at(0), o)
	d := t.delivery(id)
	t.same(d.Payload, raw("payload"), "Payload")
	t.same(d.LastError, raw("error"), "LastError")
	t.same(d.Message, raw("message"), "Message")
	a := t.lastAttempt(id, 1)
	t.same(a.Error, raw("error"), "Error of the attempt")
	t.same(a.Response, raw("response"), "Response of the attempt")
}

func valueText(t *trial) {
	const odd = `It's "quoted"; \ % _ -- ? $1 ` + "\n\t日本語 🚀 e\u0301"
	e := draft(home)
	e.URL, e.Description, e.PauseReason = "https://example.com/?q="+odd, odd, odd
	e.Events = []string{"link.created", odd, ""}
	e.Config, e.Headers = map[string]string{odd: odd, "": ""}, map[string]string{odd: odd}
	e = t.create(e)
	want := e
	want.URL, want.Description, want.PauseReason = "https://example.com/?q="+odd, odd, odd
	want.Events = []string{"link.created", odd, ""}
	want.Config, want.Headers = map[string]string{odd: odd, "": ""}, map[string]string{odd: odd}
	t.same(t.read(e), want, "the endpoint")

	ev := t.event(home)
	ev.ID, ev.Type, ev.OrderingKey, ev.IdempotencyKey = "evt_"+odd, odd, odd, odd
	id := t.deliverOne(at(0), ev)
	d := t.delivery(id)
	t.same([]string{d.EventID, d.EventType, d.OrderingKey}, []string{ev.ID, odd, odd}, "the delivery's event")
	t.same(t.list(store.DeliveryFilter{EventID: ev.ID, EventType: odd}), []int64{id}, "deliveries of the event")
	t.same(t.repeats(at(0), ev), true, "Repeat of the key")

	o := delivered(t.one(t.claim(at(0))))
	o.Attempt.Headers = map[string]string{"X-Odd": odd}
	t.record(at(0), o)
	t.same(t.lastAttempt(id, 1).Headers, o.Attempt.Headers, "Headers of the attempt")
}

func scribble(b []byte) {
	for i := range b {
		b[i] = '!'
	}
}

// apart returns an endpoint that shares nothing with the given one.
func apart(e store.Endpoint) store.Endpoint {
	e.Events, e.Config, e.Headers = slices.Clone(e.Events), maps.Clone(e.Config), maps.Clone(e.Headers)
	return e
}

func valuesCopiedIn(t *trial) {
	e := draft(home)
	e.Events, e.Config, e.Headers = []string{"link.created"}, map[string]string{"a": "b"}, map[string]string{"X-A": "b"}
	created := t.create(e)
	want := apart(t.read(created))
	e.Events[0], e.Config["a"], e.Headers["X-A"] = "!", "!", "!"
	t.same(t.read(created), want, "the endpoint after what was passed to CreateEndpoint changed")

	e = t.read(created)
	t.update(e)
	want = apart(t.read(created))
	e.Events[0], e.Config["a"], e.Headers["X-A"] = "!", "!", "!"
	t.same(t.read(created), want, "the endpoint after what was passed to UpdateEndpoint changed")

	ev := t.event(home)
	ev.Matches, ev.Payload = []string{"link.created"}, []byte("payload")
	lease := t.lease(at(0))
	r := t.publishWith(store.PublishParams{Events: []store.NewEvent{ev}, Now: at(0), Handoff: &lease})
	scribble(ev.Payload)
	l := t.one(r.Leases)
	t.same(string(l.Payload), "payload", "the lease after what was passed to Publish changed")
	t.same(string(t.delivery(l.DeliveryID).Payload), "payload", "the delivery after what was passed to Publish changed")

	reason := []byte("reason")
	t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: l.Ref(), Error: reason}}), "Release")
	scribble(reason)
	t.same(string(t.delivery(l.DeliveryID).LastError), "reason", "LastError after what was passed to Release changed")

	o := again(t.one(t.claim(at(0))), at(time.Minute))
	o.Message, o.Attempt.Error, o.Attempt.Response = []byte("message"), []byte("error"), []byte("response")
	o.Attempt.Headers = map[string]string{"X-A": "b"}
	t.record(at(0), o)
	scribble(o.Message)
	scribble(o.Attempt.Error)
	scribble(o.Attempt.Response)
	o.Attempt.Headers["X-A"] = "!"
	d, a := t.delivery(l.DeliveryID), t.lastAttempt(l.DeliveryID, 1)
	t.same([]string{string(d.Message), string(d.LastError), string(a.Error), string(a.Response), a.Headers["X-A"]},
		[]string{"message", "error", "error", "response", "b"}, "the log after what was passed to Record changed")
}

func valuesCopiedOut(t *trial) {
	e := draft(home)
	e.Config, e.Headers = map[string]string{"a": "b"}, map[string]string{"X-A": "b"}
	created := t.create(e)
	want := apart(t.read(created))
	spoil := func(e store.Endpoint) { e.Events[0], e.Config["a"], e.Headers["X-A"] = "!", "!", "!" }
	unchanged := func(from string) {
		t.same(t.read(created), want, "the endpoint after what %s returned changed", from)
	}
	spoil(created)
	unchanged("CreateEndpoint")
	spoil(t.read(created))
	unchanged("Endpoint")
	list, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: home})
	t.must(err, "Endpoints")
	t.same(len(list), 1, "number of endpoints")
	spoil(list[0])
	unchanged("Endpoints")
	updated := t.update(t.read(created))
	want = apart(t.read(created))
	spoil(updated)
	unchanged("UpdateEndpoint")
	rotated := t.rotate(rotation(want, sealed("second"), at(0)))
	want = apart(t.read(created))
	spoil(rotated)
	unchanged("RotateSecret")

	key := t.keyedEvent(home, "k", 1)
	lease := t.lease(at(0))
	r := t.publishWith(store.PublishParams{Events: []store.NewEvent{key}, Now: at(0), Handoff: &lease})
	id := t.one(r.Leases).DeliveryID
	t.same(r.Receipts[0].DeliveryIDs, []int64{id}, "deliveries of the receipt")
	r.Receipts[0].DeliveryIDs[0] = -1
	repeat := t.publish(at(0), key).Receipts[0]
	t.same(repeat.DeliveryIDs, []int64{id}, "the repeat's receipt after the first one's changed")
	repeat.DeliveryIDs[0] = -1
	t.same(t.deliver(at(0), key), []int64{id}, "the next repeat's receipt after the last one's changed")

	handedOff := t.one(r.Leases)
	scribble(handedOff.Payload)
	t.same(t.delivery(id).Payload, key.Payload, "Payload after a handed off lease changed")
	t.release(handedOff)
	claimed := t.one(t.claim(at(0)))
	t.same(claimed.Payload, key.Payload, "Payload of the next lease")
	scribble(claimed.Payload)

	o := failed(claimed)
	o.Message, o.Attempt.Error, o.Attempt.Response = []byte("message"), []byte("error"), []byte("response")
	o.Attempt.Headers = map[string]string{"X-A": "b"}
	t.record(at(0), o)
	t.same(t.delivery(id).Payload, key.Payload, "Payload after a claimed lease changed")
	spoilLog := func(d store.Delivery) {
		scribble(d.Payload)
		scribble(d.Message)
		scribble(d.LastError)
	}
	spoilLog(t.delivery(id))
	found, err := t.st.Deliveries(t.ctx, store.DeliveryFilter{WorkspaceID: home})
	t.must(err, "Deliveries")
	t.same(len(found), 1, "number of deliveries")
	spoilLog(found[0])
	found, err = t.st.Deliveries(t.ctx, store.DeliveryFilter{WorkspaceID: home})
	t.must(err, "Deliveries")
	t.same([]string{string(found[0].Payload), string(found[0].Message), string(found[0].LastError)},
		[]string{string(key.Payload), "message", "error"}, "the list after what Deliveries returned changed")
	a := t.lastAttempt(id, 1)
	scribble(a.Error)
	scribble(a.Response)
	a.Headers["X-A"] = "!"
	logged := func(from string) {
		d, a := t.delivery(id), t.lastAttempt(id, 1)
		t.same([]string{string(d.Payload), string(d.Message), string(a.Error), string(a.Response), a.Headers["X-A"]},
			[]string{string(key.Payload), "message", "error", "response", "b"}, "the log after what %s returned changed", from)
	}
	t.same(string(t.delivery(id).LastError), "error", "LastError after what was read changed")
	logged("reading")
	spoilLog(t.retry(id, at(0)))
	logged("Retry")
}

func valueLarge(t *trial) {
	e := draft(1<<62 + 1)
	e.ID = 1<<62 + 3
	e = t.create(e)
	t.same(t.read(e).ID, int64(1<<62+3), "the id")
	ev := t.event(e.WorkspaceID)
	ev.Payload = []byte(strings.Repeat("0123456789abcdef", 16<<10))
	t.publish(at(0), ev)
	l := t.one(t.claim(at(0)))
	t.same(string(l.Payload) == string(ev.Payload), true, "the payload is as published")
	t.same([]int64{l.WorkspaceID, l.Target.EndpointID}, []int64{1<<62 + 1, 1<<62 + 3}, "ids of the lease")
}

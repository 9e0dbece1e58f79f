// Package verify is the receiving side of Elido's webhooks: it tells requests
// that were signed with an endpoint's secret from all others.
//
//	v, err := verify.New(os.Getenv("WEBHOOK_SECRET"))
//	…
//	http.Handle("/webhooks", v.Handler(func(ctx context.Context, ev verify.Event) error {
//		return enqueue(ctx, ev.Type, ev.Data)
//	}))
//
// [Verifier.Handler] limits the body, verifies it, parses it and answers.
// [Verifier.Request] is for handlers of your own, [Verifier.Event] for bodies
// that something else has read, and [Verifier.Verify] for the signature alone.
// [Once] keeps duplicates out. The package needs nothing but the standard
// library.
//
// # What a receiver should know
//
// Answer fast and work later. The sender waits 10 seconds, then counts the
// attempt as failed and repeats it. Store the event, answer, and work on it
// afterwards. Any 2xx ends the delivery; every other status brings it back, by
// default after 5 minutes and again after 15 more.
//
// Expect duplicates. Delivery is at least once: a lost answer or a restart
// brings the same delivery again, under the same delivery id and freshly
// signed. Keep the ids, as [Once] does, for as long as repetitions can come. A
// manual retry in the dashboard keeps the id too, so a receiver that has handled
// the delivery takes it for a duplicate.
//
// The delivery id belongs to one endpoint. If two of your endpoints want the
// same event, it comes twice, under two ids. Where a second write would hurt,
// guard the write itself: a unique key of Type, the data's id and the data's
// updated_at.
//
// Expect any order. A retry comes minutes or hours late. Before you overwrite
// what you have, compare the data's updated_at with yours; never the envelope's
// timestamp, which has whole seconds only and says when the event happened, not
// which state is newer.
//
// Verify the bytes you received. Parsing and printing JSON again makes other
// bytes, so do not let a framework touch the body first.
//
// # Replacing a secret
//
// After a rotation the old secret goes on signing for 7 days, in
// X-Elido-Signature-Previous or as a second signature in the list of the other
// schemes. So rotate, and deploy the new secret within the 7 days. If you bring
// the new secret yourself, you can also give [New] both, deploy, rotate, and drop
// the old one at leisure.
//
// # What is accepted
//
// Three schemes, see [Scheme], told apart by their headers. A request is
// accepted if one of them verifies: its headers follow their grammar, its own
// timestamp is within the tolerance, and one of its signatures was made with
// one of the secrets over that timestamp and the body. That is as safe as the
// weakest scheme accepted and no less, since whoever adds or removes headers
// cannot sign; [Verifier.Schemes] narrows it down. Schemes and versions that
// are not known are ignored beside one that is.
//
// Some requests are refused although a signature in them may be right: those
// that repeat a header the verifier reads, that have more than 8 signatures or
// a header over 4 KiB, and those whose signed webhook-id differs from
// X-Webhook-Delivery, or whose signed event id from Elido-Webhook-Id.
//
// If nothing verifies, the error is that of the scheme that got furthest: a
// wrong signature before a wrong time, that before a malformed header, and that
// before a missing one.
//
// Timestamps are compared in whole seconds and both ways, 300 seconds by
// default. Signatures are compared in constant time, and all of them before
// there is an answer.
package verify

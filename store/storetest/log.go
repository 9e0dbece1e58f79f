package storetest

import (
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

var logCases = []Case{
	{
		"deliveries/order",
		"Deliveries returns newest first: by CreatedAt and, where equal, by ID, both descending.",
		check(logOrder),
	},
	{
		"deliveries/filters",
		"Deliveries returns what every filter selects; zero fields do not filter.",
		check(logFilters),
	},
	{
		"deliveries/pages",
		"Limit, Offset and Before page through the list without a gap or a repeat.",
		check(logPages),
	},
	{
		"deliveries/pages under change",
		"A cursor keeps its place while new deliveries arrive.",
		check(logCursorHolds),
	},
	{
		"deliveries/none",
		"No deliveries is not an error; an endpoint that is not found has none.",
		check(logNone),
	},
	{
		"delivery/not found",
		"Delivery and Attempts return ErrNotFound for an id that is unknown or of another workspace.",
		check(logNotFound),
	},
	{
		"attempts/order",
		"Attempts come in order of Number.",
		check(logAttemptsOrder),
	},
}

func logOrder(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	t.create(draft(abroad))
	t.publish(at(time.Hour), t.event(abroad))
	a := t.send(e, 2, at(2*time.Minute))
	b := t.send(other, 2, at(2*time.Minute))
	c := t.send(e, 1, at(time.Minute)) // a clock that went back
	d := t.send(other, 1, at(3*time.Minute))
	want := []int64{d[0], b[1], b[0], a[1], a[0], c[0]}
	t.same(t.list(store.DeliveryFilter{}), want, "deliveries of the workspace")
	t.same(t.list(store.DeliveryFilter{EndpointID: e.ID}), []int64{a[1], a[0], c[0]}, "deliveries of one endpoint")

	// Retries and results do not move a delivery.
	t.record(at(time.Hour), delivered(t.exactly(7, t.claim(at(time.Hour)))[0]))
	t.retry(c[0], at(2*time.Hour))
	t.same(t.list(store.DeliveryFilter{}), want, "deliveries after a manual retry")
}

func logFilters(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	var all []store.Delivery
	for i, kind := range []string{"link.created", "link.updated", "link.created", "domain.verified"} {
		ev := t.event(home)
		ev.Type = kind
		r := t.publish(at(time.Duration(i)*time.Minute), ev)
		for _, id := range r.Receipts[0].DeliveryIDs {
			all = append(all, t.delivery(id))
		}
	}
	for i, l := range t.claim(at(time.Hour)) {
		t.record(at(time.Hour), []store.Outcome{delivered(l), failed(l), again(l, at(2*time.Hour))}[i%3])
	}
	for i := range all {
		all[i] = t.delivery(all[i].ID)
	}
	slices.SortFunc(all, func(a, b store.Delivery) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return int(b.ID - a.ID)
	})

	event := all[3].EventID
	for _, endpoint := range []int64{0, e.ID, other.ID, other.ID + 1000} {
		for _, eventID := range []string{"", event, "evt_unknown"} {
			for _, status := range []store.Status{"", store.StatusPending, store.StatusDelivered, store.StatusFailed} {
				for _, kind := range []string{"", "link.created", "domain.verified", "link.%"} {
					for _, times := range [][2]time.Time{
						{}, {at(time.Minute)}, {{}, at(2 * time.Minute)}, {at(time.Minute), at(2 * time.Minute)}, {at(2 * time.Minute), at(time.Minute)},
					} {
						f := store.DeliveryFilter{
							WorkspaceID: home, EndpointID: endpoint, EventID: eventID, Status: status, EventType: kind,
							Since: times[0], Until: times[1],
						}
						got, err := t.st.Deliveries(t.ctx, f)
						t.must(err, "Deliveries")
						t.same(got, selected(all, f), "deliveries %s", describeFilter(f))
					}
				}
			}
		}
	}
}

// selected is what a filter selects of deliveries.
func selected(all []store.Delivery, f store.DeliveryFilter) []store.Delivery {
	var some []store.Delivery
	for _, d := range all {
		if (f.EndpointID == 0 || d.EndpointID == f.EndpointID) &&
			(f.EventID == "" || d.EventID == f.EventID) &&
			(f.Status == "" || d.Status == f.Status) &&
			(f.EventType == "" || d.EventType == f.EventType) &&
			(f.Since.IsZero() || !d.CreatedAt.Before(f.Since)) &&
			(f.Until.IsZero() || d.CreatedAt.Before(f.Until)) {
			some = append(some, d)
		}
	}
	return some
}

func logPages(t *trial) {
	e := t.endpoint()
	t.endpoint()
	for i := range 4 { // of two deliveries each
		t.publish(at(time.Duration(i/2)*time.Minute), t.event(home))
	}
	for _, f := range []store.DeliveryFilter{
		{},
		{EndpointID: e.ID},
		{Since: at(time.Minute)},
		{Until: at(time.Minute), EndpointID: e.ID, Status: store.StatusPending, EventType: "link.created"},
	} {
		want := t.list(f)
		if len(want) < 2 {
			t.failf("there are only deliveries %v %s", want, describeFilter(f))
		}
		for _, limit := range []int{1, 2, 3, plenty} {
			var byOffset, byCursor []int64
			for len(byOffset) <= len(want) {
				page := f
				page.Limit, page.Offset = limit, len(byOffset)
				got := t.list(page)
				if len(got) == 0 {
					break
				}
				t.same(len(got) <= limit, true, "the page has at most %d deliveries", limit)
				byOffset = append(byOffset, got...)
			}
			t.same(byOffset, want, "pages of %d by offset of deliveries %s", limit, describeFilter(f))

			page := f
			page.Limit = limit
			for len(byCursor) <= len(want) {
				got := t.list(page)
				if len(got) == 0 {
					break
				}
				t.same(len(got) <= limit, true, "the page has at most %d deliveries", limit)
				byCursor = append(byCursor, got...)
				last := t.delivery(got[len(got)-1])
				page.Before = store.Position{CreatedAt: last.CreatedAt, DeliveryID: last.ID}
			}
			t.same(byCursor, want, "pages of %d by cursor of deliveries %s", limit, describeFilter(f))
		}
		last := t.delivery(want[1])
		f.Before = store.Position{CreatedAt: last.CreatedAt, DeliveryID: last.ID}
		f.Offset = 1
		t.same(t.list(f), want[min(3, len(want)):], "an offset after a cursor: deliveries %s", describeFilter(f))
		f.Offset = plenty
		t.same(t.list(f), []int64(nil), "an offset past the end: deliveries %s", describeFilter(f))
	}

	// A cursor and Until both bound the list, whichever is the earlier.
	all := t.list(store.DeliveryFilter{})
	first, old := t.delivery(all[0]), t.delivery(all[len(all)-2])
	f := store.DeliveryFilter{Until: at(time.Minute)}
	want := t.list(f)
	f.Before = store.Position{CreatedAt: first.CreatedAt, DeliveryID: first.ID}
	t.same(t.list(f), want, "deliveries after a cursor that is after Until")
	f.Before = store.Position{CreatedAt: old.CreatedAt, DeliveryID: old.ID}
	t.same(t.list(f), all[len(all)-1:], "deliveries after a cursor that is before Until")
}

func logCursorHolds(t *trial) {
	e := t.endpoint()
	sent := t.finish(e, 4, store.StatusDelivered, at(0))
	first := t.list(store.DeliveryFilter{Limit: 2})
	t.same(first, []int64{sent[3], sent[2]}, "the first page")
	t.send(e, 3, at(time.Minute))
	last := t.delivery(first[1])
	cursor := store.Position{CreatedAt: last.CreatedAt, DeliveryID: last.ID}
	t.same(t.list(store.DeliveryFilter{Before: cursor}), []int64{sent[1], sent[0]}, "the second page")

	// The delivery at the cursor need not be there any more.
	t.maintain(store.MaintainParams{Now: at(time.Hour), KeepPerEndpoint: 1})
	t.same(t.list(store.DeliveryFilter{Before: cursor}), []int64(nil), "the second page after pruning")
	cursor = store.Position{CreatedAt: at(30 * time.Second), DeliveryID: sent[0]}
	t.same(t.list(store.DeliveryFilter{Before: cursor}), sent[3:], "what comes after a position without a delivery")
}

func logNone(t *trial) {
	e, idle := t.endpoint(), t.endpoint()
	t.same(t.list(store.DeliveryFilter{}), []int64(nil), "deliveries of a workspace without any")
	t.send(e, 1, at(0))
	t.same(t.list(store.DeliveryFilter{EndpointID: idle.ID}), []int64(nil), "deliveries of an endpoint without any")
	t.same(t.list(store.DeliveryFilter{EndpointID: idle.ID + 1000}), []int64(nil), "deliveries of an unknown endpoint")
	t.same(t.list(store.DeliveryFilter{EventID: "evt_unknown"}), []int64(nil), "deliveries of an unknown event")
	t.same(t.list(store.DeliveryFilter{WorkspaceID: nowhere}), []int64(nil), "deliveries of an unknown workspace")
}

func logNotFound(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	for _, c := range []struct{ workspace, id int64 }{{home, id + 1000}, {abroad, id}, {home, 0}, {0, id}} {
		_, err := t.st.Delivery(t.ctx, c.workspace, c.id)
		t.refused(err, store.ErrNotFound, "Delivery")
		_, err = t.st.Attempts(t.ctx, c.workspace, c.id)
		t.refused(err, store.ErrNotFound, "Attempts")
	}
}

func logAttemptsOrder(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	for i := range 12 { // ten would sort before two as text
		now := at(time.Duration(i) * time.Minute)
		o := again(t.one(t.claim(now)), now.Add(time.Minute))
		o.Attempt.StartedAt = at(time.Duration(-i) * time.Minute) // clocks may go back
		t.record(now, o)
	}
	var numbers []int
	for _, a := range t.attempts(id) {
		t.same(a.DeliveryID, id, "DeliveryID of an attempt")
		numbers = append(numbers, a.Number)
	}
	t.same(numbers, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "the numbers")
}
